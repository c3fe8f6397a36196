"""What clients may send to take a server's memory: it stays within its quota, and load that is legal is never killed."""

import contextlib
import time

import grpc
import numpy
import pytest
import samples
from client import SECONDS, Client, Refusal
from posenc.v1 import rotary_pb2
from server_process import SANITIZER_BYTES
from tensors import INT32, tensor

MEBIBYTE = 1 << 20
# A server whose gRPC may buffer 96 MiB.
SMALL = ("--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB", "--max-in-flight-bytes", "32MiB")
QUOTA = 3 * 32 * MEBIBYTE
# What it keeps beside: freed answers, a quarter of those bytes, and plans, by default 16 MiB.
KEPT = 8 * MEBIBYTE + 16 * MEBIBYTE
SLACK = 96 * MEBIBYTE


def serve(client):
    """An honest call, and what it should be answered."""
    answer = client.call("ApplyRotary", samples.rotary())
    assert len(answer.q.data) == 64


def test_a_request_far_above_the_limit_is_not_kept(start_server):
    # gRPC's own limit is looked at when a message has come whole: only the quota bounds what is buffered until then.
    server = start_server(*SMALL)
    with Client(server.port) as client:
        serve(client)
        before = server.peak_memory()
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as error:
                client.call("ApplyRotary", bytes(768 * MEBIBYTE))
            assert error.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
        with Client(server.port) as another:
            serve(another)
            another.when_idle()
    assert server.peak_memory() - before < QUOTA + 64 * MEBIBYTE + SANITIZER_BYTES


@pytest.mark.parametrize("algorithm", (grpc.Compression.Gzip, grpc.Compression.Deflate))
def test_a_bomb_is_not_inflated(start_server, algorithm):
    server = start_server(*SMALL)
    with Client(server.port) as client:
        serve(client)
        before = server.peak_memory()
        for method in ("ApplyRotary", "StreamTable"):
            with pytest.raises(grpc.RpcError) as error:
                client.call(method, bytes(128 * MEBIBYTE), compression=algorithm)
            assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
        serve(client)
    assert server.peak_memory() - before < 32 * MEBIBYTE + SANITIZER_BYTES


def test_legal_load_is_refused_at_times_and_never_killed(start_server):
    # Eight requests fit at once, and half as many with their answers; sixteen come, again and again.
    server = start_server(*SMALL, "--retry-pushback", "20")
    base = server.peak_memory()
    request = samples.rotary(numpy.ones((1, 2048, 4, 128)), rotary_dim=128, offset=5)
    expected = None
    refused, left = 0, 160
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port)) for _ in range(4)]
        while left > 0:
            calls = [clients[n % 4].method("ApplyRotary").future(request, timeout=SECONDS) for n in range(16)]
            for call in calls:
                if call.exception() is None:
                    expected = expected or call.result().q.data
                    assert call.result().q.data == expected
                    left -= 1
                    continue
                refusal = Refusal.of(call.exception())
                assert (refusal.code, refusal.reason, refusal.started) == (
                    grpc.StatusCode.UNAVAILABLE, "OVERLOADED", "false")
                assert refusal.trailers["grpc-retry-pushback-ms"] == "20"
                refused += 1
        counters = clients[0].when_idle()
        assert counters.requests_refused == refused and counters.requests_failed == 0
    assert server.peak_memory() < base + QUOTA + KEPT + SLACK + SANITIZER_BYTES


def positions_by_id():
    # A million whole numbers, which the server keeps as float64.
    request = samples.table(rotary_dim=2, dtype=samples.BF16)
    request.ClearField("count")
    request.positions.CopyFrom(rotary_pb2.Positions(ids=tensor(numpy.arange(1 << 20) % 1000, INT32)))
    return request


def test_all_at_once_stays_within_what_the_flags_say(start_server):
    server = start_server(*SMALL)
    base = server.peak_memory()
    rotation = samples.rotary(numpy.ones((1, 2048, 4, 128)), rotary_dim=128)
    unary = [("ApplyRotary", rotation), ("ApplyRotary", bytes(64 * MEBIBYTE)), ("GenerateTable", positions_by_id()),
             ("GenerateBias", samples.bias(heads=8, queries=500, keys=500)),
             ("GenerateBias", samples.bias(heads=100, queries=500, keys=500))]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port)) for _ in range(4)]
        unread = [client.method("StreamTable")(samples.stream(count=1 << 20, rotary_dim=128), timeout=SECONDS)
                  for client in clients]
        answered = set()
        for _ in range(4):
            calls = [(name, client.method(name).future(request, timeout=SECONDS)) for client in clients
                     for name, request in unary]
            for name, call in calls:
                error = call.exception()
                if error is None:
                    answered.add(name)
                else:
                    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED), error
        assert answered == {name for name, _ in unary}
        for stream in unread:
            stream.cancel()
        clients[0].when_idle()
        serve(clients[0])
    assert server.peak_memory() < base + QUOTA + KEPT + SLACK + SANITIZER_BYTES


def test_an_idle_server_gives_memory_back(start_server):
    # Nothing is kept for answers, so that what is resident is the C library's.
    server = start_server("--max-request-bytes", "64MiB", "--max-in-flight-bytes", "512MiB", "--answer-pool-bytes", "1MiB")
    request = samples.rotary(numpy.ones((1, 16384, 4, 128)), rotary_dim=128)
    with Client(server.port) as client:
        serve(client)
        for call in [client.method("ApplyRotary").future(request, timeout=SECONDS) for _ in range(6)]:
            call.result()
        client.when_idle()
        assert server.peak_memory() > 100 * MEBIBYTE
    deadline = time.monotonic() + SECONDS
    while server.resident_memory() > 64 * MEBIBYTE + SANITIZER_BYTES:
        assert time.monotonic() < deadline
        time.sleep(0.1)

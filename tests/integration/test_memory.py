"""What clients may send to take a server's memory: it stays within its quota, and load that is legal is never killed."""

import contextlib

import grpc
import numpy
import pytest
import samples
from client import SECONDS, Client, Refusal
from server_process import SANITIZER_BYTES

MEBIBYTE = 1 << 20
# A server whose gRPC may buffer 96 MiB; what libraries and code take comes on top.
SMALL = ("--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB", "--max-in-flight-bytes", "32MiB")
QUOTA = 3 * 32 * MEBIBYTE


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
    assert server.peak_memory() < QUOTA + 32 * MEBIBYTE + 128 * MEBIBYTE + SANITIZER_BYTES

"""Deadlines, cancellation, drain: how calls end early, and that no answer is lost."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import socket
import threading
import time

import grpc
import grpc_peers_pb2 as peers
import h2.events
import numpy
import pytest
import samples
from bare_http2 import MEBIBYTE, ShutWindow, framed
from client import SECONDS, Client, Refusal, serialize
from server_process import SANITIZER_BYTES, memory_of
from tensors import FP64

# Seconds of work on any machine of today: no answer of this stream is small, and nothing waits for its reader.
LONG_TABLE = dict(count=2**20 // 4, rotary_dim=128, dtype=FP64)


def wait_until(condition, what):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def in_flight(client):
    return client.info().counters.in_flight_requests


def test_a_deadline_ends_long_work(client):
    with pytest.raises(grpc.RpcError) as error:
        client.call("GenerateTable", samples.table(offset=1, **LONG_TABLE), timeout=0.02)
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: in_flight(client) == 0, "the server still works for nobody")
    client.call("ApplyRotary", samples.rotary())


@pytest.mark.parametrize("timeout", ("99999999H", "2562047H", "2222222H", "99999999S"))
def test_a_deadline_may_be_far_away(shared_server, timeout):
    """2562047 hours is the longest time of Go's, 99999999 that of gRPC's header."""
    with ShutWindow(shared_server.port, window=MEBIBYTE) as client:
        stream = client.begin("ApplyRotary", ("grpc-timeout", timeout))
        client.http.send_data(stream, framed(samples.rotary()), end_stream=True)
        client.flush()
        trailers = client.wait_for(h2.events.TrailersReceived, stream)
        assert dict(trailers.headers)[b"grpc-status"] == b"0"


def test_a_cancelled_call_is_given_up(client):
    call = client.method("GenerateTable").future(samples.table(offset=2, **LONG_TABLE), timeout=SECONDS)
    wait_until(lambda: in_flight(client) == 1 or call.done(), "the call has not arrived")
    call.cancel()
    assert call.code() == grpc.StatusCode.CANCELLED
    wait_until(lambda: in_flight(client) == 0, "the server still works for nobody")


def test_a_stream_may_be_left_at_any_time(client):
    stream = client.method("StreamTable")(samples.stream(count=10_000_000, rotary_dim=128), timeout=SECONDS)
    next(stream)
    stream.cancel()
    wait_until(lambda: in_flight(client) == 0, "the server still works for nobody")


def test_a_client_that_vanishes_is_forgotten(client, shared_server):
    other = Client(shared_server.port)
    stream = other.method("StreamTable")(samples.stream(count=10_000_000, rotary_dim=128), timeout=SECONDS)
    next(stream)
    other.channel.close()
    wait_until(lambda: in_flight(client) == 0, "the server still works for nobody")


def test_answers_do_not_depend_on_what_else_runs(client):
    requests = [samples.rotary(numpy.full((1, 64, 4, 64), n), rotary_dim=64, offset=n) for n in range(8)]
    alone = [client.call("ApplyRotary", request) for request in requests]
    calls = [(n, client.method("ApplyRotary").future(requests[n], timeout=SECONDS)) for n in list(range(8)) * 16]
    for n, call in calls:
        assert call.result() == alone[n]


class Sender(threading.Thread):
    """Calls again and again, until three calls have failed, and counts."""

    def __init__(self, port, request):
        super().__init__(daemon=True)
        self.port, self.request = port, request
        self.succeeded = 0
        self.refusals = []

    def run(self):
        with Client(self.port) as client:
            while len(self.refusals) < 3:
                try:
                    client.call("ApplyRotary", self.request)
                    self.succeeded += 1
                except grpc.RpcError as error:
                    self.refusals.append(error)


def test_after_a_large_call_no_thread_is_busy_and_the_server_ends(start_server):
    server = start_server()
    with Client(server.port) as client:
        for _ in range(2):  # the thread that polls beside large messages rests, and is woken again
            client.call("ApplyRotary", samples.rotary(numpy.ones((1, 1 << 17, 1, 32))))
            wait_until(lambda: not works(server, seconds=0.5), "a thread is busy for nobody")
        client.call("ApplyRotary", samples.rotary(numpy.ones((1, 1 << 17, 1, 32))))
    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.log()


def works(server, seconds):
    """Returns whether the server's threads use a tenth of a processor."""
    def used():
        fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(seconds)
    return used() - before > 0.1 * seconds


@pytest.mark.parametrize("stop", (signal.SIGTERM, signal.SIGINT))
def test_a_signal_under_load_loses_no_accepted_call(start_server, stop):
    server = start_server("--log-format", "json", "--log-level", "debug")
    senders = [Sender(server.port, samples.rotary(numpy.ones((1, 64 << n, 4, 64)), rotary_dim=64)) for n in range(4)]
    for sender in senders:
        sender.start()
    wait_until(lambda: all(sender.succeeded >= 20 for sender in senders), "the senders do not get on")
    server.signal(stop)
    for sender in senders:
        sender.join(SECONDS)
        assert not sender.is_alive(), "a sender never learned that the server is gone"
        for refusal in sender.refusals:
            assert refusal.code() == grpc.StatusCode.UNAVAILABLE, refusal  # its connection was closed, or it was refused
    assert server.wait() == 0

    lines = [json.loads(line) for line in server.log().splitlines()]
    answered = [line for line in lines if line["message"] == "call" and line["status"] == "OK"]
    assert len(answered) == sum(sender.succeeded for sender in senders), "every call that was computed was received"
    refused = [line for line in lines if line["message"] == "call" and line["status"] != "OK"]
    assert {line["reason"] for line in refused} <= {"DRAINING"}
    assert lines[-1]["message"] == "stopped" and lines[-1]["all_answered"] is True


@pytest.mark.parametrize("stop", (signal.SIGTERM, signal.SIGINT))
def test_a_signal_ends_an_idle_server(start_server, stop):
    server = start_server("--log-format", "json")
    with Client(server.port) as client:
        client.call("ApplyRotary", samples.rotary())
    server.signal(stop)
    assert server.wait() == 0
    last = json.loads(server.log().splitlines()[-1])
    assert last["message"] == "stopped" and last["all_answered"] is True


def test_a_drain_goes_on_after_another_signal_to_read_models(start_server):
    server = start_server()
    with Client(server.port) as client:
        stream = client.method("StreamTable")(samples.stream(count=200_000, rotary_dim=128), timeout=SECONDS)
        next(stream)
        server.signal(signal.SIGTERM)
        server.log_with("draining")
        server.signal(signal.SIGHUP)
        assert sum(1 for _ in stream) > 0
    assert server.wait() == 0


def test_while_draining_calls_are_served_then_refused_and_those_begun_finish(start_server):
    server = start_server("--drain-timeout", "16")  # new calls are served for a quarter of it
    with Client(server.port) as client:
        watch = client.channel.unary_stream("/grpc.health.v1.Health/Watch", serialize, peers.HealthCheckResponse.FromString)
        health = watch(peers.HealthCheckRequest(), timeout=SECONDS)
        assert next(health).status == peers.HealthCheckResponse.SERVING
        # 98 MiB: more than the transport takes ahead of its reader, so that it cannot have ended by itself.
        rows = 200_000
        stream = client.method("StreamTable")(samples.stream(count=rows, rotary_dim=128), timeout=SECONDS)
        tiles = [next(stream)]
        server.signal(signal.SIGTERM)
        assert next(health).status == peers.HealthCheckResponse.NOT_SERVING
        client.call("ApplyRotary", samples.rotary())

        refusals = []
        def refused():
            try:
                client.call("ApplyRotary", samples.rotary())
            except grpc.RpcError as error:
                refusals.append(error)
            return bool(refusals)
        wait_until(refused, "calls are still accepted")
        assert refusals[0].code() == grpc.StatusCode.UNAVAILABLE
        refusal = Refusal.of(refusals[0])
        assert refusal.reason == "DRAINING" and refusal.started == "false"
        assert "grpc-retry-pushback-ms" not in refusal.trailers, "the client's own backoff is longer"

        tiles += stream
        assert sum(tile.cos.shape[0] for tile in tiles) == rows, "the stream that was begun comes to its end"
    assert server.wait() == 0


class SlowLink(threading.Thread):
    """Takes one connection to the server, and passes on what it says by small pieces, with pauses of so many seconds."""

    def __init__(self, port, pause):
        super().__init__(daemon=True)
        self.pause = pause
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.server = socket.socket()
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.server.connect(("127.0.0.1", port))
        self.start()

    def run(self):
        self.client, _ = self.listener.accept()
        threading.Thread(target=self.pass_on, args=(self.client, self.server, 65536, 0), daemon=True).start()
        self.pass_on(self.server, self.client, 2048, self.pause)

    @staticmethod
    def pass_on(source, destination, size, pause):
        with contextlib.suppress(OSError):
            while data := source.recv(size):
                destination.sendall(data)
                time.sleep(pause)
        with contextlib.suppress(OSError):
            destination.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(("pause", "rows"), [(0.001, 10_000), (0.003, 8000)])
def test_a_drain_waits_for_slow_readers(start_server, pause, rows):
    """With the longer pause, the last call has ended seconds before its answer has arrived, while the caller still sends."""
    server = start_server("--drain-timeout", str(2 * SECONDS))
    link = SlowLink(server.port, pause)
    with Client(link.port) as client:
        stream = client.method("StreamTable")(samples.stream(count=rows, rotary_dim=128), timeout=SECONDS)
        tiles = [next(stream)]
        server.signal(signal.SIGTERM)
        tiles += stream
        assert sum(tile.cos.shape[0] for tile in tiles) == rows
    assert server.wait() == 0


def test_a_drain_does_not_wait_for_a_host_that_takes_nothing(start_server):
    server = start_server("--drain-timeout", "2")
    link = SlowLink(server.port, pause=1000)
    with Client(link.port) as client, Client(server.port) as other:
        call = client.method("GenerateTable").future(samples.table(count=200, rotary_dim=64), timeout=SECONDS)
        own = 1
        while other.when_idle().requests_started <= own:  # these calls are counted, too
            own += 1
            time.sleep(0.01)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        call.cancel()


def test_a_drain_ends_a_call_that_takes_too_long(start_server):
    server = start_server("--drain-timeout", "4")  # the call ends a second before
    with Client(server.port) as client:
        stream = client.method("StreamTable")(samples.stream(count=2**31 - 1, rotary_dim=128), timeout=SECONDS)
        next(stream)
        server.signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as error:
            for _ in stream:  # reads, but has too much to read
                pass
        refusal = Refusal.of(error.value)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert server.wait() == 0


def test_a_second_server_cannot_take_the_port(start_server, build, tmp_path):
    import subprocess
    port = start_server().port
    second = subprocess.run([build / "bin" / "posenc-server", "--listen", f"127.0.0.1:{port}"], capture_output=True,
                            text=True, timeout=SECONDS)
    assert second.returncode != 0
    assert str(port) in second.stderr and "Address already in use" in second.stderr


@pytest.mark.parametrize("flags, said", [
    (("--max-heads", "none"), "--max-heads"), (("--such-flag",), "--such-flag"), (("--threads", "-1"), "--threads"),
    (("--max-in-flight-bytes", "1"), "--max-in-flight-bytes"), (("--listen", "nowhere"), "nowhere"),
])
def test_wrong_flags_are_named(build, flags, said):
    import subprocess
    ended = subprocess.run([build / "bin" / "posenc-server", *flags], capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode not in (0, -signal.SIGABRT) and said in ended.stderr


@pytest.mark.skipif(SANITIZER_BYTES > 0, reason="AddressSanitizer needs more virtual memory")
def test_a_lack_of_threads_is_an_error(build):
    import subprocess
    limits = [f"--as={4000 << 20}", f"--stack={8 << 20}"]  # of which the stacks of 500 threads are all
    ended = subprocess.run(["prlimit", *limits, build / "bin" / "posenc-server", "--listen", "127.0.0.1:0", "--threads", "1000"],
                           capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 1, ended
    assert "posenc-server: cannot start: " in ended.stderr and "--threads" in ended.stderr


@pytest.mark.skipif(SANITIZER_BYTES > 0, reason="AddressSanitizer maps memory at any time")
def test_a_lack_of_threads_does_not_prevent_the_drain(start_server):
    server = start_server()
    with Client(server.port) as client:
        client.call("ApplyRotary", samples.rotary())
        limit = memory_of(server.pid, "VmSize") + (4 << 20)  # and half a stack
        resource.prlimit(server.pid, resource.RLIMIT_AS, (limit, limit))
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_flags_may_come_from_the_environment(start_server):
    with Client(start_server(POSENC_SERVER_MAX_HEADS="77").port) as client:
        assert client.info().limits.max_heads == 77

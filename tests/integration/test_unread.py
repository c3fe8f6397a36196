"""Clients that do not take their answers: each is cut off in time, its bytes are given back, and the server goes on."""

import contextlib
import signal
import subprocess
import sys
import threading
import time

import grpc
import h2.events
import pytest
import samples
from bare_http2 import ShutWindow
from client import SECONDS, Client
from posenc.v1 import service_pb2
from server_process import ServerProcess
from test_lifecycle import wait_until

MEBIBYTE = 1 << 20


def header(request):
    message = service_pb2.StreamApplyRotaryRequest(header=request)
    message.header.q.tensor.ClearField("data")
    return message


def calls():
    yield "ApplyRotary", samples.rotary()
    yield "GenerateTable", samples.table(count=MEBIBYTE // 32)
    yield "StreamTable", samples.stream(count=100_000)
    yield "StreamBias", service_pb2.StreamBiasRequest(bias=samples.bias(queries=1000, keys=1000))
    yield "StreamApplyRotary", header(samples.rotary())


@pytest.mark.parametrize("method, request_", calls(), ids=lambda value: value if isinstance(value, str) else "")
def test_an_answer_nobody_takes_is_cancelled(start_server, method, request_):
    server = start_server("--send-timeout", "1")
    with Client(server.port) as client, ShutWindow(server.port) as unread:
        stream = unread.call(method, request_)
        trailers = unread.wait_for(h2.events.TrailersReceived, stream)
        assert dict(trailers.headers)[b"grpc-status"] == b"1"  # CANCELLED
        client.when_idle()
        server.log_with("not taken in time")
        client.call("ApplyRotary", samples.rotary())


def test_a_window_that_opens_in_time_gets_its_answer(start_server):
    server = start_server("--send-timeout", "30")
    with Client(server.port) as client, ShutWindow(server.port) as unread:
        stream = unread.call("GenerateTable", samples.table(count=4))
        unread.wait_for(h2.events.ResponseReceived, stream)
        assert client.info().counters.in_flight_bytes > 0
        unread.http.increment_flow_control_window(65536, stream)
        unread.flush()
        unread.wait_for(h2.events.StreamEnded, stream)
        client.when_idle()


@pytest.mark.parametrize("messages", (0, 1))
def test_a_stream_that_sends_nothing_more_ends(start_server, messages):
    server = start_server("--max-stream-seconds", "1")
    with Client(server.port) as client, ShutWindow(server.port, 65536) as idle:
        stream = idle.call("StreamApplyRotary", *[header(samples.rotary())] * messages, end=False)
        trailers = idle.wait_for((h2.events.TrailersReceived, h2.events.ResponseReceived), stream)
        if messages:
            trailers = idle.wait_for(h2.events.TrailersReceived, stream)
        assert dict(trailers.headers)[b"grpc-status"] == b"4"  # DEADLINE_EXCEEDED
        client.when_idle()
        client.call("ApplyRotary", samples.rotary())


def test_refusals_that_one_address_does_not_read_are_still_told_to_others(start_server):
    server = start_server()
    with Client(server.port) as client, ShutWindow(server.port, address="127.0.0.2", receive_buffer=2048) as unread:
        unread.socket.settimeout(1)
        with contextlib.suppress(TimeoutError, ConnectionError):  # the server reads no more of it, or cuts it
            for _ in range(15_000):
                unread.http.end_stream(unread.begin("/no/such"))
                unread.flush()
        for _ in range(20):
            with pytest.raises(grpc.RpcError) as error:
                client.channel.unary_unary("/nor/this")(b"", timeout=SECONDS)
            assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_call_is_not_longer_than_it_may_be(start_server):
    server = start_server("--max-stream-seconds", "1")
    with Client(server.port) as client:
        with pytest.raises(grpc.RpcError) as error:
            for _ in client.method("StreamTable")(samples.stream(count=2**31 - 1, rotary_dim=128)):
                pass
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert "--max-stream-seconds" in error.value.details()
        client.when_idle()


def test_a_client_that_stands_still_for_less_than_the_send_timeout_gets_its_answer(start_server):
    # Its host acknowledges, but takes nothing.
    server = start_server("--keepalive-timeout", "1")
    with ShutWindow(server.port, 2**31 - 1, receive_buffer=16384) as slow:
        stream = slow.call("GenerateTable", samples.table(count=MEBIBYTE // 32))
        time.sleep(4)
        slow.wait_for(h2.events.StreamEnded, stream)


def test_stuck_tcp_is_freed_by_its_own_timeout(start_server):
    # As a stopped process: its kernel takes what fits into its buffers, and then nothing, not even the call's reset. The
    # bytes in gRPC's hands stay charged until the connection ends; the call's timer has acted long before.
    server = start_server("--send-timeout", "1", "--keepalive-time", "1", "--keepalive-timeout", "6")
    with Client(server.port) as client, ShutWindow(server.port, 2**31 - 1) as stuck:
        stuck.call("GenerateTable", samples.table(count=4 * MEBIBYTE))
        server.log_with("not taken in time")
        assert client.info().counters.in_flight_bytes > 100 * MEBIBYTE
        client.call("ApplyRotary", samples.rotary())
        client.when_idle()
        client.call("ApplyRotary", samples.rotary())


# Reads one message of a stream, says so, and goes on reading when it is let.
READER = """
import sys
sys.path[:0] = sys.argv[2:]
import client, samples
stream = client.Client(int(sys.argv[1])).method("StreamTable")(samples.stream(count=2**31 - 1, rotary_dim=128))
next(stream)
print("reading", flush=True)
for _ in stream:
    pass
"""


@pytest.fixture
def reader():
    """A function that starts a client process which reads an endless stream."""
    processes = []

    def start(port):
        process = subprocess.Popen([sys.executable, "-c", READER, str(port), *sys.path], stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout.readline() == b"reading\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_stopped_client_does_not_hold_its_call(start_server, reader):
    server = start_server("--send-timeout", "1", "--keepalive-time", "1", "--keepalive-timeout", "3")
    with Client(server.port) as client:
        process = reader(server.port)
        process.send_signal(signal.SIGSTOP)
        server.log_with("not taken in time")
        client.when_idle()
        client.call("ApplyRotary", samples.rotary())
        process.send_signal(signal.SIGCONT)


def test_a_drain_does_not_wait_for_a_window_that_stays_shut(start_server):
    server = start_server("--drain-timeout", "4")  # the call is cancelled a second before
    with ShutWindow(server.port) as unread:
        stream = unread.call("StreamTable", samples.stream(count=10_000_000, rotary_dim=128))
        unread.wait_for(h2.events.ResponseReceived, stream)
        begun = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert time.monotonic() - begun < 30
    assert "not taken in time" in server.log()


@contextlib.contextmanager
def reading(connection, bytes_at_once):
    """Reads slowly meanwhile, until the connection ends."""
    stop = threading.Event()

    def run():
        with contextlib.suppress(OSError):
            while not stop.wait(0.2) and connection.recv(bytes_at_once):
                pass
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("kind", ("slow", "silent", "unix"))
@pytest.mark.parametrize("method, request_", (("StreamTable", samples.stream(count=2**31 - 1, rotary_dim=128)),
                                              ("GenerateTable", samples.table(count=MEBIBYTE))), ids=("stream", "unary"))
def test_a_drain_cuts_connections_that_do_not_read(server_program, tmp_path, kind, method, request_):
    path = tmp_path / "socket"
    with ServerProcess(server_program, tmp_path, "--drain-timeout", "4", "--listen", f"unix:{path}") as server, \
            Client(server.port) as client, \
            ShutWindow(path if kind == "unix" else server.port, 2**31 - 1, receive_buffer=65536) as unread:
        unread.wait_for(h2.events.DataReceived, unread.call(method, request_))
        with reading(unread.socket, 8192) if kind == "slow" else contextlib.nullcontext():
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
        assert "cut: connections that do not read number=1" in server.log()

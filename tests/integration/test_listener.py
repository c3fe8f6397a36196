"""Connections: limits, exhausted descriptors, handshakes that do not end, and the listener at a drain."""

import concurrent.futures
import contextlib
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import grpc
import h2.events
import numpy
import pytest
import samples
from bare_http2 import ShutWindow, framed
from client import APART, SECONDS, SERVICE, Client
from grpc_peers_pb2 import HealthCheckRequest, HealthCheckResponse
from posenc.v1 import service_pb2
from server_process import SANITIZER_BYTES, ServerProcess
from test_lifecycle import wait_until


def connect(port, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS, source_address=(source, 0))


def is_open(connection):
    """True if the server speaks first, as an HTTP/2 server does; False if it closes the connection."""
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) != b""
    return False


def health(client):
    check = client.channel.unary_unary("/grpc.health.v1.Health/Check", HealthCheckRequest.SerializeToString,
                                       HealthCheckResponse.FromString)
    return check(HealthCheckRequest(), timeout=SECONDS).status


def test_connections_are_limited(start_server):
    server = start_server("--max-connections", "8", "--max-connections-per-peer", "8")
    with Client(server.port, APART) as client, contextlib.ExitStack() as stack:
        assert client.info().limits.max_connections == 8
        held = [stack.enter_context(connect(server.port)) for _ in range(7)]
        wait_until(lambda: client.info().counters.open_connections == 8, "not all connections are counted")
        for _ in range(3):
            with connect(server.port) as refused:
                assert not is_open(refused)
        counters = client.info().counters
        assert (counters.open_connections, counters.refused_connections) == (8, 3)
        assert "last_peer=127.0.0.1 max_connections=8" in server.log_with("warning connections refused number=1 ")
        # Those who hold the connections go on: health does not turn them away.
        assert health(client) == HealthCheckResponse.SERVING
        client.call("ApplyRotary", samples.rotary())

        # A closed connection makes room for another at once.
        for connection in held[:4]:
            connection.close()
        wait_until(lambda: client.info().counters.open_connections == 4, "closed connections are counted")
        for _ in range(4):
            assert is_open(stack.enter_context(connect(server.port)))


def test_a_peer_cannot_take_all_connections(start_server):
    server = start_server("--max-connections-per-peer", "3")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            assert is_open(stack.enter_context(connect(server.port)))
        assert not is_open(stack.enter_context(connect(server.port)))
        server.log_with("max_connections_per_peer=3")
        for _ in range(3):
            assert is_open(stack.enter_context(connect(server.port, "127.0.0.2")))
        assert not is_open(stack.enter_context(connect(server.port, "127.0.0.2")))


def test_connections_that_come_and_go_are_not_refused(start_server):
    server = start_server("--max-connections", "64")

    def is_accepted():  # perhaps not at once: the server may not have noticed yet that earlier ones are closed
        with connect(server.port) as connection:
            return is_open(connection)
    for _ in range(500):
        wait_until(is_accepted, "closed connections are counted")
    with Client(server.port) as client:
        client.call("ApplyRotary", samples.rotary(), wait_for_ready=True)


@pytest.mark.skipif(SANITIZER_BYTES > 0, reason="without a descriptor UndefinedBehaviorSanitizer cannot check an object")
def test_accepting_resumes_after_descriptors_ran_out(server_program, tmp_path):
    program = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *server_program]
    with ServerProcess(program, tmp_path, "--max-connections", "1000", "--health-listen", "127.0.0.1:0") as server, \
            Client(server.port, APART) as client:
        client.info()
        probes = int(re.search(r"\bhealth_port=(\d+)", server.log_with("serving"))[1])
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(connect(server.port))
            server.log_with("no connection can be accepted")
            client.call("ApplyRotary", samples.rotary())
            wait_until(lambda: health(client) == HealthCheckResponse.NOT_SERVING, "health hides it")
            probe = socket.create_connection(("127.0.0.1", probes), timeout=SECONDS)
            probe.sendall(b"GET /livez HTTP/1.1\r\nHost: test\r\n\r\n")
        with probe:  # waits for a descriptor like callers of gRPC
            assert probe.recv(1024).startswith(b"HTTP/1.1 200")
        with Client(server.port, APART) as other:
            other.call("ApplyRotary", samples.rotary())
        server.log_with("connections are accepted again")
        server.signal(signal.SIGHUP)  # checks its state now, not only every 5 s
        wait_until(lambda: health(client) == HealthCheckResponse.SERVING, "health does not recover")


def test_a_handshake_ends_in_time(start_server):
    server = start_server("--handshake-timeout", "1")
    with connect(server.port) as silent:
        while silent.recv(1024):
            pass


@pytest.mark.parametrize("threads", (2, 4))
def test_several_threads_receive_large_messages(start_server, threads):
    """A message comes in many pieces, which are read by any of the threads."""
    port = start_server("--io-threads", threads).port

    def rotate(megabytes):
        request = samples.rotary(numpy.ones((1, megabytes * 64, 32, 128), numpy.float32), rotary_dim=128)
        with Client(port, APART) as client:
            answers = [client.call("ApplyRotary", request) for _ in range(4)]
        return all(answer.q == answers[0].q and len(answer.q.data) == megabytes << 20 for answer in answers)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert all(pool.map(rotate, (1, 4, 16)))
    assert rotate(16), "alone"


@pytest.mark.parametrize("unix", (False, True))
def test_a_drain_closes_the_listener(server_program, tmp_path, unix):
    path = tmp_path / "socket"
    with ServerProcess(server_program, tmp_path, "--listen", f"unix:{path}") as server, Client(server.port) as client:
        assert path.is_socket()
        stream = client.method("StreamTable")(samples.stream(count=10_000_000, rotary_dim=128), timeout=SECONDS)
        next(stream)
        server.signal(15)
        server.log_with("draining")
        with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                # Linux resets the TCP connections that arrive while the socket closes.
                with contextlib.suppress(ConnectionResetError):
                    if unix:
                        with socket.socket(socket.AF_UNIX) as late:
                            late.connect(str(path))
                    else:
                        connect(server.port).close()
        assert unix or not path.exists()
        next(stream)  # the call goes on
        stream.cancel()
        assert server.wait() == 0


def test_any_address_means_both_families(server_program, tmp_path):
    if not pathlib.Path("/proc/net/if_inet6").exists() or "00000001 01" not in pathlib.Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6 loopback address")
    for address in ("0.0.0.0:0", "[::]:0"):
        ended = tmp_path / address.strip("[]:0.").join("ab")
        ended.mkdir(exist_ok=True)
        command = [*server_program, "--listen", address, "--port-file", ended / "port"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as server:
            wait_until(lambda: (ended / "port").exists() and (ended / "port").read_text().endswith("\n"), "no port")
            port = int((ended / "port").read_text())
            for host in ("127.0.0.1", "::1"):
                with socket.create_connection((host, port), timeout=SECONDS) as connection:
                    assert is_open(connection)
            server.terminate()
        (ended / "port").unlink()


@pytest.mark.parametrize("address", ("127.0.0.1", "127.0.0.1:65536", "::1:50051", ":", ":x", "no.such.host.invalid:1",
                                     "unix:", "unix:/no/such/directory/socket"))
def test_wrong_addresses_are_one_line(server_program, address):
    ended = subprocess.run([*server_program, "--listen", address], capture_output=True, text=True, timeout=SECONDS,
                           stdin=subprocess.DEVNULL)
    assert ended.returncode == 1 and ended.stdout == "", ended
    assert ended.stderr.startswith("posenc-server: --listen: ") and ended.stderr.count("\n") == 1, ended


OTHER = "127.0.0.2"  # the address of an attacker
INFER_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def test_idle_streams_and_unread_answers_do_not_pile_up(start_server):
    """They need no admission, but callers share their number: one address has three quarters of 1,024."""
    server = start_server("--max-in-flight-requests", "8", "--max-concurrent-streams", "2000")
    for _ in range(2):  # those that have ended are not counted
        with ShutWindow(server.port, address=OTHER) as unread, ShutWindow(server.port, address=OTHER) as idle:
            for _ in range(600):
                unread.call("GetServerInfo", service_pb2.GetServerInfoRequest())
                last = idle.begin(INFER_STREAM)
            idle.flush()
            end = idle.wait_for(h2.events.ResponseReceived, last)  # without messages, headers end the call
            assert dict(end.headers)[b"grpc-status"] == b"14"
            with Client(server.port, APART) as client:
                client.info()
                client.call("ApplyRotary", samples.rotary())


def test_silent_calls_do_not_pile_up(start_server):
    """Calls without a message hold no place, but memory: their callers share 1,024 of them."""
    server = start_server("--max-in-flight-requests", "8", "--max-concurrent-streams", "1000")
    with ShutWindow(server.port, 1 << 20) as patient, ShutWindow(server.port, address=OTHER) as silent, ShutWindow(server.port, address=OTHER) as more, \
            Client(server.port, APART) as client:
        waiting = patient.begin("ApplyRotary")
        patient.flush()
        for attacker in (silent, more):
            for _ in range(600):
                last = attacker.begin("StreamApplyRotary")
            attacker.flush()
        end = more.wait_for(h2.events.ResponseReceived, last)  # an error has no trailers of their own
        assert dict(end.headers)[b"grpc-status"] == b"14"
        client.call("ApplyRotary", samples.rotary())
        patient.http.send_data(waiting, framed(samples.rotary()), end_stream=True)
        patient.flush()
        end = patient.wait_for(h2.events.TrailersReceived, waiting)
        assert dict(end.headers)[b"grpc-status"] == b"0"


def test_many_calls_at_once_are_answered_or_refused(start_server):
    """A call whose message has come is not silent, even if the server has not read it yet."""
    server = start_server("--max-in-flight-requests", "4")
    with Client(server.port, APART) as client:
        calls = [client.method("ApplyRotary").future(samples.rotary(), timeout=SECONDS) for _ in range(90)]
        assert {call.code() for call in calls} <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


def test_watches_of_health_are_limited(start_server):
    """A caller alone has three quarters of them, so that others can watch too."""
    server = start_server("--max-connections", "8")
    with Client(server.port, APART) as client, ShutWindow(server.port, 1 << 20, OTHER) as other:
        def watch(of):
            return of.channel.unary_stream("/grpc.health.v1.Health/Watch", HealthCheckRequest.SerializeToString,
                                           HealthCheckResponse.FromString)(HealthCheckRequest(), timeout=SECONDS)
        watches = [watch(client) for _ in range(12)]
        assert all(next(one).status == HealthCheckResponse.SERVING for one in watches)
        with pytest.raises(grpc.RpcError) as error:
            next(watch(client))
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        stream = other.call("/grpc.health.v1.Health/Watch", HealthCheckRequest(), end=False)
        answered = other.wait_for(h2.events.DataReceived, stream)
        assert HealthCheckResponse.FromString(answered.data[5:]).status == HealthCheckResponse.SERVING
        for _ in range(2):
            watches.pop().cancel()

        def has_room():
            with contextlib.suppress(grpc.RpcError):
                return next(watch(client)).status == HealthCheckResponse.SERVING
        wait_until(has_room, "an ended watch is counted")

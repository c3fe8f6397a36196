"""Connections whose calls are reset before the server can serve them (ADR 39)."""

import contextlib
import json
import socket

import grpc
import pytest
import samples
from client import APART, SECONDS, SERVICE, Client
from grpc_peers_pb2 import HealthCheckRequest, HealthCheckResponse
from http2_attacks import PREFACE, RST_STREAM, SETTINGS, call, frame, headers_of, read_ends
from test_metrics import Scrape, port_of

ROTATE = f"/{SERVICE.full_name}/ApplyRotary"
CUT = "warning cut: connections whose calls are cancelled before they are served number="
FEW_STREAMS = "--max-concurrent-streams", "10"


def connect(port, own_port=0):
    connection = socket.socket()
    connection.settimeout(SECONDS)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    connection.bind(("127.0.0.2", own_port))
    connection.connect(("127.0.0.1", port))
    connection.sendall(PREFACE + frame(SETTINGS))
    return connection


def begin_and_reset(path, stream):
    return headers_of(stream, path) + frame(RST_STREAM, 0, stream, bytes((0, 0, 0, 8)))


def is_cut(connection, path, first=1):
    """Resets many calls; True if the server ends the connection."""
    with contextlib.suppress(ConnectionError):
        for stream in range(first, 20_000, 2):
            connection.sendall(begin_and_reset(path, stream))
        try:
            while connection.recv(1 << 16):
                pass
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize("path", (ROTATE, f"/{SERVICE.full_name}/StreamTable", f"/{SERVICE.full_name}/StreamApplyRotary",
                                  "/inference.GRPCInferenceService/ModelStreamInfer", "/a.B/C"))
def test_a_connection_is_cut_whose_calls_are_reset_before_they_are_served(start_server, path):
    server = start_server(*FEW_STREAMS)
    served = call(1, ROTATE, samples.rotary())
    with Client(server.port, APART) as client, connect(server.port) as resetting, connect(server.port) as other:
        for connection in (resetting, other):
            connection.sendall(served)
            read_ends(connection.makefile("rb"), 1)
        name = "ipv4:127.0.0.2:%d" % resetting.getsockname()[1]
        assert is_cut(resetting, path, first=3)
        assert f"{CUT}1 last_peer={name}" in server.log_with(CUT)
        other.sendall(call(3, ROTATE, samples.rotary()))
        read_ends(other.makefile("rb"), 1)
        client.call("ApplyRotary", samples.rotary())


def test_calls_that_the_policy_refuses_can_be_dead(start_server, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"identities": [{"name": "local", "unix_sockets": True, "allow": ["info"]}]}))
    server = start_server(*FEW_STREAMS, "--policy", policy)
    with connect(server.port) as resetting:
        assert is_cut(resetting, ROTATE)


def test_a_port_that_is_used_again_begins_anew(start_server):
    server = start_server(*FEW_STREAMS)
    own_port = 0
    for _ in range(3):
        # Calls of the connection before, which the server has not seen yet, may end this one while it begins.
        with contextlib.suppress(ConnectionError), connect(server.port, own_port) as resetting:
            own_port = resetting.getsockname()[1]
            assert is_cut(resetting, ROTATE)


def test_cuts_are_reported_when_calls_use_up_the_lines_of_the_log(start_server):
    server = start_server(*FEW_STREAMS, "--max-call-log-lines", "1", "--metrics-listen", "127.0.0.1:0")
    with Client(server.port, APART) as client, connect(server.port) as resetting:
        for _ in range(3):
            client.refusal("Explain", b"\xff")
        assert is_cut(resetting, ROTATE)
    server.log_with(CUT)
    scrape = Scrape(port_of(server, "metrics_port"))
    assert scrape.of("posenc_cut_connections_total", reason="dead_calls") >= 1
    assert scrape.of("posenc_cut_connections_total", reason="unread") == 0


def test_calls_that_are_answered_are_not_dead(start_server):
    """The connection of calls that are too large, have no message or no method, and of streams that end by cancellation."""
    server = start_server(*FEW_STREAMS, "--max-request-bytes", "64KiB")
    large = bytes(2 << 20)
    with Client(server.port, APART) as client:
        watch = client.channel.unary_stream("/grpc.health.v1.Health/Watch", HealthCheckRequest.SerializeToString,
                                            HealthCheckResponse.FromString)
        held = watch(HealthCheckRequest(), timeout=SECONDS)
        next(held)

        def end_early():
            watched = watch(HealthCheckRequest(), timeout=SECONDS)
            next(watched)
            watched.cancel()
            watched.code()
        rotate, stream = client.channel.stream_unary(ROTATE), client.channel.stream_stream(
            f"/{SERVICE.full_name}/StreamApplyRotary")
        for end, make in (("RESOURCE_EXHAUSTED", lambda: client.call("ApplyRotary", large)),
                          ("RESOURCE_EXHAUSTED", lambda: list(stream(iter([large]), timeout=SECONDS))),
                          ("INVALID_ARGUMENT", lambda: rotate(iter([]), timeout=SECONDS)),
                          ("UNIMPLEMENTED", lambda: client.channel.unary_unary("/a.B/C")(b"", timeout=SECONDS)),
                          (None, end_early)):
            for _ in range(50):
                try:
                    make()
                except grpc.RpcError as error:
                    assert error.code().name == end
        assert held.is_active()

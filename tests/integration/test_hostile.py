"""Callers and readers that would hang, fill or silence a server that trusted them."""

import os
import queue
import re
import resource
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager

import grpc
import h2.events
import mutations
import numpy
import pytest
import samples
from bare_http2 import ShutWindow, framed
from client import APART, SECONDS, SERVICE, Client, Refusal
from grpc_peers_pb2 import HealthCheckRequest, ServerReflectionRequest
from http2_attacks import DATA, PREFACE, SETTINGS, call, frame, headers_of, read_ends, read_messages
from inference import service_pb2 as inference_pb2
from posenc.v1 import service_pb2
from server_process import SANITIZER_BYTES, ServerProcess, limited
from test_lifecycle import wait_until

REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


def ask_reflection(client, *questions):
    method = client.channel.stream_stream(REFLECTION, lambda question: question.SerializeToString(), bytes)
    return list(method(iter(questions), timeout=SECONDS))


def call_many(client, count, name="GetServerInfo", request=b""):
    """Ends when all are answered, whatever the answer is."""
    calls = [client.method(name).future(request, timeout=SECONDS) for _ in range(count)]
    for call in calls:
        call.exception()
    return calls


def test_a_log_that_nobody_reads_holds_nothing_up(server_program, tmp_path):
    reading, writing = os.pipe()
    with ServerProcess(server_program, tmp_path, "--log-level", "debug", stdout=writing) as server, \
            Client(server.port) as client:
        os.close(writing)
        while client.info().counters.log_lines_lost == 0:  # the pipe's 64 KiB and the queue are full
            assert all(call.code() == grpc.StatusCode.OK for call in call_many(client, 500))
        server.signal(15)
        assert server.wait() == 0
    os.close(reading)


def test_a_log_that_is_closed_does_not_end_the_server(server_program, tmp_path):
    reading, writing = os.pipe()
    with ServerProcess(server_program, tmp_path, "--log-level", "debug", stdout=writing) as server, \
            Client(server.port) as client:
        os.close(writing)
        os.close(reading)
        deadline = time.monotonic() + SECONDS
        while client.info().counters.log_lines_lost == 0:
            assert time.monotonic() < deadline
        server.signal(15)
        assert server.wait() == 0


def test_failing_calls_do_not_flood_the_log(start_server):
    server = start_server("--max-call-log-lines", "10")
    begin = time.monotonic()
    with Client(server.port) as client:
        call_many(client, 300, "Explain")
        lost = client.info().counters.log_lines_lost
        seconds = time.monotonic() - begin
        time.sleep(1.1)
        call_many(client, 1, "Explain")
        server.stop()
    lines = server.log().splitlines()
    calls = [line for line in lines if " call " in line]
    assert len(calls) <= 10 * (seconds + 2)
    left_out = [int(re.search(r"lines=(\d+)", line)[1]) for line in lines if "left out" in line]
    assert sum(left_out) >= lost > 0 and len(calls) + sum(left_out) == 301


@pytest.mark.parametrize("size", (5000, 1 << 20))
def test_reflection_refuses_long_names_unparsed(client, size):
    with pytest.raises(grpc.RpcError) as error:
        ask_reflection(client, ServerReflectionRequest(file_containing_symbol="x" * size))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "4096 bytes" in error.value.details()


def test_reflection_can_be_off(start_server):
    with Client(start_server("--reflection", "off").port) as client, pytest.raises(grpc.RpcError) as error:
        ask_reflection(client, ServerReflectionRequest(list_services=""))
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_reflection_takes_a_place_among_the_requests(start_server):
    server = start_server("--max-in-flight-requests", "1", "--send-timeout", "2")
    with Client(server.port) as client, ShutWindow(server.port) as unread:
        stream = unread.call(REFLECTION, ServerReflectionRequest(list_services=""), end=False)
        unread.wait_for(h2.events.ResponseReceived, stream)
        assert client.refusal("ApplyRotary", samples.rotary()).reason == "OVERLOADED"
        unread.wait_for(h2.events.StreamReset, stream)
        client.when_idle()
        client.call("ApplyRotary", samples.rotary())


@contextmanager
def silent_after_a_question(client):
    """A reflection stream that has its first answer and asks nothing more."""
    over = threading.Event()

    def questions():
        yield ServerReflectionRequest(list_services="")
        over.wait()

    method = client.channel.stream_stream(REFLECTION, lambda question: question.SerializeToString(), bytes)
    stream = method(questions(), timeout=SECONDS)
    next(stream)
    yield stream
    over.set()


def test_a_silent_reflection_stream_takes_no_place_and_ends(start_server):
    server = start_server("--max-in-flight-requests", "1", "--receive-timeout", "1")
    with Client(server.port) as client, silent_after_a_question(client) as stream:
        client.when_idle()  # the place is given back a little after the answer
        client.call("ApplyRotary", samples.rotary())
        with pytest.raises(grpc.RpcError) as error:
            next(stream)
        assert error.value.code() == grpc.StatusCode.CANCELLED


def test_a_drain_does_not_wait_for_silent_streams(start_server):
    server = start_server("--drain-timeout", "30")
    with Client(server.port) as client, ShutWindow(server.port) as silent, silent_after_a_question(client):
        for name in ("StreamApplyRotary", "ApplyRotary", "StreamTable"):
            silent.begin(name)
        silent.flush()
        client.info()
        begin = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert time.monotonic() - begin < 15


def test_a_drain_cuts_a_stream_that_falls_silent(start_server):
    server = start_server("--drain-timeout", "8")
    with Client(server.port) as client:
        chunks = queue.Queue()
        stream = client.method("StreamApplyRotary")(iter(chunks.get, None), timeout=SECONDS)
        chunks.put(mutations.rotary_stream()[0])
        while client.info().counters.in_flight_requests == 0:
            time.sleep(0.005)
        server.signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as error:
            list(stream)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert server.wait() == 0
        chunks.put(None)


def test_health_refuses_long_names_unparsed(client):
    check = client.channel.unary_unary("/grpc.health.v1.Health/Check", lambda request: request.SerializeToString(), bytes)
    with pytest.raises(grpc.RpcError) as error:
        check(HealthCheckRequest(service="x" * (1 << 20)), timeout=SECONDS)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_silent_streams_take_no_place_and_end(start_server):
    server = start_server("--max-in-flight-requests", "2", "--receive-timeout", "2")
    with Client(server.port) as client, ShutWindow(server.port) as silent:
        for _ in range(20):
            silent.begin("StreamApplyRotary")
        silent.flush()
        client.call("ApplyRotary", samples.rotary())
        begin = time.monotonic()
        while (started := client.info().counters).requests_failed < 20:
            assert time.monotonic() - begin < SECONDS, started


def test_a_call_without_its_message_ends(start_server):
    server = start_server("--receive-timeout", "1")
    with Client(server.port) as client, ShutWindow(server.port) as silent:
        for name in ("ApplyRotary", "StreamTable", "GetServerInfo"):
            silent.begin(name)
        silent.flush()
        begin = time.monotonic()
        while client.info().counters.requests_failed < 2:
            assert time.monotonic() - begin < SECONDS


def test_one_caller_does_not_take_every_place(start_server):
    server = start_server("--max-in-flight-requests", "64", "--max-concurrent-streams", "80")
    with ShutWindow(server.port, address="127.0.0.2") as greedy, Client(server.port) as honest:
        for _ in range(80):
            greedy.call("GenerateTable", samples.table())
        wait_until(lambda: honest.info().counters.requests_refused == 32, "more than three quarters")
        assert honest.info().counters.in_flight_requests == 48
        for offset in range(20):
            honest.call("ApplyRotary", samples.rotary(offset=offset))


def test_messages_that_have_come_do_not_keep_the_server_from_its_connections(server_program, tmp_path):
    """Both connections can be read when the server goes on: it serves messages of the one beside the call of the other."""
    count = 300
    message = framed(inference_pb2.ModelInferRequest(model_name="none"))
    wrong = samples.rotary(rotary_dim=7)
    with ServerProcess(server_program, tmp_path, "--io-threads", "1", "--max-call-log-lines", "0") as server, \
            socket.create_connection(("127.0.0.1", server.port), SECONDS) as crowded, \
            socket.create_connection(("127.0.0.1", server.port), SECONDS) as other:
        crowded.sendall(PREFACE + frame(SETTINGS) + headers_of(1, "/inference.GRPCInferenceService/ModelStreamInfer") +
                        frame(DATA, 0, 1, message))
        other.sendall(PREFACE + frame(SETTINGS) + call(1, f"/{SERVICE.full_name}/ApplyRotary", wrong))
        answers = crowded.makefile("rb"), other.makefile("rb")
        read_messages(answers[0], 1)
        read_ends(answers[1], 1)
        server.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WNOWAIT)
        crowded.sendall(frame(DATA, 0, 1, count * message))
        other.sendall(call(3, f"/{SERVICE.full_name}/ApplyRotary", wrong))
        server.signal(signal.SIGCONT)
        read_messages(answers[0], count)
        read_ends(answers[1], 1)
        wait_until(lambda: server.log().count("call method=") == count + 3, "each call has a line")
        methods = re.findall(r"call method=(\w+)", server.log())
        assert methods[2:].index("ApplyRotary") < count // 2


def test_slow_values_are_limited_by_cost(start_server):
    server = start_server("--max-call-cost", "10000")
    with Client(server.port) as client:
        usual = samples.table(count=65536, dtype=samples.FP64)
        client.call("GenerateTable", usual)
        slow = samples.table(count=65536, dtype=samples.FP64, offset=2**52)
        for name, request in (("GenerateTable", slow), ("StreamTable", service_pb2.StreamTableRequest(table=slow))):
            refusal = client.refusal(name, request)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")
            assert "10000 slow steps (--max-call-cost)" in refusal.message
        client.when_idle()
        # A stream's limit holds for each tile.
        client.call("StreamTable", service_pb2.StreamTableRequest(table=slow, rows_per_tile=512))


def test_a_limit_of_cost_never_shortens_a_diagnosis(start_server):
    """The least limit that allows the call gives the same answer as a large one. The fuzzer found a limit at which the
    last candidate was left out, with OK."""
    rng = numpy.random.default_rng(1)
    request = samples.diagnosis(rng.standard_normal((1, 2, 1, 8)), rng.standard_normal((1, 2, 1, 8)), offset=12, rotary_dim=8)
    request.expected.settings.xpos.scale_base, request.expected.settings.xpos.centre = 256, 32.375

    def diagnose(limit):
        server = start_server("--max-call-cost", limit)
        with Client(server.port) as client:
            try:
                return client.call("Diagnose", request).SerializeToString(deterministic=True)
            except grpc.RpcError as error:
                assert Refusal.of(error).reason == "TOO_LARGE"
                return None

    least, enough = 1, 4096
    expected = diagnose(enough)
    assert expected is not None
    while least < enough:
        middle = (least + enough) // 2
        answer = diagnose(middle)
        assert answer in (None, expected)
        least, enough = (middle + 1, enough) if answer is None else (least, middle)


def test_a_server_takes_all_descriptors_that_it_may(server_program, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        server = ServerProcess(server_program, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with server:
        server.log_with(f"descriptors={hard}")


@pytest.mark.skipif(SANITIZER_BYTES > 0, reason="AddressSanitizer reserves terabytes of virtual memory")
def test_little_virtual_memory_is_refused(server_program):
    ended = subprocess.run(limited(server_program, 512), capture_output=True,
                           text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    assert ended.returncode == 1 and "it must be at least 1073741824" in ended.stderr, ended


def test_a_taken_port_is_one_line(server_program, start_server):
    port = start_server().port
    ended = subprocess.run([*server_program, "--listen", f"127.0.0.1:{port}"], capture_output=True, text=True,
                           timeout=SECONDS, stdin=subprocess.DEVNULL)
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1 and "Address already in use" in ended.stderr, ended


@pytest.mark.parametrize("arguments, environment, code, said", (
    (("--listen", "127.0.0.1"), {}, 1, "must be ADDRESS:PORT"),
    (("--listen", "[::1]"), {}, 1, "must be ADDRESS:PORT"),
    ((), {"POSENC_TARGET": "nope"}, 2, "POSENC_TARGET"),
))
def test_a_wrong_start_says_why(server_program, arguments, environment, code, said):
    ended = subprocess.run([*server_program, *arguments], env={**os.environ, **environment}, capture_output=True,
                           text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    assert ended.returncode == code and said in ended.stderr, ended

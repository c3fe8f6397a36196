"""Calls through HAProxy with deploy/haproxy.cfg, and what it does with servers that drain, die and come back."""

import contextlib
import itertools
import json
import queue
import re
import select
import signal
import socket
import threading
import time
from concurrent import futures

import grpc
import numpy
import pytest
import samples
from client import APART, SECONDS, SERVICE, Client, Refusal
from front import PROGRAM, Certificates, Front, ServerBehind
from http2_attacks import CONNECTIONS, connect, headers_of
from mutations import rotary_stream
from posenc.v1 import rotary_pb2
from test_lifecycle import LONG_TABLE, wait_until
from test_streams import Exchange

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no haproxy")
MEBIBYTE = 1 << 20
# UNKNOWN: gRPC's word for an answer that HAProxy had begun to pass on when the server was killed.
RETRIED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN}
LARGE = samples.rotary(numpy.ones((1, 256, 8, 128)), rotary_dim=128)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(server_program, tmp_path_factory):
    directory = tmp_path_factory.mktemp("server")
    with ServerBehind(server_program, directory, directory / "socket") as server:
        yield server


@pytest.fixture(scope="module", params=("TLS", "mutual TLS"))
def through(request, server, certificates, tmp_path_factory):
    """A client through the front, with and without a certificate of its own."""
    mutual = request.param == "mutual TLS"
    with Front(tmp_path_factory.mktemp("front"), certificates, [server],
               certificates.authority if mutual else None) as front, \
            Client(front.port, APART, certificates.credentials(certificates if mutual else None)) as client:
        yield client


@pytest.fixture
def direct(server):
    with Client(server.port) as client:
        yield client


def test_every_kind_of_call_passes(through, direct):
    for name, request in (("ApplyRotary", samples.rotary()), ("GenerateBias", samples.bias()),
                          ("StreamTable", samples.stream(count=10_000, rows_per_tile=100))):
        assert through.call(name, request) == direct.call(name, request)
    chunks = rotary_stream()
    assert through.call("StreamApplyRotary", iter(chunks)) == direct.call("StreamApplyRotary", iter(chunks))


def test_a_stream_passes_in_both_directions_at_once(through):
    stream = Exchange(through)
    for message in rotary_stream():
        stream.requests.put(message)
        next(stream.answers)  # although the request has not ended
    stream.requests.put(None)
    assert list(stream.answers) == []


def test_errors_keep_their_details(through):
    refusal = through.refusal("ApplyRotary", samples.rotary(rotary_dim=7))
    assert isinstance(refusal, Refusal) and refusal.code == grpc.StatusCode.INVALID_ARGUMENT and refusal.field


def test_deadlines_and_cancellations_reach_the_server(through, direct):
    with pytest.raises(grpc.RpcError) as error:
        through.call("GenerateTable", samples.table(offset=1, **LONG_TABLE), timeout=0.02)
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    direct.when_idle()

    call = through.method("GenerateTable").future(samples.table(offset=2, **LONG_TABLE), timeout=SECONDS)
    wait_until(lambda: direct.info().counters.in_flight_requests == 1 or call.done(), "the call has not arrived")
    call.cancel()
    direct.when_idle()

    stream = through.method("StreamTable")(samples.stream(count=10_000_000, rotary_dim=128), timeout=SECONDS)
    next(stream)
    stream.cancel()
    direct.when_idle()


def test_large_messages_pass(through, direct):
    request = samples.rotary(numpy.ones((1, 4096, 32, 128)), rotary_dim=128)
    assert request.ByteSize() >= 64 * MEBIBYTE
    assert through.call("ApplyRotary", request) == direct.call("ApplyRotary", request)


def test_many_large_calls_of_one_connection_pass(through):
    """With shared connections to the server, uploads and downloads can wait for each other; that takes many attempts."""
    request = samples.rotary(numpy.ones((1, 1024, 32, 128)), rotary_dim=128).SerializeToString()
    rotate = through.channel.unary_unary(f"/{SERVICE.full_name}/ApplyRotary")  # without the time to parse answers
    with futures.ThreadPoolExecutor(16) as threads:
        answers = threads.map(lambda _: rotate(request, timeout=SECONDS), range(48))
        assert all(len(answer) > 16 * MEBIBYTE for answer in answers)


def test_a_stream_with_two_unanswered_chunks_passes_a_slow_reader(through):
    size, count = 4 * MEBIBYTE, 16
    request = samples.rotary(numpy.ones((1, size * count // 16384, 32, 128)), rotary_dim=128)
    stream = Exchange(through)
    stream.open(request)
    for number in range(count + 2):
        if number < count:
            stream.send(rotary_pb2.OPERAND_QUERY, number * size, request.q.tensor.data[number * size:(number + 1) * size])
        if number >= 2:
            time.sleep(0.05)
            next(stream.answers)
    assert stream.end() == []


def test_strangers_are_refused(server, certificates, tmp_path):
    (tmp_path / "other").mkdir()
    unknown = Certificates(tmp_path / "other")
    with Front(tmp_path, certificates, [server], certificates.authority) as front:
        for credentials in (None, certificates.credentials(), certificates.credentials(unknown)):
            with Client(front.port, APART, credentials) as client, pytest.raises(grpc.RpcError) as error:
                client.call("ApplyRotary", samples.rotary())
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        with Client(front.port, APART, certificates.credentials(certificates)) as client:
            client.call("ApplyRotary", samples.rotary())


class Metadata(grpc.GenericRpcHandler):
    """A server that is healthy, and answers any other call with its metadata as JSON."""

    def service(self, details):
        answer = b"\x08\x01" if "Health" in details.method else json.dumps(list(details.invocation_metadata)).encode()
        return grpc.unary_unary_rpc_method_handler(lambda request, context: answer)


def test_a_caller_cannot_say_who_it_is(certificates, tmp_path):
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=(Metadata(),))
    server.add_insecure_port(f"unix:{tmp_path}/socket")
    server.start()
    false = ("forwarded", "x-forwarded-for", "x-forwarded-client-cert", "x-posenc-peer", "x-posenc-client-cert")
    with Front(tmp_path, certificates, [tmp_path / "socket"]) as front:
        for address, true in (front.port, r"ipv4:127\.0\.0\.1:\d+"), (front.other_address, r"ipv6:%5B::1%5D:\d+"):
            with Client(address, APART, certificates.credentials()) as client:
                ask = client.channel.unary_unary("/test/Ask")
                metadata = json.loads(ask(b"", timeout=SECONDS, metadata=[(name, "x") for name in (*false, "x-kept")]))
            assert [name for name, value in metadata if value == "x"] == ["x-kept"]
            [peer] = [value for name, value in metadata if name in false]  # the front's own
            assert re.fullmatch(true, peer)
    server.stop(None)


def test_a_caller_behind_the_front_has_its_own_identity(server_program, certificates, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"identities": [{"name": "known", "certificates": ["dns:caller"], "allow": ["compute"]}]}))
    with ServerBehind(server_program, tmp_path, tmp_path / "socket", "--policy", policy, "--log-level", "debug") as behind:
        with Front(tmp_path, certificates, [behind], certificates.authority) as front, \
                Client(front.port, APART, certificates.credentials(certificates)) as client:
            client.call("ApplyRotary", samples.rotary())
            assert client.refusal("StreamTable", samples.stream()).reason == "NOT_ALLOWED"
        with Front(tmp_path, certificates, [behind]) as front, \
                Client(front.port, APART, certificates.credentials()) as client:
            assert client.refusal("ApplyRotary", samples.rotary()).reason == "NO_CREDENTIALS"
        assert re.search(r"peer=ipv4:127\.0\.0\.1:\d+ identity=known", behind.log_with("identity=known"))


def test_a_source_has_few_connections(server, certificates, tmp_path):
    with Front(tmp_path, certificates, [server]) as front, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(("127.0.0.1", front.port), SECONDS, ("127.0.0.2", 0)))
                       for _ in range(17)]
        closed, _, _ = select.select(connections, [], [], SECONDS)
        assert len(closed) == 1
        with Client(front.port, APART, certificates.credentials()) as client:
            client.call("ApplyRotary", samples.rotary())


def test_one_source_cannot_take_all_places_of_a_server(server, tmp_path):
    with Front(tmp_path, None, [server]) as front, contextlib.ExitStack() as stack:
        streams = b"".join(headers_of(stream, "/inference.GRPCInferenceService/ModelStreamInfer") for stream in range(1, 64, 2))
        for _ in range(CONNECTIONS):
            stack.enter_context(connect(front.port, 0)).sendall(streams)
        with Client(server.port) as client:  # each stream has a connection to the server
            wait_until(lambda: client.info().counters.open_connections >= 64, "the streams have not begun")
        with Client(front.port, APART) as client:
            calls = [client.method("ApplyRotary").future(LARGE, timeout=SECONDS) for _ in range(12)]
            assert [call.code() for call in calls] == [grpc.StatusCode.OK] * len(calls)


def test_calls_without_a_server_may_be_retried(certificates, tmp_path):
    with Front(tmp_path, certificates, [tmp_path / "nobody"]) as front, \
            Client(front.port, APART, certificates.credentials()) as client:
        infer = client.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        requests = queue.Queue()
        for call in (lambda: client.call("ApplyRotary", samples.rotary()), lambda: client.call("ApplyRotary", LARGE),
                     lambda: next(infer(iter(requests.get, None), timeout=SECONDS))):
            for _ in range(5):
                with pytest.raises(grpc.RpcError) as error:
                    call()
                assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        for _ in range(5):
            requests.put(None)


def test_a_watch_of_the_health_takes_no_place(through):
    with pytest.raises(grpc.RpcError) as error:  # with this code, gRPC's clients do without
        next(through.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=SECONDS))
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


class Callers(contextlib.AbstractContextManager):
    """Calls on four connections until the end of the context, and keeps the errors."""

    def __init__(self, front, credentials, pause=0.002):
        self.errors, self.answered = [], 0
        self._stop, self._pause = threading.Event(), pause
        self._threads = [threading.Thread(target=self._run, args=(front.port, credentials)) for _ in range(4)]
        for thread in self._threads:
            thread.start()

    def _run(self, port, credentials):
        with Client(port, APART, credentials) as client:
            while not self._stop.is_set():
                try:
                    client.call("ApplyRotary", samples.rotary(numpy.ones((1, 64, 4, 64)), rotary_dim=64))
                    self.answered += 1
                except grpc.RpcError as error:
                    self.errors.append(error)
                self._stop.wait(self._pause)

    def wait_for_more(self, count=200):
        target = self.answered + count
        wait_until(lambda: self.answered >= target, f"the callers do not get on: {self.errors[-3:]}")

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def start(server_program, tmp_path):
    """A function that starts a server on a Unix socket of that name."""
    with contextlib.ExitStack() as stack:
        def start(name, *flags):
            directory = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
            directory.mkdir()
            return stack.enter_context(ServerBehind(server_program, directory, tmp_path / f"{name}.socket", *flags))
        yield start


@pytest.fixture
def first(start):
    # The notice is many times the second between two health checks.
    return start("first", "--drain-notice", "10")


@pytest.fixture
def callers(start, first, certificates, tmp_path):
    """Callers of two servers behind one front."""
    second = start("second")
    with Front(tmp_path, certificates, [first, second]) as front, \
            Callers(front, certificates.credentials()) as callers:
        for server in (first, second):
            wait_until_it_serves(server)
        yield callers


def wait_until_it_serves(server):
    with Client(server.port, APART) as client:
        begin, own = client.info().counters.requests_started, itertools.count(1)  # these calls are counted, too
        wait_until(lambda: client.info().counters.requests_started - next(own) > begin + 100, "the front sends no calls to this server")


def test_a_draining_server_gets_no_calls_and_no_call_fails(start, first, callers):
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    callers.wait_for_more()
    wait_until_it_serves(start("first"))
    assert callers.errors == []


def test_callers_of_a_killed_server_may_retry(start, first, callers):
    first.kill()
    callers.wait_for_more()
    wait_until_it_serves(start("first"))
    # Only calls that were in flight have failed: each caller's, and one more if HAProxy had not yet noticed the end of
    # another connection.
    assert len(callers.errors) <= 8 and {error.code() for error in callers.errors} <= RETRIED


def test_callers_are_answered_again_after_their_only_server_was_away(start, certificates, tmp_path):
    """They go on calling: with ten thousand answers of the front in a few seconds, as many as would be resets."""
    only = start("only")
    with Front(tmp_path, certificates, [only]) as front, Callers(front, certificates.credentials(), pause=0) as callers:
        callers.wait_for_more()
        only.kill()
        wait_until(lambda: len(callers.errors) > 10_000 or callers.errors and "429" in callers.errors[-1].details(),
                   "the callers do not get on")
        wait_until_it_serves(start("only"))
    assert {error.code() for error in callers.errors} <= RETRIED

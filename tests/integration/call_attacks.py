"""Attacks by calls and connections. Each takes the port of a server, 127.0.0.1, and an event, and returns threads that attack
it until the event is set."""

import contextlib
import itertools
import json
import pathlib
import random
import socket
import ssl
import tempfile
import threading

import grpc
import h2.events
import h2.exceptions
import http2_attacks
import mutations
import numpy
import samples
from bare_http2 import ShutWindow, Uploader
from certificates import slow_chain
from client import APART, SERVICE, Client
from grpc_peers_pb2 import HealthCheckRequest, ServerReflectionRequest
from http2_attacks import DATA, RST_STREAM, SETTINGS, WINDOW_UPDATE, call, frame
from http_attacks import HTTP_ATTACKS
from inference_client import InferenceClient
from posenc.v1 import relative_pb2, rotary_pb2, service_pb2
from round_attacks import (CONNECTIONS, calls_without_pause, calls_without_te, decode_steps, json_messages,
                           messages_without_pause, new_connections, refused_calls, refused_messages, valid_messages)
from tensors import INT32, tensor

MEBIBYTE = 1 << 20
STEPS_PER_SECOND = 50  # of the honest caller


def repeat(port, stop, method, make, threads=4, pause=0.0):
    """Makes calls on several connections until `stop` is set; their outcome does not matter."""
    def run(number):
        chance = random.Random(number)
        with Client(port, APART) as client:
            while not stop.is_set():
                with contextlib.suppress(grpc.RpcError):
                    client.call(method, make(chance), timeout=5)
                stop.wait(pause)
    return [threading.Thread(target=run, args=(number,)) for number in range(threads)]


def hold(port, stop, make, connections):
    """Keeps what make(port) opens until `stop` is set."""
    def run():
        with contextlib.ExitStack() as stack:
            for _ in range(connections):
                if not stop.is_set():
                    with contextlib.suppress(OSError, AssertionError):
                        stack.enter_context(make(port))
            stop.wait()
    return [threading.Thread(target=run)]


def slow_values(port, stop):
    """48 bytes that ask for sines of angles that need more than float64."""
    return repeat(port, stop, "GenerateTable", lambda _: samples.table(count=131072, dtype=samples.FP64, offset=2**52))


def slow_tables(port, stop):
    """Small tables of slow values, 90 calls in flight on each of ten connections."""
    request = samples.table(count=512, dtype=samples.FP64, offset=2**52).SerializeToString()

    def run():
        places = threading.Semaphore(90)
        with Client(port, APART) as client:
            while not stop.is_set():
                if places.acquire(timeout=0.1):
                    call = client.method("GenerateTable").future(request, timeout=60)
                    call.add_done_callback(lambda _: places.release())
    return [threading.Thread(target=run) for _ in range(10)]


def give_up(port, stop, *paths):
    """Calls of these methods on eight connections, 100 in flight on each. The callers give up before an answer can come."""
    request = samples.table(count=65536, dtype=samples.FP64, offset=2**52).SerializeToString()

    def run():
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Client(port, APART)) for _ in range(8)]
            methods = [client.channel.unary_unary(path) for client in clients for path in paths]
            places = threading.Semaphore(100 * len(clients))
            for method in itertools.cycle(methods):
                if stop.is_set():
                    break
                if places.acquire(timeout=0.1):
                    call = method.future(request, timeout=0.05)
                    call.add_done_callback(lambda _: places.release())
    return [threading.Thread(target=run)]


def short_deadlines(port, stop):
    """Slow tables whose callers give up before an answer can come."""
    return give_up(port, stop, f"/{SERVICE.full_name}/GenerateTable")


def short_unknown_calls(port, stop):
    """Calls of a method that does not exist, whose callers give up at once."""
    return give_up(port, stop, "/a.B/C")


def short_streams(port, stop):
    """Streams of rotations and of inference, whose callers give up at once."""
    return give_up(port, stop, f"/{SERVICE.full_name}/StreamApplyRotary", "/inference.GRPCInferenceService/ModelStreamInfer")


def long_calls(port, stop):
    """Long calls of the honest caller's address, and always a few small ones of another address."""
    small = samples.table(count=256, dtype=samples.FP64, offset=2**52)

    def run():
        ends = contextlib.suppress(OSError, AssertionError, h2.exceptions.ProtocolError)
        with ends, ShutWindow(port, 2**30, "127.0.0.2") as client:
            while not stop.is_set():
                client.wait_for(h2.events.StreamEnded, client.call("GenerateTable", small))
    return [*slow_values(port, stop)[:1], *(threading.Thread(target=run) for _ in range(8))]


def slow_scales(port, stop):
    """The scales of xPos in FP64."""
    request = samples.table(count=131072, dtype=samples.FP64)
    request.rotary.settings.xpos.CopyFrom(rotary_pb2.Xpos(scale_base=1e-3, centre=5))
    request.operand = rotary_pb2.OPERAND_KEY
    return repeat(port, stop, "GenerateTable", lambda _: request)


def segments(port, stop):
    """Messages whose parsed form takes fifty times their bytes."""
    request = samples.repeated_segments(rotary_pb2.PositionSegment(line=rotary_pb2.PositionLine(count=1)))
    data = request.SerializeToString()
    return repeat(port, stop, "GenerateTable", lambda _: data)


def single_keys(port, stop):
    """A bias of one key, whose positions take more than the answer."""
    request = samples.masked_single_key()
    return repeat(port, stop, "GenerateBias", lambda _: request)


def long_rows(port, stop):
    """Scores of 650,000 keys, each of which takes 28 bytes of working memory."""
    method = relative_pb2.RelativeMethod(cope=relative_pb2.Cope(position_embeddings=samples.weights(2, 1)))
    request = samples.scores(method, 1, 1, 650_000, 1, samples.BF16, query_offset=0)
    return repeat(port, stop, "RelativeScores", lambda _: request)


def scattered_positions(port, stop):
    """Scores in which every query and key have another distance."""
    queries, keys, dim = 32, 4096, 128
    method = relative_pb2.RelativeMethod(shaw=relative_pb2.Shaw(
        table=samples.weights(256 * queries, dim, dtype=samples.BF16), order=relative_pb2.SHAW_ORDER_KEY_MINUS_QUERY,
        clip=True, before=0, key_term=True))
    request = samples.scores(
        method, 1, queries, keys, dim, samples.BF16, query_positions=tensor(-256 * numpy.arange(queries), INT32),
        key_positions=tensor(numpy.arange(keys) % 256, INT32))
    return repeat(port, stop, "RelativeScores", lambda _: request)


def large_answers(port, stop):
    """27 bytes that ask for as much as an answer may hold, eight at a time."""
    return repeat(port, stop, "GenerateTable", lambda _: samples.table(count=8 * MEBIBYTE // 32), threads=8)


def queued_calls(port, stop):
    """Slow calls with deadlines of a minute, more than can be computed in that time."""
    request = samples.table(count=131072, dtype=samples.FP64, offset=2**52)

    def run():
        with Client(port, APART) as client:
            calls = [client.method("GenerateTable").future(request, timeout=60) for _ in range(90)]
            stop.wait()
            for call in calls:
                call.cancel()
    return [threading.Thread(target=run)]


def many_inputs(port, stop):
    """Requests of the Open Inference Protocol with millions of empty inputs."""
    request = b"\x2a\x00" * (4 * MEBIBYTE - 1000)

    def run():
        with InferenceClient(port) as client:
            while not stop.is_set():
                with contextlib.suppress(grpc.RpcError):
                    client.method("ModelInfer")(request, timeout=5)
    return [threading.Thread(target=run) for _ in range(4)]


def unread_answers(port, stop):
    """Callers that read nothing."""
    class Unread(ShutWindow):
        def __init__(self, to):
            super().__init__(to)
            for _ in range(90):
                self.call("GenerateTable", samples.table(count=10_000))
    return hold(port, stop, Unread, 4)


class Silent(ShutWindow):
    """A connection with 90 calls whose first message never comes."""

    def __init__(self, port, method):
        super().__init__(port)
        for _ in range(90):
            self.begin(method)
        self.flush()


def silent_streams(port, stop):
    """Streams whose first message never comes."""
    return hold(port, stop, lambda to: Silent(to, "StreamApplyRotary"), 12)


def hold_waiting_streams(port, stop, addresses):
    """Keeps streams that have begun and wait, of each address more than may be in flight."""
    header = service_pb2.StreamApplyRotaryRequest(header=samples.rotary())
    header.header.q.tensor.ClearField("data")

    class Waiting(ShutWindow):
        def __init__(self, to, address):
            super().__init__(to, address=address)
            for _ in range(90):
                self.call("StreamApplyRotary", header, end=False)
    return [thread for address in addresses for thread in hold(port, stop, lambda to, own=address: Waiting(to, own), 24)]


def waiting_streams(port, stop):
    """Streams of another address that have begun and wait: more than may be in flight."""
    return hold_waiting_streams(port, stop, ["127.0.0.2"])


def waiting_addresses(port, stop):
    """The same of three addresses."""
    return hold_waiting_streams(port, stop, ["127.0.0.2", "127.0.0.3", "127.0.0.4"])


def idle_streams(port, stop):
    """Streams of the Open Inference Protocol without messages, which need no admission."""
    return hold(port, stop, lambda to: Silent(to, "/inference.GRPCInferenceService/ModelStreamInfer"), 200)


def unread_information(port, stop):
    """Callers that do not read health and information, which need no admission."""
    class Unread(ShutWindow):
        def __init__(self, to):
            super().__init__(to)
            for method in ("/grpc.health.v1.Health/Check", "GetServerInfo", "/inference.GRPCInferenceService/ServerLive"):
                for _ in range(30):
                    self.call(method, service_pb2.GetServerInfoRequest())
    return hold(port, stop, Unread, 200)


def unread_refusals(port, stop):
    """Callers whose sockets are full of an answer, and who then have calls refused after their first messages."""
    largest = 2**31 - 1
    begin = (http2_attacks.PREFACE + frame(SETTINGS, 0, 0, b"\0\4" + largest.to_bytes(4, "big")) +
             frame(WINDOW_UPDATE, 0, 0, (largest - 65535).to_bytes(4, "big")) +
             call(1, f"/{SERVICE.full_name}/StreamTable", samples.stream(count=2**31 - 1, rotary_dim=128, rows_per_tile=32)))
    go_on = frame(RST_STREAM, 0, 1, bytes((0, 0, 0, 8))) + b"".join(
        call(stream, "/grpc.health.v1.Health/Watch", HealthCheckRequest(service="x" * 300)) for stream in range(3, 200, 2))

    def run():
        with contextlib.ExitStack() as stack:
            connections = []
            for _ in range(CONNECTIONS):
                connections.append(stack.enter_context(socket.socket()))
                connections[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                connections[-1].settimeout(1)
                connections[-1].bind(("127.0.0.2", 0))
                connections[-1].connect(("127.0.0.1", port))
            for data in (begin, go_on):
                for connection in connections:
                    with contextlib.suppress(OSError):
                        connection.sendall(data)
                stop.wait(0.3)
            stop.wait()
    return [threading.Thread(target=run)]


def long_names(port, stop):
    """Calls of nearly 8 MiB of request_id, whose answers nobody reads."""
    request = samples.rotary()
    request.hints.request_id = "x" * (8 * MEBIBYTE - 1000)

    class Unread(Uploader):
        def __init__(self, to):
            super().__init__(to, "ApplyRotary", request, window=0)
            while self.pump(len(self.bytes)) or self.sent < len(self.bytes):
                if stop.wait(0.001) or self.end is not None:
                    return
    return hold(port, stop, Unread, 40)


def unfinished_messages(port, stop):
    """Requests without their last byte."""
    request = samples.rotary(numpy.ones((1, 1024, 4, 128)), rotary_dim=128)

    class Unfinished(Uploader):
        def __init__(self, to):
            super().__init__(to, "ApplyRotary", request)
            self.pump(len(self.bytes) - 1)
    return hold(port, stop, Unfinished, 64)


def reflection_names(port, stop):
    """Reflection of a name of several MiB."""
    question = ServerReflectionRequest(file_containing_symbol="x" * (7 * MEBIBYTE))

    def run():
        with Client(port, APART) as client:
            method = client.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                                  ServerReflectionRequest.SerializeToString, bytes)
            while not stop.is_set():
                with contextlib.suppress(grpc.RpcError):
                    list(method(iter([question] * 4), timeout=5))
    return [threading.Thread(target=run) for _ in range(4)]


def reflection_questions(port, stop):
    """Reflection without waiting for answers: of a name of 2,000 parts, and the service's."""
    names = ("a." * 2043)[:4085], *[SERVICE.full_name] * 15  # the streams that one address may have

    def run(name):
        question = ServerReflectionRequest(file_containing_symbol=name)
        with Client(port, APART) as client:
            method = client.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                                  ServerReflectionRequest.SerializeToString, bytes)
            while not stop.is_set():
                questions = itertools.takewhile(lambda _: not stop.is_set(), itertools.repeat(question))
                with contextlib.suppress(grpc.RpcError):
                    for _ in method(questions, timeout=30):
                        pass
    return [threading.Thread(target=run, args=(name,)) for name in names]


def health_names(port, stop):
    """Health of a name of several MiB."""
    question = HealthCheckRequest(service="x" * (7 * MEBIBYTE))

    def run():
        with Client(port, APART) as client:
            check = client.channel.unary_unary("/grpc.health.v1.Health/Check", HealthCheckRequest.SerializeToString, bytes)
            while not stop.is_set():
                with contextlib.suppress(grpc.RpcError):
                    check(question, timeout=5)
    return [threading.Thread(target=run) for _ in range(4)]


def novel_files(port, stop):
    """50 decode steps a second, each with another config.json of 1 MiB."""
    rows = samples.rotary()

    def make(chance):
        config = {"model_type": "llama", "hidden_size": 24, "num_attention_heads": 3, "rope_theta": 10000,
                  "padding": [chance.random() for _ in range(50)] * 1000}
        request = service_pb2.ApplyRotaryRequest()
        request.CopyFrom(rows)
        request.rotary.model.config_json = json.dumps(config).encode()[:MEBIBYTE - 1]
        return request
    return repeat(port, stop, "ApplyRotary", make, pause=4 / STEPS_PER_SECOND)


def failing_calls(port, stop):
    """Calls that fail, each of which is worth a line in the log."""
    return repeat(port, stop, "Explain", lambda _: b"\x0a\x00")


def strange_connections(port, stop):
    """Connections that send nothing, or what is not HTTP/2."""
    def run():
        chance = random.Random(1)
        with contextlib.ExitStack() as stack:
            for _ in range(300):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                with contextlib.suppress(OSError):
                    connection.sendall(chance.choice((b"", b"GET / HTTP/1.1\r\n\r\n", chance.randbytes(100))))
            stop.wait()
    return [threading.Thread(target=run)]


def many_connections(port, stop):
    """All connections that one address may have, and as many that are refused, again and again."""
    def run():
        while not stop.is_set():
            with contextlib.ExitStack() as stack:
                for _ in range(2 * CONNECTIONS):
                    if not stop.is_set():
                        with contextlib.suppress(OSError):
                            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5,
                                                                         source_address=("127.0.0.2", 0)))
                stop.wait(0.5)
    return [threading.Thread(target=run)]


def silent_calls(port, stop):
    """Calls whose only message never comes: more than gRPC should keep."""
    return hold(port, stop, lambda to: Silent(to, "ApplyRotary"), 50)


def mutated_calls(port, stop):
    """Random changes to legal requests of every RPC."""
    requests = mutations.seeds(pathlib.Path(__file__).parents[1] / "golden" / "configs")
    mutator = mutations.Mutator(random.Random(1), requests)
    unary = [(name, request) for name, request in requests if name != "StreamApplyRotary"]

    def run(number):
        chance = random.Random(number)
        with Client(port, APART) as client:
            while not stop.is_set():
                name, request = chance.choice(unary)
                with contextlib.suppress(grpc.RpcError):
                    client.call(name, mutator.mutate(request), timeout=0.5)
    return [threading.Thread(target=run, args=(number,)) for number in range(4)]


def client_chains(port, stop):
    """Strangers who show long chains of certificates, over and over."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with tempfile.TemporaryDirectory() as directory:
        context.load_cert_chain(*slow_chain(pathlib.Path(directory), 7 << 10))

    def run():
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(
                    ("127.0.0.1", port), timeout=5, source_address=("127.0.0.2", 0)) as connection:
                context.wrap_socket(connection).recv(1)
    return [threading.Thread(target=run) for _ in range(64)]


# Floods and what is not gRPC: the server alone does not withstand them.
THROUGH_PROXY = (short_deadlines, short_unknown_calls, short_streams, calls_without_te, calls_without_pause, new_connections,
                 messages_without_pause, strange_connections, many_connections, *http2_attacks.ATTACKS)
ATTACKS = (slow_values, slow_tables, long_calls, slow_scales, segments, single_keys, long_rows, scattered_positions,
           large_answers, queued_calls, many_inputs, unread_answers, silent_streams, waiting_streams, waiting_addresses,
           idle_streams, unread_information, unread_refusals, refused_calls, decode_steps, refused_messages, valid_messages,
           json_messages, long_names, unfinished_messages, reflection_names, reflection_questions, health_names, novel_files,
           failing_calls, silent_calls, mutated_calls, client_chains, *HTTP_ATTACKS, *THROUGH_PROXY)

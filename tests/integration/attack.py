"""attack [--seconds N] [NAME...]: attacks a server with small limits, and measures an honest caller beside each attack.
  scripts/attack                      every attack, ten seconds each
  scripts/attack --seconds 2 segments one attack, shorter
  scripts/attack --direct rapid_reset an attack on HTTP/2 without the front
Attacks on HTTP/2 itself go through HAProxy (deploy/haproxy.cfg). Most of them succeed against the server alone, because of
faults of its HTTP/2 library: docs/operating.md, "Facing strangers".
The honest caller makes 50 decode steps a second on a connection of its own. An attack passes if
- each of these steps is answered correctly, and the 99th percentile of their times, from the intended start and with
  retries, is below a second,
- the anonymous resident memory stays within what docs/operating.md adds up, that of HAProxy within 384 MiB,
- SIGTERM during the attack ends the server with exit code 0 within --drain-timeout.
Prints a line for each attack, with the honest caller's 99th percentile and longest wait, and the growth of memory; the last line is "N passed, M failed"."""

import argparse
import contextlib
import json
import multiprocessing
import pathlib
import random
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time

from conftest import BUILD  # first: it makes the messages importable
import grpc
import http2_attacks
import mutations
import numpy
import samples
from bare_http2 import ShutWindow, Uploader
from certificates import Authority, slow_chain
from client import APART, SERVICE, Client
from front import PROGRAM, Certificates, Front, ServerBehind
from grpc_peers_pb2 import HealthCheckRequest, ServerReflectionRequest
from http2_attacks import RST_STREAM, SETTINGS, WINDOW_UPDATE, call, frame
from inference_client import InferenceClient
from posenc.v1 import relative_pb2, rotary_pb2, service_pb2
from server_process import SANITIZER_BYTES, ServerProcess
from tensors import INT32, tensor

MEBIBYTE = 1 << 20
DRAIN_SECONDS = 10
CONNECTIONS = 256  # of one address: the default of a server with one receiving thread
SMALL = ("--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB", "--max-in-flight-bytes", "32MiB",
         "--table-cache-bytes", "8MiB", "--retry-pushback", "20", "--receive-timeout", "5", "--send-timeout", "5",
         "--drain-timeout", str(DRAIN_SECONDS), "--max-connections-per-peer", str(CONNECTIONS))
# As docs/operating.md adds it up: calls in flight with the reserve, what is not charged of 1,024 calls, gRPC's quota,
# free answer buffers, plans and tables, two heaps of freed memory, and 96 MiB for the rest.
BOUND = (34 + 32 + 96 + 8 + 16 + 8 + 16 + 96) * MEBIBYTE + SANITIZER_BYTES
# 256 MiB of buffers that four sources may hold, and connections and calls.
FRONT_BOUND = 384 * MEBIBYTE
STEPS_PER_SECOND = 50


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


def waiting_streams(port, stop):
    """Streams of another address that have begun and wait: more than may be in flight."""
    header = service_pb2.StreamApplyRotaryRequest(header=samples.rotary())
    header.header.q.tensor.ClearField("data")

    class Waiting(ShutWindow):
        def __init__(self, to):
            super().__init__(to, address="127.0.0.2")
            for _ in range(90):
                self.call("StreamApplyRotary", header, end=False)
    return hold(port, stop, Waiting, 24)


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
             call(1, f"/{SERVICE.full_name}/StreamTable", samples.stream(count=2**40, rotary_dim=128, rows_per_tile=32)))
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


def refused_calls(port, stop):
    """As many calls at once as one address may send, all of which are refused, over and over."""
    wrong = samples.rotary(rotary_dim=7)

    def run():
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):  # the server ends before the attack
            connections = []
            for _ in range(CONNECTIONS):
                connections.append(stack.enter_context(socket.create_connection(
                    ("127.0.0.1", port), timeout=5, source_address=("127.0.0.2", 0))))
                connections[-1].sendall(http2_attacks.PREFACE + frame(SETTINGS))
            answers = [stack.enter_context(connection.makefile("rb")) for connection in connections]
            first = 1
            while not stop.is_set():
                calls = b"".join(call(stream, f"/{SERVICE.full_name}/ApplyRotary", wrong)
                                 for stream in range(first, first + 200, 2))
                for connection in connections:
                    connection.sendall(calls)
                for answer in answers:
                    http2_attacks.read_ends(answer, 100)
                first += 200
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


ATTACKS = (slow_values, slow_scales, segments, single_keys, long_rows, scattered_positions, large_answers, queued_calls,
           many_inputs, unread_answers, silent_streams, waiting_streams, idle_streams, unread_information, unread_refusals,
           refused_calls, long_names, unfinished_messages, reflection_names, health_names, novel_files, failing_calls, strange_connections,
           many_connections, silent_calls, mutated_calls, client_chains)


def be_honest(port, seconds, results, authority):
    """Makes decode steps at a fixed rate. Puts their times, from the intended starts, or what went wrong."""
    times, begin = [], time.monotonic()
    with Client(port, APART, authority and grpc.ssl_channel_credentials(authority)) as client:
        for step in range(int(seconds * STEPS_PER_SECOND)):
            intended = begin + step / STEPS_PER_SECOND
            if time.monotonic() - intended > 30:
                return results.put(f"only {step} answers in {seconds + 30:.0f} s")
            time.sleep(max(0.0, intended - time.monotonic()))
            request = samples.rotary(offset=step)
            while True:
                try:
                    answer = client.call("ApplyRotary", request, timeout=30)
                    break
                except grpc.RpcError as error:
                    if error.code() != grpc.StatusCode.UNAVAILABLE:
                        return results.put(str(error))
                    time.sleep(0.02)
            if len(answer.q.data) != len(request.q.tensor.data):
                return results.put("a wrong answer")
            times.append(time.monotonic() - intended)
    return results.put(sorted(times))


class MemoryWatch(threading.Thread):
    """Keeps the largest growth of a process's anonymous resident memory."""

    def __init__(self, process, stop):
        super().__init__()
        self._process, self._stop_event = process, stop
        self._base, self.growth = process.anonymous_memory(), 0

    def run(self):
        while not self._stop_event.wait(0.005):
            self.growth = max(self.growth, self._process.anonymous_memory() - self._base)


def start(attack, program, directory, stack, fronted):
    """Returns a server, the front or None, the port for callers, and the authority of its certificate or None."""
    if attack is client_chains:
        authority = Authority(directory)
        certificate, key = authority.issue("server.example")
        server = ServerProcess(program, directory, *SMALL, "--tls-cert", certificate, "--tls-key", key,
                               "--tls-client-ca", authority.certificate, "--tls-client-auth", "optional")
        return server, None, server.port, authority.certificate
    if not fronted:
        server = ServerProcess(program, directory, *SMALL)
        return server, None, server.port, None
    server = ServerBehind(program, directory, directory / "socket", *SMALL)
    stack.callback(server.kill)
    certificates = Certificates(directory)
    front = stack.enter_context(Front(directory, certificates, [server.socket]))
    return server, front, front.port, certificates.authority


def run_attack(attack, program, seconds, direct=False):
    """Returns what is wrong (empty: nothing), the honest caller's 99th percentile and longest wait, and the growth of
    memory."""
    wrong, waits, watches = [], (0.0, 0.0), {}
    processes = multiprocessing.get_context("spawn")
    on_http2 = attack in http2_attacks.ATTACKS
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        server, front, port, authority = start(attack, program, pathlib.Path(directory), stack, on_http2 and not direct)
        pem = authority and authority.read_bytes()
        stop, watched = threading.Event(), threading.Event()
        threads = []
        try:
            with Client(port, APART, pem and grpc.ssl_channel_credentials(pem)) as client:
                client.call("ApplyRotary", samples.rotary())
            watches = [(name, MemoryWatch(process, watched), bound) for name, process, bound in
                       (("memory", server, BOUND), ("memory of HAProxy", front, FRONT_BOUND)) if process]
            results = processes.Queue()
            honest = processes.Process(target=be_honest, args=(port, seconds, results, pem), daemon=True)
            for _, watch, _ in watches:
                watch.start()
            threads = attack(http2_attacks.Target(port, authority) if on_http2 else port, stop)
            for thread in threads:
                thread.start()
            honest.start()
            times = results.get(timeout=seconds + 60)
            honest.join()
            if isinstance(times, str):
                wrong.append(f"the honest caller got {times}")
            else:
                waits = times[int(len(times) * 0.99)], times[-1]
                if waits[0] >= 1:
                    wrong.append(f"p99 is {waits[0]:.2f} s")
            watched.set()
            for name, watch, bound in watches:
                watch.join()
                if watch.growth > bound:
                    wrong.append(f"{name} grew by more than {bound >> 20} MiB")
            begin = time.monotonic()
            server.signal(signal.SIGTERM)
            code, drained = server.wait(), time.monotonic() - begin
            if code != 0:
                wrong.append(f"SIGTERM: exit code {code} after {drained:.1f} s")
            elif drained > DRAIN_SECONDS:
                wrong.append(f"the drain took {drained:.1f} s")
        finally:
            stop.set()
            watched.set()
            for thread in threads:
                thread.join()
            server.kill()
    return wrong, waits, [watch.growth for _, watch, _ in watches]


def describe(memory):
    """The growth of the server, and of HAProxy if it is there. MiB."""
    return " ".join(f"+{growth >> 20}" for growth in memory)


def main():
    parser = argparse.ArgumentParser("attack", usage="see scripts/attack --help", allow_abbrev=False)
    parser.format_help = lambda: f"{__doc__}\n"
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    known = {attack.__name__: attack for attack in (*ATTACKS, *(http2_attacks.ATTACKS if PROGRAM else ()))}
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no attack {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    failed = 0
    names = arguments.names or list(known)
    for name in names:
        wrong, (p99, longest), memory = run_attack(known[name], [BUILD / "bin" / "posenc-server"], arguments.seconds, arguments.direct)
        failed += bool(wrong)
        print(f"{name:20} {known[name].__doc__:75} p99 {1000 * p99:6.1f} ms  "
              f"longest {1000 * longest:6.1f} ms  memory {describe(memory):9} MiB  {'; '.join(wrong) or 'passed'}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

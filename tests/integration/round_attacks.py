"""Attacks by many calls or messages at once, over and over, from all connections that one address may have. As call_attacks."""

import collections
import contextlib
import itertools
import json
import socket
import subprocess
import threading

from conftest import BUILD
import http2_attacks
import numpy
import samples
from bare_http2 import framed
from client import SERVICE
from http2_attacks import DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, WINDOW_UPDATE, call, frame
from inference import service_pb2 as inference_pb2
from inference_client import infer
from posenc.v1 import service_pb2
from tensors import FP32

# Of one address, and of a connection: the defaults of a server with one receiving thread.
CONNECTIONS, CALLS = 64, 32
# A client sends this first if its connection shall take all answers.
BEGIN_WITH_WINDOWS = (http2_attacks.PREFACE + frame(SETTINGS, 0, 0, b"\0\4\x7f\xff\xff\xff") +
                      frame(WINDOW_UPDATE, 0, 0, (2**31 - 65536).to_bytes(4, "big")))


def streams(number):
    """The streams of the calls of a round."""
    return range(2 * CALLS * number + 1, 2 * CALLS * (number + 1), 2)


def succeeds(step, argument):
    """False if the connection has ended."""
    try:
        step(argument)
    except OSError:
        return False
    return True


def call_in_rounds(port, stop, begin, make, read_answers):
    """Sends what make(round) gives over all connections that one address may have, reads the answers, and again. Goes on with
    those connections that are left, and connects again if there are none."""
    def run():
        while not stop.is_set():
            with contextlib.ExitStack() as stack:
                connections = []
                for _ in range(CONNECTIONS):
                    with contextlib.suppress(OSError):
                        connections.append(stack.enter_context(socket.create_connection(
                            ("127.0.0.1", port), timeout=30, source_address=("127.0.0.2", 0))))
                connections = [(connection, stack.enter_context(connection.makefile("rb"))) for connection in connections
                               if succeeds(connection.sendall, begin)]
                for number in itertools.count():
                    if stop.is_set() or not connections:
                        break
                    calls = make(number)
                    connections = [pair for pair in connections if succeeds(pair[0].sendall, calls)]
                    connections = [pair for pair in connections if succeeds(read_answers, pair[1])]
            stop.wait(0.01)
    return [threading.Thread(target=run)]


def refused_calls(port, stop):
    """As many calls at once as one address may send, all of which are refused, over and over."""
    request = samples.rotary(rotary_dim=7)

    def make(number):
        return b"".join(call(stream, f"/{SERVICE.full_name}/ApplyRotary", request) for stream in streams(number))
    return call_in_rounds(port, stop, BEGIN_WITH_WINDOWS, make, lambda answers: http2_attacks.read_ends(answers, CALLS))


WITHOUT_TE = http2_attacks.block([header for header in http2_attacks.CALL if header[0] != b"te"] +
                                 [(b"x%d" % n, b"") for n in range(400)])


def without_te(number):
    """The calls of a round, with 400 headers but without `te`: gRPC refuses them itself."""
    return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, stream, WITHOUT_TE)
                    for stream in streams(number))


def calls_without_te(port, stop):
    """Calls with 400 headers but without `te`, which gRPC refuses itself, over and over."""
    return call_in_rounds(port, stop, BEGIN_WITH_WINDOWS, without_te, lambda answers: http2_attacks.read_ends(answers, CALLS))


def send_without_pause(port, stop, begin, make):
    """Sends what make(round) gives over one connection, over and over, and waits for no answers."""
    def run():
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(  # the server may close it
                    ("127.0.0.1", port), timeout=30, source_address=("127.0.0.2", 0)) as connection:
                reader = threading.Thread(target=read_all, args=(connection,))
                reader.start()
                try:
                    connection.sendall(begin)
                    for number in itertools.count():
                        if stop.is_set():
                            break
                        connection.sendall(make(number))
                finally:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                    reader.join()
    return [threading.Thread(target=run)]


def calls_without_pause(port, stop):
    """Calls without `te` on one connection, which waits for no answers."""
    return send_without_pause(port, stop, BEGIN_WITH_WINDOWS, without_te)


def messages_without_pause(port, stop):
    """Messages on 32 streams of one connection, all of which are refused, and whose answers it does not wait for."""
    begin = BEGIN_WITH_WINDOWS + b"".join(
        http2_attacks.headers_of(stream, "/inference.GRPCInferenceService/ModelStreamInfer") for stream in streams(0))
    messages = b"".join(frame(DATA, 0, stream, framed(inference_pb2.ModelInferRequest()) * 400) for stream in streams(0))
    return send_without_pause(port, stop, begin, lambda _: messages)


def read_all(connection):
    with contextlib.suppress(OSError):
        while connection.recv(1 << 16):
            pass


def decode_steps(port, stop):
    """As many decode steps of 10 KB at once as one address may make, by gRPC clients."""
    clients = 16  # of which the proxy serves four

    def run():
        command = [BUILD / "bin" / "posenc", "load", "--server", f"127.0.0.1:{port}", "--connections", CONNECTIONS // clients,
                   "--concurrency", CONNECTIONS * CALLS // clients, "--duration", "1h", "--quiet"]
        with subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as load:
            stop.wait()
            load.kill()
    return [threading.Thread(target=run) for _ in range(clients)]


def new_connections(port, stop):
    """New connections all the time, each with as many calls as it may send, which need no admission."""
    calls = http2_attacks.PREFACE + frame(SETTINGS) + b"".join(
        call(stream, f"/{SERVICE.full_name}/GetServerInfo", service_pb2.GetServerInfoRequest()) for stream in streams(0))

    def run():
        connections = collections.deque()
        while not stop.is_set():
            with contextlib.suppress(OSError):
                connections.append(socket.create_connection(("127.0.0.1", port), timeout=5, source_address=("127.0.0.2", 0)))
                connections[-1].sendall(calls)
            if len(connections) == 100:
                connections.popleft().close()
        for connection in connections:
            connection.close()
    return [threading.Thread(target=run)]


def stream_in_rounds(port, stop, make, count):
    """Sends so many messages make(number) at once on a stream of each connection that one address may have, over and over."""
    begin = BEGIN_WITH_WINDOWS + http2_attacks.headers_of(1, "/inference.GRPCInferenceService/ModelStreamInfer")

    def frames(turn):
        data = b"".join(framed(make(count * turn + n)) for n in range(count))
        return b"".join(frame(DATA, 0, 1, data[at:at + http2_attacks.FRAME_BYTES])
                        for at in range(0, len(data), http2_attacks.FRAME_BYTES))
    return call_in_rounds(port, stop, begin, frames, lambda answers: http2_attacks.read_messages(answers, count))


def refused_messages(port, stop):
    """The same with messages of streams."""
    return stream_in_rounds(port, stop, lambda _: inference_pb2.ModelInferRequest(model_name="none"), 100)


def rotate_one_row(settings, number):
    return infer("posenc.rotary", [("q", numpy.ones((1, 1, 1, 8)), FP32)], layout="BSHD", offset=number,
                 settings=json.dumps(settings, separators=(",", ":")))


def valid_messages(port, stop):
    """The same with messages that are answered."""
    settings = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "rotary_dim": 8,
                "input_pairing": "PAIRING_HALF_SPLIT"}
    return stream_in_rounds(port, stop, lambda number: rotate_one_row(settings, number), 100)


def json_messages(port, stop):
    """The same with settings of 15 KB, which take long to parse."""
    settings = {"rope_parameters": {"mrope_section": [1] * 7300}}
    return stream_in_rounds(port, stop, lambda number: rotate_one_row(settings, number), 2)

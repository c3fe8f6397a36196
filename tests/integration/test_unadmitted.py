"""More calls without a first message than the server keeps."""

import contextlib
import socket

import samples
from bare_http2 import framed
from client import APART, SECONDS, SERVICE, Client
from http2_attacks import DATA, END_STREAM, FRAME_BYTES, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame, headers_of
from test_lifecycle import wait_until

ROTATE = f"/{SERVICE.full_name}/ApplyRotary"
# The least that there may be, of which an address alone gets three quarters; the default of --max-concurrent-streams.
MOST, OF_CONNECTION = 1024, 32


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port), SECONDS, ("127.0.0.2", 0))
    connection.sendall(PREFACE + frame(SETTINGS))
    return connection


def begins_with(answers):
    """Kind and END_STREAM of the first frame of the answer to the connection's one call."""
    while True:
        head = answers.read(9)
        assert len(head) == 9, "the connection ended"
        answers.read(int.from_bytes(head[:3], "big"))
        if head[3] in (HEADERS, RST_STREAM) and int.from_bytes(head[5:], "big") == 1:
            return head[3], head[4] & END_STREAM


def test_the_newest_of_an_address_are_refused(start_server):
    server = start_server("--max-in-flight-requests", "64")
    message = framed(samples.rotary())
    half = len(message) // 2
    assert len(message) < FRAME_BYTES
    with contextlib.ExitStack() as stack:
        # At the address of the others.
        uploading = stack.enter_context(connect(server.port))
        answers = stack.enter_context(uploading.makefile("rb"))
        uploading.sendall(headers_of(1, ROTATE) + frame(DATA, 0, 1, message[:half]))
        for _ in range(MOST * 3 // 4 // OF_CONNECTION + 1):
            other = stack.enter_context(connect(server.port))
            other.sendall(b"".join(headers_of(stream, ROTATE) for stream in range(1, 2 * OF_CONNECTION, 2)))
        with Client(server.port, APART) as client:
            wait_until(lambda: client.info().counters.requests_refused > 0, "nothing was refused")
            client.call("ApplyRotary", samples.rotary())
        uploading.sendall(frame(DATA, END_STREAM, 1, message[half:]))
        assert begins_with(answers) == (HEADERS, 0)  # an error would be in trailers, which end the stream

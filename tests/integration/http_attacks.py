"""Attacks over HTTP/1.1, on the port of --http-listen. As call_attacks."""

import contextlib
import json
import socket
import threading

import samples
from google.protobuf import json_format

MEBIBYTE = 1 << 20
CONNECTIONS = 16
PATH = b"POST /v2/models/posenc.%s/infer HTTP/1.1\r\nHost: a\r\n"
SETTINGS = json_format.MessageToJson(samples.rope_settings())


def request(body, name=b"rotary", *fields):
    return PATH % name + b"".join(field + b"\r\n" for field in fields) + b"Content-Length: %d\r\n\r\n" % len(body) + body


def connect(port, number):
    """Attackers have addresses of their own; 127.0.0.1 is another caller's."""
    return socket.create_connection(("127.0.0.1", port), 5, (f"127.0.0.{2 + number % 4}", 0))


def hold(port, stop, make, pause):
    """On many connections sends what make() gives, and reads nothing. Connects again whenever one ends."""
    def run(number):
        while not stop.is_set():
            with contextlib.suppress(OSError), connect(port, number) as connection:
                connection.settimeout(0.5)
                for data in make():
                    with contextlib.suppress(TimeoutError):
                        connection.sendall(data)
                    if stop.wait(pause):
                        return
    return [threading.Thread(target=run, args=(number,)) for number in range(CONNECTIONS)]


def repeated(*data):
    while True:
        yield from data


def slow_headers(port, stop):
    """Headers of HTTP that come byte by byte."""
    return hold(port, stop, lambda: repeated(b"G"), 0.1)


def many_fields(port, stop):
    """Headers of HTTP that do not end."""
    return hold(port, stop, lambda: (yield from [b"GET /v2 HTTP/1.1\r\nHost: a\r\n", *[b"a: b\r\n" * 1000] * 100]), 0.001)


def slow_bodies(port, stop):
    """Bodies of 8 MiB over HTTP that stop before their end."""
    return hold(port, stop, lambda: (yield from [PATH % b"rotary" + b"Content-Length: %d\r\n\r\n" % (8 * MEBIBYTE),
                                                 *[bytes(MEBIBYTE)] * 7, *[b"x"] * 1000]), 0.01)


def small_chunks(port, stop):
    """Bodies over HTTP in chunks of a byte."""
    return hold(port, stop, lambda: (yield from [PATH % b"rotary" + b"Transfer-Encoding: chunked\r\n\r\n",
                                                 *[b"1\r\nx\r\n" * 10_000] * 1000]), 0)


def pipelined(port, stop):
    """Requests over HTTP without a pause, whose answers nobody reads."""
    return hold(port, stop, lambda: repeated(b"GET /v2/models HTTP/1.1\r\nHost: a\r\n\r\n" * 1000), 0)


def unread_tensors(port, stop):
    """Tables of 4 MiB over HTTP that nobody reads."""
    body = json.dumps({"parameters": {"offset": 0, "count": 131_072, "dtype": "FP32", "form": "HALF_WIDTH", "settings": SETTINGS,
                                      "binary_data_output": True}}).encode()
    return hold(port, stop, lambda: repeated(request(body, b"table")), 0.01)


def json_numbers(port, stop):
    """8 MiB of short numbers in JSON, again and again."""
    numbers = b"[" + b"0," * (4 * MEBIBYTE - 200) + b"0]"
    body = b'{"inputs": [{"name": "q", "datatype": "FP64", "shape": [1], "data": %s}]}' % numbers
    return hold(port, stop, lambda: repeated(request(body)), 0)


def json_values(port, stop):
    """8 MiB of other values in JSON: levels, keys, texts."""
    kinds = [b"[" * (8 * MEBIBYTE - 10), b'{"parameters": {' + b",".join(b'"%x": 1' % n for n in range(600_000)) + b"}}",
             b'{"inputs": [' + b"{}," * (2 * MEBIBYTE) + b"{}]}", b'{"id": "' + b"\\u00e9" * MEBIBYTE + b'"}']
    return hold(port, stop, lambda: repeated(*(request(body) for body in kinds)), 0)


def new_http_connections(port, stop):
    """Connections over HTTP that ask once, or not at all."""
    def run(number):
        while not stop.is_set():
            with contextlib.suppress(OSError), connect(port, number) as connection:
                if number % 2:
                    connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    connection.recv(1000)
    return [threading.Thread(target=run, args=(number,)) for number in range(4)]


HTTP_ATTACKS = (slow_headers, many_fields, slow_bodies, small_chunks, pipelined, unread_tensors, json_numbers, json_values,
                new_http_connections)

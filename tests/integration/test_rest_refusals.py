"""What HTTP clients do wrong: each gets a clear error or a closed connection, and nothing hangs."""

import contextlib
import json
import signal
import socket
import threading
import time

import numpy
import pytest
import samples
from client import SECONDS, Client
from google.protobuf import json_format
from rest_client import Rest, binary, given, http_port, raw
from server_process import ServerProcess

SETTINGS = json_format.MessageToJson(samples.rope_settings())
Q = numpy.ones((1, 2, 1, 8), "f4")
PARAMETERS = {"layout": "BSHD", "offset": 3, "settings": SETTINGS}
PATH = "/v2/models/posenc.rotary/infer"
MIB = 1 << 20


@pytest.fixture(scope="module")
def server(server_program, tmp_path_factory):
    with ServerProcess(server_program, tmp_path_factory.mktemp("server"), "--http-listen", "127.0.0.1:0", "--receive-timeout",
                       "1", "--max-request-bytes", "1MiB", "--max-metadata-bytes", "4096") as server:
        yield server


@pytest.fixture(scope="module")
def port(server):
    return http_port(server)


@pytest.fixture
def rest(port):
    with Rest(port) as rest:
        yield rest


def request(**changes):
    return {"inputs": [given("q", Q)], "parameters": PARAMETERS, **changes}


def with_input(**changes):
    return request(inputs=[{**given("q", Q), **changes}])


def text(json_text):
    return f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(json_text)}\r\nConnection: close\r\n\r\n{json_text}".encode()


def parsed(answer):
    """Status, header and body of an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head.decode(), body


@pytest.mark.parametrize("verb, path, status, words", (
    ("GET", "/", 404, "path"), ("GET", "/v2/", 404, "path"), ("GET", "/v2/models/a/b/c", 404, "path"),
    ("GET", "/v2/models/%zz", 404, "path"), ("GET", "/v2/models//ready", 404, "path"), ("GET", "/v1/models", 404, "path"),
    ("GET", PATH, 405, "must be POST"), ("POST", "/v2/health/live", 405, "must be GET"),
    ("DELETE", "/v2/models/posenc.rotary", 405, "must be GET"), ("GET", "/v2/models/none", 404, "must be a model"),
    ("GET", "/v2/models/posenc.rotary/versions/2", 404, "model_version"),
    ("GET", "/v2/models/posenc.rotary/versions/x", 400, "must be a number")))
def test_paths_and_verbs(rest, verb, path, status, words):
    answer = rest.send(verb, path)
    assert answer.status == status and words in json.loads(answer.body)["error"], answer.body
    assert status != 405 or answer.headers["allow"] in words
    assert rest.json("GET", "/v2/health/live")["live"]


# JSON, and the field that its error names.
WRONG = {
    "[]": "request", "{": "", "": "", "{} x": "", '{"a": 1}': "a", '{"inputs": 3}': "inputs",
    '{"inputs": [3]}': "inputs[0]", '{"inputs": [{"nam": "q"}]}': "inputs[0].nam",
    '{"inputs": [], "inputs": []}': "inputs", '{"id": 7}': "id", '{"parameters": []}': "parameters",
    '{"parameters": {"offset": null}}': "parameters.offset", '{"parameters": {"offset": [1]}}': "parameters.offset",
    json.dumps(with_input(name="k")): "q", json.dumps(with_input(datatype="BYTES")): "inputs[0].data",
    json.dumps(with_input(datatype="INT64")): "inputs[0].data[0]", json.dumps(with_input(shape=[1, 2, 1, 7])): "inputs[0].data",
    json.dumps(with_input(shape=[1, 2, 1, "8"])): "inputs[0].shape[3]", json.dumps(with_input(shape=[1.0, 2, 1, 8])): "inputs[0].shape[0]",
    json.dumps(with_input(shape=[2**63, 2])): "inputs[0].shape[0]", json.dumps(with_input(shape=[2**62, 2**62, 1, 8])): "q.shape",
    json.dumps(with_input(shape=[-1, 2, 1, 8])): "q.shape", json.dumps(with_input(data="text")): "inputs[0].data",
    json.dumps(with_input(data=None)): "inputs[0].data", json.dumps(with_input(data=["1"] * 16)): "inputs[0].data",
    json.dumps(with_input(data=[1e39] + [0] * 15)): "inputs[0].data[0]", json.dumps(with_input(data=[True] * 16)): "inputs[0].data[0]",
    json.dumps(with_input(data=[{}])): "inputs[0].data", json.dumps(with_input(data=[[[1]]])): "inputs[0].data",
    json.dumps(with_input(data=[float("nan")] * 16)): "inputs[0].data",
    json.dumps(with_input(parameters={"binary_data_size": 4})): "inputs[0].data",
    json.dumps(with_input(parameters={"shared_memory_region": "a"})): "inputs[0].data",
    json.dumps(with_input(data=None, parameters={"binary_data_size": 4})): "inputs[0].parameters.binary_data_size",
    json.dumps(with_input(data=None, parameters={"binary_data_size": -1})): "inputs[0].parameters.binary_data_size",
    json.dumps(request(outputs=[{"name": "z"}])): "outputs[0].name",
    json.dumps(request(outputs=[{"name": "q", "parameters": {"classification": 3}}])): "q.parameters",
    json.dumps(request(parameters={**PARAMETERS, "layuot": 1})): "parameters", json.dumps(request(id="x" * 300)): "id",
    "[" * 100_000: "", '{"inputs": [{"data": ' + "[" * 100_000: "inputs[0].data",
}


@pytest.mark.parametrize("given_text, field", WRONG.items(), ids=lambda value: value[:40])
def test_json(rest, given_text, field):
    answer = rest.send("POST", PATH, given_text)
    said = json.loads(answer.body)
    assert answer.status == 400, (answer.status, said)
    assert said["error"] and said["reason"] and (not field or said.get("field", "").startswith(field)), said


def test_many_small_values_are_not_kept(rest):
    many = '{"parameters": {' + ",".join(f'"{n}": 1' for n in range(60_000)) + "}}"
    answer = rest.send("POST", PATH, many)
    assert answer.status == 400 and "10000 values" in json.loads(answer.body)["error"]


@pytest.mark.parametrize("length", ["0", "-1", "99999999", "x", "1e3", "18446744073709551616", "3"])
def test_lengths_of_the_json(rest, length):
    one, data = binary("q", Q)
    body = json.dumps(request(inputs=[one])).encode() + data
    answer = rest.send("POST", PATH, body, Inference_Header_Content_Length=length)
    assert answer.status == 400 and json.loads(answer.body)["error"]


@pytest.mark.parametrize("change", [-1, 1, 100])
def test_binary_bytes_that_are_not_there_or_too_many(rest, change):
    one, data = binary("q", Q)
    data = data[:change] if change < 0 else data + bytes(change)
    answer = rest.infer("posenc.rotary", request(inputs=[one]), [data], status=400)
    assert "binary_data_size" in answer["error"]


HTTP = {
    "garbage": (b"\x00\x01\x02\r\n\r\n", 400), "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "version": (b"GET /v2 HTTP/3.0\r\n\r\n", 400), "no version": (b"GET /v2\r\n\r\n", 400),
    "no colon": (b"GET /v2 HTTP/1.1\r\nHost a\r\n\r\n", 400), "bare LF": (b"GET /v2 HTTP/1.1\nHost: a\n\n", 400),
    "space before colon": (b"GET /v2 HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    "no host": (b"GET /v2 HTTP/1.1\r\n\r\n", 400), "two hosts": (b"GET /v2 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "two lengths": (b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "length of no number": (b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
    "negative length": (b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
    "length beside chunks": (b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % PATH.encode(), 400),
    "chunks of no size": (b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n" % PATH.encode(), 400),
    "a chunk that is too long": (b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" % PATH.encode(), 400),
    **{f"Transfer-Encoding: {coding}": (b"POST %s HTTP/%s\r\nHost: a\r\nTransfer-Encoding: %s\r\n%s\r\n2\r\n{}\r\n0\r\n\r\n"
                                        % (PATH.encode(), version.encode(), coding.encode(), more), 501)
       for coding, version, more in (("identity", "1.1", b""), ("chunked, identity", "1.1", b""), ("gzip, chunked", "1.1", b""),
                                     ("xchunked", "1.1", b"Content-Length: 2\r\n"), ("chunked ", "1.0", b""), ("", "1.1", b""))},
    "expect": (b"POST %s HTTP/1.1\r\nHost: a\r\nExpect: a-miracle\r\nContent-Length: 1\r\n\r\na" % PATH.encode(), 417),
    "brotli": (b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\na" % PATH.encode(), 415),
    "gzip elsewhere": (b"POST /v2/repository/index HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\na", 415),
    "no gzip": (b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: 1\r\n\r\na"
                % PATH.encode(), 400),
    "a long body": (b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n" % PATH.encode() + bytes(MIB + 1), 413),
    "an endless length": (b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n" % PATH.encode(), 413),
    "long fields": (b"GET /v2 HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 5000 + b"\r\n\r\n", 431),
    "many fields": (b"GET /v2 HTTP/1.1\r\nHost: a\r\n" + b"a:\r\n" * 2000 + b"\r\n", 431),
    "a long path": (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
    "half a header": (b"GET /v2 HTTP/1.1\r\nHost:", 408), "half a body": (text('{"a": 1}')[:-3], 408),
    "half a chunk": (b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab" % PATH.encode(), 408),
}


@pytest.mark.parametrize("sent, status", HTTP.values(), ids=HTTP)
def test_http(port, rest, sent, status):
    got, head, body = parsed(raw(port, sent))
    assert got == status and json.loads(body)["error"], (head, body)
    assert "connection: close" in head.lower()
    assert rest.json("GET", "/v2/health/live")["live"]


def test_long_chunks_are_refused_while_they_come(port):
    chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    status, _, body = parsed(raw(port, b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % PATH.encode(), *[chunk] * 17))
    assert status == 413 and "--max-request-bytes" in json.loads(body)["error"]


def test_a_slow_header_and_a_slow_body_end(port):
    began = time.monotonic()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        raw(port, *[b"G", b"E", b"T"] * 10, wait=lambda: time.sleep(0.1))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        raw(port, text("{" + " " * 1000)[:-990], *[b" "] * 30, wait=lambda: time.sleep(0.1))
    assert time.monotonic() - began < 15
    assert raw(port) == b""  # a connection over which nothing comes is closed without an answer


def test_http_1_0_closes_and_100_continue_is_answered(port):
    status, head, body = parsed(raw(port, b"GET /v2/health/live HTTP/1.0\r\n\r\n"))
    assert status == 200 and json.loads(body) == {"live": True} and "connection: close" in head.lower()
    body = json.dumps(request()).encode()
    head = b"POST %s HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), len(body))
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(head)
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        answer = b""
        while more := connection.recv(1 << 16):
            answer += more
    assert parsed(answer)[0] == 200


def test_head_has_no_body(port):
    status, head, body = parsed(raw(port, b"HEAD /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
    assert status == 200 and "content-length: 13" in head.lower() and body == b""


@pytest.mark.parametrize("begin, more", (
    (b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % PATH.encode(), b"1\r\nx\r\n" * 100),
    (b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" % PATH.encode(), b"x" * 100),
    (b"GET /v2 HTTP/1.1\r\nHost: a\r\n", b"a: b\r\n")), ids=("chunks", "a body", "a header"))
def test_what_comes_without_a_pause_and_then_stops_ends_too(port, begin, more):
    """The time for a request is over while there is always something to read."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(begin)
        until = time.monotonic() + 1.5
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < until:
                connection.sendall(more)
                time.sleep(0.0005 if more[0] != ord("a") else 0.02)
            while connection.recv(1 << 16):  # until the server has closed it
                pass


def test_blanks_are_cheap_and_strings_stay(rest):
    blanks = "\n" * 60_000
    answer = rest.send("GET", "/v2/health/live", blanks + "x")
    assert answer.status == 400 and len(answer.body) < 1000
    assert rest.json("GET", "/v2/health/live", None) == {"live": True}
    assert rest.send("GET", "/v2/health/live", blanks + blanks + "x").status == 413
    wrong = json.dumps(request(id="two lines")).replace("two lines", "two\n lines")
    assert rest.send("POST", PATH, wrong).status == 400
    said, _ = rest.infer("posenc.rotary", request(id="two  blanks"))
    assert said["id"] == "two  blanks"
    spread = json.dumps(request(), indent=8).replace("\n", "\r\n \t ")
    assert rest.send("POST", PATH, spread).status == 200


def test_a_negative_zero_stays_one(rest):
    given_q = [{**given("q", -0.0 * Q), "shape": [1, 2, 1, 8]}]
    answer = rest.send("POST", PATH, json.dumps(request(inputs=given_q, parameters={**PARAMETERS, "offset": 0})))
    data = json.loads(answer.body)["outputs"][0]["data"]
    assert all(isinstance(value, float) or value == 0 for value in data) and b"-0," not in answer.body


def test_half_a_body_does_not_hold_up_a_drain(server_program, tmp_path):
    with ServerProcess(server_program, tmp_path, "--http-listen", "127.0.0.1:0", "--drain-timeout", "40") as server, \
            socket.create_connection(("127.0.0.1", http_port(server)), timeout=SECONDS) as connection:
        connection.sendall(text('{"a": 1}')[:-3])
        with Rest(http_port(server)) as rest:
            assert rest.json("GET", "/v2/health/live")["live"]
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_a_drain_waits_for_an_answer_that_is_being_written(server_program, tmp_path):
    """JSON of 8 MiB of elements, which takes a while to read and to write."""
    with ServerProcess(server_program, tmp_path, "--http-listen", "127.0.0.1:0") as server:
        body = json.dumps({"parameters": {"offset": 0, "count": 200_000, "dtype": "FP32", "form": "HALF_WIDTH",
                                          "settings": SETTINGS}}).encode()
        with socket.create_connection(("127.0.0.1", http_port(server)), timeout=SECONDS) as connection:
            connection.sendall(b"POST /v2/models/posenc.table/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.1)
            server.signal(signal.SIGTERM)
            received = b""
            while more := connection.recv(1 << 20):
                received += more
        assert server.wait() == 0
        status, head, answer = parsed(received)
        assert status == 200 and len(json.loads(answer)["outputs"][0]["data"]) == 800_000


def test_pipelined_requests_are_answered_in_their_order(port):
    one = b"GET /v2/models/posenc.%s HTTP/1.1\r\nHost: a\r\n\r\n"
    names = [b"rotary", b"table", b"bias"] * 20
    last = b"GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    received = raw(port, b"".join(one % name for name in names) + last)
    got = [part.partition(b'"')[0] for part in received.split(b'{"name":"posenc.')[1:]]
    assert got == names and received.count(b"HTTP/1.1 200 OK") == len(names) + 1


def test_a_client_that_goes_away_cancels_its_call(server_program, tmp_path):
    with ServerProcess(server_program, tmp_path, "--http-listen", "127.0.0.1:0", "--threads", "1", "--log-level", "debug",
                       "--max-output-bytes", "1GiB", "--max-in-flight-bytes", "4GiB") as server:
        settings = json_format.MessageToJson(samples.rope_settings())
        body = json.dumps({"parameters": {"offset": 0.5, "count": 8_000_000, "dtype": "FP64", "form": "HALF_WIDTH", "settings": settings,
                                          "precision": "EXACT"}}).encode()
        with socket.create_connection(("127.0.0.1", http_port(server)), timeout=SECONDS) as connection:
            connection.sendall(b"POST /v2/models/posenc.table/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.3)
        log = server.log_with("method=ModelInfer")
        assert "CANCELLED" in log or "status=OK" in log or "INVALID" in log, log
        with Rest(http_port(server)) as rest:
            assert rest.json("GET", "/v2/health/live")["live"]


def test_bodies_are_limited_in_all(server_program, tmp_path):
    """Clients that send most of a body and wait do not take more than the limit; others are told to come back."""
    with ServerProcess(server_program, tmp_path, "--http-listen", "127.0.0.1:0", "--receive-timeout", "20",
                       "--max-request-bytes", "16MiB", "--max-output-bytes", "16MiB", "--memory-quota-bytes", "48MiB", "--max-in-flight-bytes", "16MiB") as server, \
            contextlib.ExitStack() as stack:
        statuses = []
        for _ in range(8):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", http_port(server)), timeout=1))
            connection.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), 16 * MIB))
            with contextlib.suppress(TimeoutError, ConnectionResetError, BrokenPipeError):
                connection.sendall(bytes(12 * MIB))
            with contextlib.suppress(TimeoutError, ConnectionResetError, BrokenPipeError):
                statuses.append(connection.recv(12))
        assert b"HTTP/1.1 503" in statuses
        with Rest(http_port(server)) as rest:
            assert rest.json("GET", "/v2/health/live")["live"]


def test_the_servers_state_is_whole_after_all_that(server, rest):
    threads = [threading.Thread(target=lambda: raw(http_port(server), text(json.dumps(request())))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Client(server.port) as client:
        client.when_idle()
        assert client.info().counters.in_flight_bytes == 0

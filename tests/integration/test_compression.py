"""Requests that are compressed with gzip, as some gRPC libraries do by default."""

import contextlib
import gzip
import json
import time
import zlib
from concurrent import futures

import grpc
import h2.events
import numpy
import pytest
import samples
from bare_http2 import ShutWindow, framed
from client import APART, SECONDS, Client
from google.protobuf import json_format
from grpc_peers_pb2 import HealthCheckRequest, HealthCheckResponse
from inference import service_pb2 as inference_pb2
from inference_client import InferenceClient
from mutations import rotary_stream
from rest_client import Rest, binary, given, http_port
from rich_requests import rich_requests
from server_process import SANITIZER_BYTES
from test_lifecycle import wait_until

MEBIBYTE = 1 << 20
GZIP = grpc.Compression.Gzip
ZEROS = samples.rotary(q=numpy.zeros((1, 2048, 32, 64)), rotary_dim=64)  # 16 MiB


def outcome(client, name, request, compression=None):
    """The answer's bytes, or the error."""
    try:
        answer = client.call(name, request, compression=compression)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return [one.SerializeToString(deterministic=True) for one in (answer if isinstance(answer, list) else [answer])]


def test_every_request(client):
    """gRPC's clients compress no message that would grow: so here these bytes are the message."""
    for name, request in rich_requests():
        data = request.SerializeToString()
        if name == "StreamApplyRotary" or not data:
            continue
        assert outcome(client, name, data) == outcome(client, name, gzip.compress(data)), name
    assert client.call("GetServerInfo", gzip.compress(b"")).version


def unknown(size):
    """So many zeros in a field that no message has: gRPC compresses no message that would grow."""
    return b"\xfa\x7f" + bytes([size & 127 | 128, size >> 7]) + bytes(size)


def test_streams_and_other_services(client):
    chunks = rotary_stream()
    plain, zipped = (client.call("StreamApplyRotary", iter(chunks), compression=form) for form in (None, GZIP))
    assert plain == zipped
    check = client.channel.unary_unary("/grpc.health.v1.Health/Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString)
    assert check(HealthCheckRequest(), timeout=SECONDS, compression=GZIP).status == HealthCheckResponse.SERVING


def test_models(shared_server):
    request = inference_pb2.ModelInferRequest(model_name="nothing", id="7" * 64)
    with InferenceClient(shared_server.port) as client:
        answers = [list(client.method("ModelStreamInfer")(iter([request] * 2), timeout=SECONDS, compression=form)) for form in (None, GZIP)]
        assert answers[0] == answers[1] and len(answers[0]) == 2


def test_a_large_request_of_few_bytes(client):
    plain, zipped = (client.call("ApplyRotary", ZEROS, compression=form) for form in (None, GZIP))
    assert plain == zipped
    client.when_idle()


def send(port, data, compressed=1, path="ApplyRotary"):
    """Sends the bytes of a message as they are. Returns the status and its text."""
    with ShutWindow(port, window=MEBIBYTE) as client:
        call = client.begin(path, ("grpc-encoding", "gzip"))
        client.http.send_data(call, bytes([compressed]) + len(data).to_bytes(4, "big") + data, end_stream=True)
        client.flush()
        headers = None
        while headers is None or not {"grpc-status"} & set(headers):
            event = client.wait_for((h2.events.TrailersReceived, h2.events.ResponseReceived), call)
            headers = {name.decode() if isinstance(name, bytes) else name: value.decode() if isinstance(value, bytes) else value
                       for name, value in event.headers}
    return int(headers["grpc-status"]), headers.get("grpc-message", "")


WHOLE = gzip.compress(samples.rotary().SerializeToString())


@pytest.mark.parametrize("data", {
    "cut": WHOLE[:-9], "without its check": WHOLE[:-8], "wrong check": WHOLE[:-8] + bytes(8), "more behind": WHOLE + b"x",
    "two": WHOLE + WHOLE, "a header alone": WHOLE[:10], "two bytes": WHOLE[:2], "damaged": WHOLE[:20] + b"\xff" * 9 + WHOLE[29:]}.items(),
    ids=lambda pair: pair[0])
@pytest.mark.parametrize("path", ["ApplyRotary", "StreamTable", "StreamApplyRotary", "GetServerInfo"])
def test_damaged_bytes(shared_server, data, path):
    status, text = send(shared_server.port, data[1], path=path)
    assert status == grpc.StatusCode.INVALID_ARGUMENT.value[0] and "must be one whole stream of gzip" in text


def test_every_cut(shared_server):
    for size in range(2, len(WHOLE)):
        assert send(shared_server.port, WHOLE[:size])[0] == grpc.StatusCode.INVALID_ARGUMENT.value[0], size


def test_other_methods_of_compression(shared_server):
    status, _ = send(shared_server.port, zlib.compress(samples.rotary().SerializeToString()))
    assert status == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    with Client(shared_server.port) as client, pytest.raises(grpc.RpcError) as error:
        client.call("ApplyRotary", unknown(4096), compression=grpc.Compression.Deflate)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_bombs(start_server):
    """Messages that are small until they are decompressed, also within each other, of many callers at once."""
    server = start_server("--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB", "--max-in-flight-bytes", "32MiB")
    with Client(server.port, APART) as client:
        client.call("ApplyRotary", samples.rotary())
        before = server.peak_memory()
        bombs = [unknown(4096)[:2] + b"\x80\x80\x80\x08" + bytes(16 * MEBIBYTE), gzip.compress(bytes(16 * MEBIBYTE)) * 2, bytes(16 * MEBIBYTE)]
        calls = [client.method("ApplyRotary").future(bomb, timeout=SECONDS, compression=GZIP) for bomb in bombs * 32]
        codes = {call.code() for call in calls}
        assert codes <= {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INVALID_ARGUMENT}
        refusal = client.refusal("ApplyRotary", bombs[0], compression=GZIP)
        assert refusal.reason == "TOO_LARGE" and refusal.field == "request" and "8388608" in refusal.limit
        for name in ("StreamTable", "StreamApplyRotary"):
            request = iter([bombs[0]]) if name == "StreamApplyRotary" else bombs[0]
            assert client.refusal(name, request, compression=GZIP).reason == "TOO_LARGE"
        client.when_idle()
        client.call("ApplyRotary", samples.rotary(), compression=GZIP)
    assert server.peak_memory() - before < 128 * MEBIBYTE + SANITIZER_BYTES


def test_bombs_in_streams_that_wait_for_their_readers(start_server):
    server = start_server("--max-in-flight-bytes", "64MiB", "--max-request-bytes", "16MiB", "--max-output-bytes", "16MiB", "--threads", "2")
    bomb = gzip.compress(bytes(16 * MEBIBYTE - 70_000))
    with Client(server.port, APART) as client, contextlib.ExitStack() as stack:
        client.call("ApplyRotary", samples.rotary())
        before = server.anonymous_memory()
        for _ in range(40):
            unread = stack.enter_context(ShutWindow(server.port))
            call = unread.begin("StreamApplyRotary", ("grpc-encoding", "gzip"))
            unread.http.send_data(call, framed(rotary_stream()[0]))
            unread.http.send_data(call, b"\1" + len(bomb).to_bytes(4, "big") + bomb)
            unread.flush()
        for _ in range(30):
            assert server.anonymous_memory() - before < 192 * MEBIBYTE + SANITIZER_BYTES
            time.sleep(0.1)
        wait_until(lambda: is_served(client), "others are not served while the streams wait")


def is_served(client):
    """False: there is no room for a request now."""
    try:
        client.call("ApplyRotary", samples.rotary())
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        return False
    return True


def test_blocks_without_bytes_end_in_time(start_server):
    """Blocks of deflate that say nothing take zlib seconds. Others are served meanwhile, and the call ends at its limit."""
    server = start_server("--threads", "2", "--max-call-seconds", "1")
    packed = gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * (12 * MEBIBYTE)  # 60 MiB
    with Client(server.port, APART) as client:
        slow = [client.method("ApplyRotary").future(packed, timeout=SECONDS) for _ in range(4)]
        client.call("ApplyRotary", ZEROS)
        assert {call.code() for call in slow} <= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INVALID_ARGUMENT,
                                                  grpc.StatusCode.RESOURCE_EXHAUSTED}
        client.when_idle()


def test_a_call_that_is_cancelled_while_it_is_decompressed(client, shared_server):
    for wait in (0.001, 0.005, 0.02, 0.05):
        call = client.method("ApplyRotary").future(ZEROS, timeout=wait, compression=GZIP)
        assert call.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK)
    wait_until(lambda: client.info().counters.in_flight_requests == 0, "calls are left")
    assert shared_server.pid


@pytest.mark.parametrize("encoding, compress", (("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP", gzip.compress)))
def test_over_http(start_server, encoding, compress):
    server = start_server("--http-listen", "127.0.0.1:0")
    parameters = {"layout": "BSHD", "offset": 3, "settings": json_format.MessageToJson(samples.rope_settings())}
    q = numpy.arange(8 * 4096 * 8, dtype="f4").reshape(1, 8, 4096, 8) % 5
    one, data = binary("q", q)
    text = json.dumps({"inputs": [one], "parameters": {**parameters, "binary_data_output": True}}).encode()
    small = json.dumps({"inputs": [given("q", q[:, :1, :2])], "parameters": parameters}).encode()
    with Rest(http_port(server)) as rest:
        for body, fields in ((text + data, {"Inference-Header-Content-Length": str(len(text))}), (small, {})):
            plain = rest.send("POST", "/v2/models/posenc.rotary/infer", body, **fields)
            zipped = rest.send("POST", "/v2/models/posenc.rotary/infer", compress(body), Content_Encoding=encoding, **fields)
            assert plain.status == zipped.status == 200 and plain.body == zipped.body
        cut = rest.send("POST", "/v2/models/posenc.rotary/infer", compress(small)[:-1], Content_Encoding=encoding)
        assert cut.status == 400 and "gzip" in json.loads(cut.body)["error"]


def test_bombs_over_http(start_server):
    server = start_server("--http-listen", "127.0.0.1:0", "--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB",
                          "--max-in-flight-bytes", "32MiB")
    bomb = gzip.compress(b" " * (64 * MEBIBYTE))
    with Rest(http_port(server)) as rest:
        rest.send("GET", "/v2")
        before = server.peak_memory()

        def send(_):
            with Rest(http_port(server)) as one:
                return one.send("POST", "/v2/models/posenc.rotary/infer", bomb, Content_Encoding="gzip").status
        with futures.ThreadPoolExecutor(16) as threads:
            assert set(threads.map(send, range(64))) <= {413, 503}
        refused = rest.send("POST", "/v2/models/posenc.rotary/infer", bomb, Content_Encoding="gzip")
        assert refused.status == 413 and "8388608" in json.loads(refused.body)["error"]
    assert server.peak_memory() - before < 128 * MEBIBYTE + SANITIZER_BYTES

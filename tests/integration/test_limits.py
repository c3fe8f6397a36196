"""Tests every limit: a request beyond it is refused, with the limit named, before it costs memory or time."""

import grpc
import numpy
import pytest
import samples
from bare_http2 import ShutWindow
from client import SECONDS, Client
from posenc.v1 import bias_pb2, rotary_pb2, service_pb2
from tensors import FP32, INT32, tensor
from test_lifecycle import wait_until

INVALID = grpc.StatusCode.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def small(server_program, tmp_path_factory):
    """A client of a server that allows little."""
    from server_process import ServerProcess
    flags = ("--max-request-bytes", "64KiB", "--max-output-bytes", "64KiB", "--max-tensor-rank", "4",
             "--max-rotary-dim", "64", "--max-heads", "16", "--max-config-json-bytes", "1KiB", "--max-sequences", "4")
    with ServerProcess(server_program, tmp_path_factory.mktemp("small"), *flags) as server, Client(server.port) as client:
        yield client


def ragged(sequences):
    request = samples.rotary(numpy.ones((sequences, 1, 8)), layout=rotary_pb2.LAYOUT_THD)
    request.positions.cu_seqlens.CopyFrom(tensor(range(sequences + 1), INT32))
    return request


def dynamic(sequences):
    request = ragged(sequences)
    request.rotary.settings.rope_parameters.rope_type = "dynamic"
    request.rotary.settings.rope_parameters.factor = 2
    request.rotary.settings.max_position_embeddings = 16
    request.positions.scaling_length_rule = rotary_pb2.SCALING_LENGTH_RULE_PER_SEQUENCE
    return request


def config(padding):
    return samples.model_table(b'{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}' + b" " * padding)


def rank(axes):
    request = samples.rotary()
    request.positions.ids.CopyFrom(tensor(numpy.zeros((1,) * (axes - 1) + (2,)), INT32))
    return request


# Method, request that fits, request that does not, and the expected code and reason.
LIMITS = {
    "request": ("ApplyRotary", samples.rotary(numpy.ones((1, 200, 8, 8))), samples.rotary(numpy.ones((1, 300, 8, 8))),
                EXHAUSTED, "TOO_LARGE"),
    "table": ("GenerateTable", samples.table(count=2048), samples.table(count=2049), EXHAUSTED, "TOO_LARGE"),
    "table-of-2^31-rows": ("GenerateTable", samples.table(count=1), samples.table(count=2**31 - 1), None, None),
    "tile": ("StreamTable", samples.stream(2048, count=4096), samples.stream(2049, count=4096), EXHAUSTED, "TOO_LARGE"),
    "embedding": ("GenerateEmbedding", samples.embedding(count=2048), samples.embedding(count=2049), EXHAUSTED, "TOO_LARGE"),
    "distances": ("Analyze", samples.analysis(range(1024)), samples.analysis(range(1025)), EXHAUSTED, "TOO_LARGE"),
    "bias": ("GenerateBias", samples.bias(queries=64, keys=64), samples.bias(queries=64, keys=65), None, None),
    "bias-of-2^30-keys": ("GenerateBias", samples.bias(), samples.bias(queries=2**30, keys=2**30), None, None),
    "rank": ("ApplyRotary", rank(1), rank(5), INVALID, "OUT_OF_RANGE"),
    "rotary-dim": ("Explain", samples.explain(rotary_dim=64), samples.explain(rotary_dim=66), INVALID, "OUT_OF_RANGE"),
    "heads": ("GenerateBias", samples.bias(heads=16), samples.bias(heads=17), INVALID, "OUT_OF_RANGE"),
    "config": ("GenerateTable", config(100), config(1024), INVALID, "OUT_OF_RANGE"),
    "sequences": ("ApplyRotary", ragged(4), ragged(5), EXHAUSTED, "TOO_LARGE"),
    "lengths": ("ApplyRotary", dynamic(4), dynamic(5), EXHAUSTED, "TOO_LARGE"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limit(small, name):
    method, fits, exceeds, code, reason = LIMITS[name]
    if name == "bias":
        fits.geometry.query_offset = exceeds.geometry.query_offset = 0
    small.call(method, fits)
    refusal = small.refusal(method, exceeds)
    if code:
        assert (refusal.code, refusal.reason) == (code, reason)
    assert refusal.code in (INVALID, EXHAUSTED) and refusal.reason in ("TOO_LARGE", "OUT_OF_RANGE")
    assert any(digit.isdigit() for digit in refusal.limit), "the limit is named"
    small.call(method, fits)


def test_a_request_far_too_large(small):
    # The request exceeds the limit of gRPC itself, which refuses it without details.
    with pytest.raises(grpc.RpcError) as error:
        small.call("ApplyRotary", samples.rotary(numpy.ones((1, 100000, 8, 8))))
    assert error.value.code() == EXHAUSTED
    small.call("ApplyRotary", samples.rotary())


def test_a_stream_may_be_longer_than_one_answer(small):
    tiles = small.call("StreamTable", samples.stream(count=100000))
    assert sum(tile.cos.shape[0] for tile in tiles) == 100000
    assert max(len(tile.cos.data) + len(tile.sin.data) for tile in tiles) <= 64 * KIBIBYTE


def test_a_client_with_the_default_limit_of_4_mib(shared_server):
    request = samples.table(count=5 * MEBIBYTE // 32)
    with Client(shared_server.port, options=()) as client:
        with pytest.raises(grpc.RpcError) as error:
            client.call("GenerateTable", request)
        assert error.value.code() == EXHAUSTED  # from the client itself, which names its limit
        assert "4194304" in error.value.details()
        tiles = client.call("StreamTable", service_pb2.StreamTableRequest(table=request))
        assert sum(len(tile.cos.data) for tile in tiles) == 5 * MEBIBYTE // 2
    with Client(shared_server.port) as client:
        assert len(client.call("GenerateTable", request).cos.data) == 5 * MEBIBYTE // 2


def test_many_dimensions_of_nothing(client):
    # A 0 lifts no limit of the other dimensions (test_shapes.py).
    request = samples.rotary()
    request.q.tensor.data = b""
    request.q.tensor.shape[:] = [0, 2**20, 4, 8]
    assert client.call("ApplyRotary", request).q.data == b""
    request.q.tensor.shape[:] = [0, 2**20, 2**20, 8]
    assert client.refusal("ApplyRotary", request).code == INVALID


def test_overload_by_requests(start_server):
    # Nobody reads the stream's tiles, so the call stays in flight.
    server = start_server("--max-in-flight-requests", "1", "--retry-pushback", "1234")
    with Client(server.port) as client:
        stream = client.method("StreamTable")(samples.stream(count=10_000_000, rotary_dim=128), timeout=SECONDS)
        next(stream)
        refusal = client.refusal("ApplyRotary", samples.rotary())
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "OVERLOADED")
        assert refusal.started == "false" and refusal.trailers["grpc-retry-pushback-ms"] == "1234"
        counters = client.info().counters
        assert counters.requests_refused == 1 and counters.in_flight_requests == 1
        stream.cancel()
        client.when_idle()
        client.call("ApplyRotary", samples.rotary())


def test_overload_by_bytes(start_server):
    server = start_server("--max-request-bytes", "1MiB", "--max-output-bytes", "1MiB", "--max-in-flight-bytes", "1MiB")
    with Client(server.port) as client:
        with ShutWindow(server.port, address="127.0.0.2") as unread:  # its first tile stays in flight
            unread.call("StreamTable", samples.stream(900 * KIBIBYTE // 512, count=10_000_000, rotary_dim=128))
            wait_until(lambda: client.info().counters.in_flight_bytes > 890 * KIBIBYTE, "no tile is made")
            refusal = client.refusal("GenerateTable", samples.table(count=200 * KIBIBYTE // 32))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "OVERLOADED")
            client.call("GenerateTable", samples.table())
        client.when_idle()
        client.call("GenerateTable", samples.table(count=200 * KIBIBYTE // 32))

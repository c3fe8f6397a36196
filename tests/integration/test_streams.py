"""Tests StreamBias and StreamApplyRotary: the bytes of the unary calls, flow control, and resuming after an error."""

import queue

import grpc
import numpy
import pytest
import samples
from client import SECONDS, Client, Refusal
from posenc.v1 import bias_pb2, rotary_pb2, service_pb2
from server_process import SANITIZER_BYTES
from tensors import BF16, BOOL, array, tensor

QUERY, KEY = rotary_pb2.OPERAND_QUERY, rotary_pb2.OPERAND_KEY
MEBIBYTE = 1 << 20


def tiles_of(request, rows_per_tile=None):
    return service_pb2.StreamBiasRequest(bias=request, rows_per_tile=rows_per_tile)


def masked_bias():
    request = samples.bias(heads=6, queries=100, keys=130, dtype=BF16)
    request.geometry.query_offset = 30
    request.mask.CopyFrom(samples.causal_mask())
    request.mask.key_valid.CopyFrom(tensor(numpy.arange(2 * 130).reshape(2, 130) % 3 > 0, BOOL))
    return request


@pytest.mark.parametrize("rows", (1, 7, 64, 1000, None))
def test_tiles_of_a_bias_are_its_rows(client, rows):
    request = masked_bias()
    whole = client.call("GenerateBias", request)
    tiles = client.call("StreamBias", tiles_of(request, rows))
    assert [tile.HasField("info") for tile in tiles] == [n == 0 for n in range(len(tiles))]
    assert tiles[0].info == whole.info
    assert [tile.row_begin for tile in tiles] == list(range(0, 100, rows or 100))
    together = numpy.concatenate([array(tile.bias) for tile in tiles], axis=2)
    assert together.tobytes() == array(whole.bias).tobytes()


def test_a_bias_larger_than_any_answer(client):
    limit = client.info().limits.max_output_bytes
    request = samples.bias(heads=8, queries=20_000, keys=2048)
    request.geometry.query_offset = 0
    assert client.refusal("GenerateBias", request).reason == "TOO_LARGE"
    rows = size = 0
    for tile in client.method("StreamBias")(tiles_of(request), timeout=SECONDS):
        assert tile.row_begin == rows and len(tile.bias.data) <= MEBIBYTE
        rows += tile.bias.shape[1]
        size += len(tile.bias.data)
    assert rows == 20_000 and size == 8 * 20_000 * 2048 * 4 > limit


class Exchange:
    """A StreamApplyRotary call, one message at a time."""

    def __init__(self, client):
        self.requests = queue.SimpleQueue()
        self.answers = client.method("StreamApplyRotary")(iter(self.requests.get, None), timeout=SECONDS)

    def open(self, request):
        header = service_pb2.ApplyRotaryRequest()
        header.CopyFrom(request)
        header.q.tensor.ClearField("data")
        if header.HasField("k"):
            header.k.tensor.ClearField("data")
        self.requests.put(service_pb2.StreamApplyRotaryRequest(header=header))
        return next(self.answers)

    def send(self, operand, byte_offset, data):
        self.requests.put(service_pb2.StreamApplyRotaryRequest(chunk=chunk_of(operand, byte_offset, data)))

    def end(self):
        self.requests.put(None)
        return list(self.answers)


def chunk_of(operand, byte_offset, data):
    chunk = service_pb2.RotaryChunk(operand=operand)
    chunk.rows.byte_offset = byte_offset
    chunk.rows.data = data
    return chunk


def rotation(layout=rotary_pb2.LAYOUT_BSHD):
    values = numpy.random.default_rng(3).standard_normal
    return samples.rotary(values((2, 30, 4, 16)), values((2, 30, 4, 8)), offset=11, layout=layout)


def pieces(operand, data, row, rows):
    return [(operand, begin, data[begin:begin + row * rows]) for begin in range(0, len(data), row * rows)]


@pytest.mark.parametrize("layout", (rotary_pb2.LAYOUT_BSHD, rotary_pb2.LAYOUT_BHSD))
def test_chunks_in_any_order(client, layout):
    request = rotation(layout)
    whole = client.call("ApplyRotary", request)
    chunks = pieces(QUERY, request.q.tensor.data, 64, 7) + pieces(KEY, request.k.tensor.data, 32, 13)
    numpy.random.default_rng(1).shuffle(chunks)
    exchange = Exchange(client)
    assert exchange.open(request).info == whole.info
    for chunk in [*chunks, chunks[0]]:
        exchange.send(*chunk)
    answers = exchange.end()
    assert len(answers) == len(chunks) + 1
    rotated = {QUERY: bytearray(len(whole.q.data)), KEY: bytearray(len(whole.k.data))}
    for answer in answers:
        begin, data = answer.chunk.rows.byte_offset, answer.chunk.rows.data
        rotated[answer.chunk.operand][begin:begin + len(data)] = data
    assert rotated[QUERY] == whole.q.data and rotated[KEY] == whole.k.data
    client.when_idle()


def test_an_error_says_where_to_go_on(client):
    request = rotation()
    data = request.q.tensor.data
    exchange = Exchange(client)
    exchange.open(request)
    exchange.send(QUERY, 0, data[:640])
    exchange.send(QUERY, 640, data[640:700])
    with pytest.raises(grpc.RpcError) as error:
        exchange.end()
    refusal = Refusal.of(error.value)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MISMATCH")
    assert (refusal.field, refusal.value) == ("chunk.rows.data", "60 bytes")
    assert refusal.resume == ("OPERAND_QUERY", 640)

    again = Exchange(client)
    again.open(request)
    again.send(QUERY, 640, data[640:])
    assert again.end()[0].chunk.rows.data == client.call("ApplyRotary", request).q.data[640:]
    client.when_idle()


def test_an_unknown_field_in_a_chunk_is_refused(client):
    request = rotation()
    exchange = Exchange(client)
    exchange.open(request)
    chunk = chunk_of(QUERY, 0, request.q.tensor.data[:64]).SerializeToString() + b"\xf8\x7f\x01"
    exchange.requests.put(b"\x12" + bytes([len(chunk)]) + chunk)
    with pytest.raises(grpc.RpcError) as error:
        exchange.end()
    refusal = Refusal.of(error.value)
    assert (refusal.reason, refusal.field, refusal.resume) == ("UNKNOWN_FIELD", "chunk.2047", ("OPERAND_QUERY", 0))


def test_a_tensor_far_beyond_the_limits(start_server):
    # Sends 256 MiB through a server that allows 8 MiB in flight.
    server = start_server("--max-request-bytes", "2MiB", "--max-output-bytes", "2MiB", "--max-in-flight-bytes", "8MiB")
    rows = MEBIBYTE // 512
    request = samples.rotary(numpy.ones((1, 2, 1, 128)), rotary_dim=128)
    request.q.tensor.shape[:] = [1, 256 * rows, 1, 128]
    part = numpy.ones((rows, 128), "<f4").tobytes()
    with Client(server.port) as client:
        exchange = Exchange(client)
        exchange.open(request)
        for n in range(256):
            exchange.send(QUERY, n * MEBIBYTE, part)
            answer = next(exchange.answers)
            assert answer.chunk.rows.byte_offset == n * MEBIBYTE and len(answer.chunk.rows.data) == MEBIBYTE
        last = answer.chunk.rows.data
        assert exchange.end() == []
        alone = samples.rotary(numpy.ones((1, rows, 1, 128)), rotary_dim=128, offset=255 * rows)
        assert client.call("ApplyRotary", alone).q.data == last
        client.when_idle()
    assert server.peak_memory() < 100 * MEBIBYTE + SANITIZER_BYTES


def test_a_stream_is_given_up_at_any_time(client):
    request = rotation()
    for messages in range(4):
        exchange = Exchange(client)
        for n in range(messages):
            exchange.open(request) if n == 0 else exchange.send(QUERY, 0, request.q.tensor.data)
        exchange.answers.cancel()
        exchange.requests.put(None)
    client.when_idle()


def test_nothing_is_read_while_answers_wait(start_server):
    server = start_server()
    with Client(server.port) as client, Client(server.port) as observer:
        request = samples.rotary(numpy.ones((1, 2, 1, 128)), rotary_dim=128)
        request.q.tensor.shape[:] = [1, 2**20, 1, 128]
        exchange = Exchange(client)
        exchange.open(request)
        part = numpy.ones((8 * MEBIBYTE // 4,), "<f4").tobytes()
        for n in range(40):
            exchange.send(QUERY, n * len(part), part)
        # Two chunks in progress, each with request and answer, and one answer that the transport has not sent yet.
        for n in range(40):
            assert observer.info().counters.in_flight_bytes <= 5 * (len(part) + 1024)
            assert next(exchange.answers).chunk.rows.byte_offset == n * len(part)
        assert exchange.end() == []
        observer.when_idle()


def test_the_command_writes_a_bias_larger_than_any_answer(posenc, client, start_server, tmp_path):
    server = start_server("--max-output-bytes", "64KiB")
    posenc("bias", "--server", f"127.0.0.1:{server.port}", "--num-heads", "4", "--slopes", "power-of-two", "--alibi-form",
           "symmetric", "--query-length", "300", "--key-length", "300", "--bias-form", "dense", "--dtype", "fp32", "-o",
           "bias.npy")
    whole = client.call("GenerateBias", samples.bias(queries=300, keys=300, alibi_form=bias_pb2.ALIBI_FORM_SYMMETRIC))
    written = numpy.load(tmp_path / "bias.npy")
    assert written.shape == (4, 300, 300) and written.tobytes() == whole.bias.data

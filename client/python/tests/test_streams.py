"""Streams: tiles of tables and biases, rotations in chunks, on a server and in this process, and streams that end early."""

import asyncio
import concurrent.futures
import itertools

import grpc
import numpy as np
import pytest
from conftest import LLAMA

import posenc
import posenc.aio
from posenc import _tensors
from posenc._descriptors import api
from posenc._wire import new_message

RANDOM = np.random.default_rng(20261124)
Q, K = (RANDOM.standard_normal((2, 50, heads, 128)).astype(np.float32) for heads in (4, 2))
ROTATION = {"model": LLAMA, "positions": 5, "layout": "BSHD"}
TABLE = {"model": LLAMA, "positions": 3, "count": 1000, "dtype": "FP32", "form": "HALF_WIDTH"}
BIAS = {"method": {"alibi": {"num_heads": 2, "rule": "POWER_OF_TWO", "form": "CAUSAL"}},
        "geometry": {"query_length": 7, "key_length": 9, "query_offset": 2}, "form": "DENSE", "dtype": "FP32"}
CHUNK = 9000  # bytes: 17 rows of 512, and 3 at the end of q


def test_tiles_of_a_table(client):
    whole = client.table(**TABLE)
    tiles = list(client.stream_table(**TABLE, rows_per_tile=300))
    assert [tile.row_begin for tile in tiles] == [0, 300, 600, 900]
    for n, part in enumerate(("cos", "sin")):
        assert (np.concatenate([list(tile)[n] for tile in tiles]) == getattr(whole, part)).all()
    assert tiles[0].info.rotary_dim == whole.info.rotary_dim and all(tile.info is None for tile in tiles[1:])
    assert sum(len(tile.cos) for tile in client.stream_table(**TABLE | {"count": 50000})) == 50000


def test_tiles_of_a_bias(client):
    whole = client.bias(**BIAS).bias
    tiles = list(client.stream_bias(**BIAS, rows_per_tile=3))
    assert [tile.row_begin for tile in tiles] == [0, 3, 6]
    assert (np.concatenate([tile.bias for tile in tiles], 1) == whole).all()


def test_tiles_have_the_kind_that_is_asked_for(client):
    array_api_strict = pytest.importorskip("array_api_strict")
    like = array_api_strict.asarray(Q)
    assert all(isinstance(tile.cos, type(like)) for tile in client.stream_table(**TABLE, like=like))


def test_a_rotation_in_chunks(client):
    expected = client.rope(Q, K, **ROTATION)
    answer = client.rope_in_chunks(Q, K, **ROTATION, chunk_bytes=CHUNK)
    q, k = answer
    assert (q == expected.q).all() and (k == expected.k).all() and answer.info.rotary_dim == 128
    assert client.rope_in_chunks(Q, **ROTATION).k is None
    half = Q.astype(np.float16)
    assert (client.rope_in_chunks(half, **ROTATION).q == client.rope(half, **ROTATION).q).all()
    empty = client.rope_in_chunks(Q[:, :0], K[:, :0], **ROTATION)
    assert empty.q.shape == (2, 0, 4, 128) and empty.k.shape == (2, 0, 2, 128)


def test_fields_of_operands(client):
    wide = RANDOM.standard_normal((1, 3, 2, 192)).astype(np.float32)
    settings = {"rope_parameters": {"rope_type": "default"}, "rotary_dim": 64, "input_pairing": "HALF_SPLIT"}
    fields = {"settings": settings, "positions": np.array([4, 1, 9]), "layout": "BSHD", "q_fields": {"rotary_offset": 128}}
    assert (client.rope_in_chunks(wide, **fields).q == client.rope(wide, **fields).q).all()


def test_rows_come_as_they_are_rotated(client):
    expected = client.rope(Q, K, **ROTATION)
    got = {"q": np.zeros_like(Q), "k": np.zeros_like(K)}
    parts = 0
    for part in client.stream_rope(Q, K, **ROTATION, chunk_bytes=CHUNK):
        assert part.rows.shape[1] == 128 and part.info.rotary_dim == 128
        got[part.operand].reshape(-1, 128)[part.begin:part.begin + len(part.rows)] = part.rows
        parts += 1
    assert (got["q"] == expected.q).all() and (got["k"] == expected.k).all()
    assert parts == -(-400 // 17) + -(-200 // 17)


def test_the_callers_memory(client, tmp_path):
    expected = client.rope(Q, K, **ROTATION)
    out = [np.memmap(tmp_path / name, np.float32, "w+", shape=x.shape) for name, x in (("q", Q), ("k", K))]
    for part in client.stream_rope(Q, K, **ROTATION, chunk_bytes=CHUNK, out=out):
        assert np.shares_memory(part.rows, out[part.operand == "k"])
    assert (out[0] == expected.q).all() and (out[1] == expected.k).all()
    q = Q.copy()
    assert client.rope_in_chunks(q, **ROTATION, chunk_bytes=CHUNK, out=[q]).q is q
    assert (q == expected.q).all()


@pytest.mark.parametrize("first, to, field", [
    (0, (1, 5), "out[0]"),  # q's rows, one row on
    (1, (0, 5), "out[0]"),  # one row back
    (0, (2, 5), "out[0]"),  # k's rows
    (0, (8, 1), "out[1]"),  # k's result in q's rows
    (0, (5, 6), "out[1]"),  # both results
])
def test_an_output_that_overlaps_other_rows(client, first, to, field):
    """An answer would overwrite rows before they are sent, or not, by chance."""
    memory = RANDOM.standard_normal((11, 128)).astype(np.float32)
    q, k, *out = (memory[begin:begin + 2].reshape(1, 2, 1, 128) for begin in (first, 3, *to))
    before = memory.copy()
    with pytest.raises(posenc.InvalidArgument) as caught:
        client.rope_in_chunks(q, k, **ROTATION, chunk_bytes=512, out=out)
    assert (caught.value.field, caught.value.reason) == (field, "CONFLICT")
    assert (memory == before).all()


def test_an_abandoned_stream(client):
    for stream in (client.stream_rope(Q, **ROTATION, chunk_bytes=CHUNK), client.stream_table(**TABLE, rows_per_tile=1)):
        next(stream)
        del stream
    assert client.info().version


@pytest.mark.parametrize("stream, field", [
    (lambda c: c.stream_rope(Q, **ROTATION | {"layout": "THD"}), "header.q.tensor.shape"),
    (lambda c: c.stream_rope(Q, **ROTATION, chunk_bytes=0), "chunk_bytes"),
    (lambda c: c.stream_rope(Q, K, **ROTATION, out=[np.empty_like(Q)]), "out"),
    (lambda c: c.stream_rope(Q, **ROTATION, out=[np.empty_like(K)]), "out[0]"),
    (lambda c: c.stream_table(**TABLE, rows_per_tile=0), "rows_per_tile"),
    (lambda c: c.stream_bias(**BIAS | {"form": "COMPACT"}), None),
])
def test_errors(client, stream, field):
    with pytest.raises(posenc.InvalidArgument) as caught:
        list(stream(client))
    assert field is None or caught.value.field == field


def test_a_closed_client():
    client = posenc.local()
    client.close()
    with pytest.raises(ValueError, match="closed"):
        next(client.stream_table(**TABLE))


@pytest.mark.parametrize("place", ["remote", "local"])
def test_asyncio(server, place, local):
    async def work():
        async with (posenc.aio.local() if place == "local" else posenc.aio.connect(f"127.0.0.1:{server.port}")) as client:
            answer = await client.rope_in_chunks(Q, K, **ROTATION, chunk_bytes=CHUNK)
            expected = local.rope(Q, K, **ROTATION)
            assert (answer.q == expected.q).all() and (answer.k == expected.k).all()
            rows = [part.rows async for part in client.stream_rope(Q, **ROTATION, chunk_bytes=CHUNK)]
            assert sum(map(len, rows)) == 400
            tiles = [tile.cos async for tile in client.stream_table(**TABLE, rows_per_tile=300)]
            assert (np.concatenate(tiles) == local.table(**TABLE).cos).all()
            assert len([tile async for tile in client.stream_bias(**BIAS, rows_per_tile=3)]) == 3
            async for _ in client.stream_rope(Q, **ROTATION, chunk_bytes=CHUNK):
                break
            with pytest.raises(posenc.InvalidArgument):
                async for _ in client.stream_table(**TABLE, rows_per_tile=0):
                    pass
    asyncio.run(work())


class EndingEarly(grpc.GenericRpcHandler):
    """Answers chunks with their own bytes, and ends each stream but the last after two of them."""

    def __init__(self, code, trailers, streams):
        self._code, self._trailers, self._left, self.offsets = code, trailers, streams, []

    def service(self, details):
        return grpc.stream_stream_rpc_method_handler(self._answer)

    def _answer(self, parts, context):
        next(parts)
        yield b"\x0a\x00"  # StreamApplyRotaryResponse { info {} }
        self._left -= 1
        for n, data in enumerate(parts):
            if self._left and n == 2:
                context.set_trailing_metadata(self._trailers)
                context.abort(self._code, "ended by a test")
            part = new_message(api().rpcs["StreamApplyRotary"].request, memoryview(data), _tensors.NUMPY)
            self.offsets.append(part.chunk.rows.byte_offset)
            yield data


@pytest.fixture
def ending():
    servers = []

    def start(code, trailers=(), streams=4):
        handler = EndingEarly(code, trailers, streams)
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", -1)])
        server.add_generic_rpc_handlers([handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return handler, f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(0)


ROWS = np.arange(8 * 128, dtype=np.float32).reshape(1, 8, 1, 128)  # eight chunks of one row


def in_rows(client):
    return client.rope_in_chunks(ROWS, **ROTATION, chunk_bytes=512)


@pytest.mark.parametrize("place", ["sync", "asyncio"])
def test_a_stream_that_ends_early_goes_on_in_another(ending, place, monkeypatch):
    handler, address = ending(grpc.StatusCode.UNAVAILABLE, (("grpc-retry-pushback-ms", "1"),))
    if place == "sync":
        with posenc.connect(address, retry=posenc.RetryPolicy(max_attempts=2)) as client:  # progress renews the attempts
            answer = in_rows(client)
    else:
        async def work():
            async with posenc.aio.connect(address, retry=posenc.RetryPolicy(max_attempts=2)) as client:
                return await in_rows(client)
        answer = asyncio.run(work())
    assert (answer.q == ROWS).all()
    assert handler.offsets == [512 * n for n in range(8)]


def test_a_stream_is_not_continued_against_the_servers_will(ending):
    handler, address = ending(grpc.StatusCode.UNAVAILABLE, (("grpc-retry-pushback-ms", "-1"),))
    with posenc.connect(address) as client, pytest.raises(posenc.Unavailable):
        in_rows(client)
    assert handler.offsets == [0, 512]


def test_streams_without_progress_are_limited(ending):
    handler, address = ending(grpc.StatusCode.UNAVAILABLE, (("grpc-retry-pushback-ms", "1"),), streams=100)
    handler._answer = lambda parts, context: context.abort(grpc.StatusCode.UNAVAILABLE, "refused")
    with posenc.connect(address, retry=posenc.RetryPolicy(max_attempts=3, initial_backoff=0.001)) as client:
        with pytest.raises(posenc.Unavailable):
            in_rows(client)


def test_tiles_are_retried_until_the_first(ending):
    handler, address = ending(grpc.StatusCode.UNAVAILABLE)
    calls = itertools.count()
    tile = b"\x10\x07"  # StreamTableResponse { row_begin: 7 }

    def answer(request, context):
        n = next(calls)
        if n == 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "refused")
        yield tile
        if n == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "refused late")

    handler.service = lambda details: grpc.unary_stream_rpc_method_handler(answer)
    with posenc.connect(address, retry=posenc.RetryPolicy(initial_backoff=0.001)) as client:
        stream = client.stream_table(**TABLE)
        assert next(stream).row_begin == 7
        with pytest.raises(posenc.Unavailable, match="refused late"):
            next(stream)
        assert [one.row_begin for one in client.stream_table(**TABLE)] == [7]
    assert next(calls) == 3

"""Compares terms of q, k and probabilities by distance, over gRPC, with numpy in float64."""

import json

import grpc
import numpy
import pytest
import samples
from posenc.v1 import relative_pb2, rotary_pb2, service_pb2
from tensors import BF16, FP16, FP32, INT64, array, rounded, tensor

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 4, 9, 40, 8
OFFSET = 31  # of the first query


def random_values(*shape, dtype=FP32, seed=20261121):
    return rounded(numpy.random.default_rng(seed).standard_normal(shape), dtype)


def distances():
    """Returns key - query."""
    return numpy.arange(KEYS) - (numpy.arange(QUERIES)[:, None] + OFFSET)


def request(method, q, k=None, dtype=FP32, content=False):
    made = service_pb2.RelativeScoresRequest(
        method=method, layout=rotary_pb2.LAYOUT_BHSD, content=content, dtype=FP32, q=tensor(q, dtype))
    made.geometry.query_offset = OFFSET
    if k is None:
        made.geometry.key_length = KEYS
    else:
        made.k.CopyFrom(tensor(k, dtype))
    return made


def nearly(answer, expected):
    """Compares with float64 sums in another order: nearly all elements are the nearest float32, the rest are close."""
    got = array(answer)
    assert got.shape == expected.shape
    assert (got == expected.astype("<f4")).mean() > 0.999
    assert numpy.allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("key_term", (False, True))
@pytest.mark.parametrize("content", (False, True))
@pytest.mark.parametrize("dtype", (FP32, FP16, BF16))
def test_shaw(client, dtype, content, key_term):
    q, k = random_values(BATCH, HEADS, QUERIES, DIM, dtype=dtype), random_values(BATCH, 2, KEYS, DIM, dtype=dtype, seed=1)
    method = relative_pb2.RelativeMethod(shaw=samples.shaw(21, DIM, key_term=key_term))
    rows = array(method.shaw.table).astype("<f8")[numpy.clip(distances(), -10, 10) + 10]
    keys = numpy.repeat(k, HEADS // 2, 1).astype("<f8")
    expected = numpy.einsum("bhid,ijd->bhij", q.astype("<f8"), rows)
    if key_term:
        expected += numpy.einsum("bhjd,ijd->bhij", keys, rows)
    if content:
        expected += numpy.einsum("bhid,bhjd->bhij", q.astype("<f8"), keys)
    answer = client.call("RelativeScores", request(method, q, k if content or key_term else None, dtype, content))
    nearly(answer.scores, expected / DIM ** 0.5)
    assert answer.scale == 1 / DIM ** 0.5


@pytest.mark.parametrize(("queries", "keys"), ((20, 600), (2, 200)))
def test_positions_far_apart(client, queries, keys):
    # Keys in another order: a tile of 256 of them uses more than 512 rows of the table, or, with two queries, fewer rows
    # that are spread over more.
    dim, apart = 4, 90
    generator = numpy.random.default_rng(7)
    positions, queries = generator.permutation(keys) * apart, generator.permutation(queries) * 7 * apart
    method = relative_pb2.RelativeMethod(shaw=samples.shaw(2 * keys * apart - 1, dim, clip=False, key_term=True))
    made = service_pb2.RelativeScoresRequest(
        method=method, layout=rotary_pb2.LAYOUT_BHSD, content=False, dtype=FP32,
        q=tensor(random_values(1, 2, len(queries), dim), FP32), k=tensor(random_values(1, 1, keys, dim, seed=1), FP32))
    made.geometry.query_positions.CopyFrom(tensor(queries, INT64))
    made.geometry.key_positions.CopyFrom(tensor(positions, INT64))
    rows = array(method.shaw.table).astype("<f8")[positions - queries[:, None] + keys * apart - 1]
    expected = numpy.einsum("bhid,ijd->bhij", array(made.q).astype("<f8"), rows)
    expected += numpy.einsum("bhjd,ijd->bhij", array(made.k).astype("<f8").repeat(2, 1), rows)
    nearly(client.call("RelativeScores", made).scores, expected / dim ** 0.5)


def test_the_order_and_the_edge_of_transformers_table(client):
    q = random_values(BATCH, HEADS, QUERIES, DIM)
    order = relative_pb2.SHAW_ORDER_QUERY_MINUS_KEY
    method = relative_pb2.RelativeMethod(shaw=samples.shaw(79, DIM, order, clip=False))
    rows = array(method.shaw.table).astype("<f8")[39 - distances()]
    expected = numpy.einsum("bhid,ijd->bhij", q.astype("<f8"), rows) / DIM ** 0.5
    nearly(client.call("RelativeScores", request(method, q)).scores, expected)
    method.shaw.CopyFrom(samples.shaw(77, DIM, order, clip=False))  # one row too few: 39 keys before the last query
    refusal = client.refusal("RelativeScores", request(method, q))
    assert (refusal.reason, refusal.field) == ("OUT_OF_RANGE", "method.shaw.table")


@pytest.mark.parametrize("tau", (False, True))
@pytest.mark.parametrize("extent", (5, 100))
@pytest.mark.parametrize("dtype", (FP32, FP16, BF16))
def test_inkling(client, dtype, extent, tau):
    states = random_values(BATCH, HEADS, QUERIES, DIM, dtype=dtype)
    inkling = relative_pb2.Inkling(projection=samples.weights(DIM, extent))
    if tau:
        inkling.MergeFrom(relative_pb2.Inkling(
            log_scaling_alpha=0.5, log_scaling_n_floor=34, scaled=relative_pb2.INKLING_SCALED_BIAS))
    away = -distances()
    columns = array(inkling.projection).astype("<f8")[:, numpy.clip(away, 0, extent - 1)]
    expected = numpy.einsum("bhid,dij->bhij", states.astype("<f8"), columns)
    expected = numpy.where((away >= 0) & (away < extent), expected, 0)
    if tau:
        positions = numpy.arange(QUERIES) + OFFSET
        expected *= 1 + 0.5 * numpy.log(numpy.maximum(1, (positions + 1) / 34))[:, None]
    answer = client.call("RelativeScores", request(relative_pb2.RelativeMethod(inkling=inkling), states, dtype=dtype))
    nearly(answer.scores, expected)
    assert answer.scale == 1


def test_inkling_of_a_file(client):
    config = {"model_type": "inkling_text", "num_hidden_layers": 6, "d_rel": DIM, "rel_extent": 7,
              "sliding_window_size": 5, "num_attention_heads": HEADS, "swa_num_attention_heads": HEADS,
              "log_scaling_n_floor": 34}
    file = rotary_pb2.ModelConfig(config_json=json.dumps(config).encode())
    states = random_values(BATCH, HEADS, QUERIES, DIM, dtype=BF16)
    answers = {}
    for layer_type, extent in (("hybrid_sliding", 5), ("hybrid", 7)):
        file.layer_type = layer_type
        inkling = relative_pb2.Inkling(projection=samples.weights(DIM, extent), model=file)
        made = request(relative_pb2.RelativeMethod(inkling=inkling), states, dtype=BF16)
        made.dtype = BF16
        made.precision.preset = rotary_pb2.PRECISION_PRESET_MODEL
        answer = client.call("RelativeScores", made)
        inkling.ClearField("model")
        if layer_type == "hybrid":
            inkling.MergeFrom(relative_pb2.Inkling(
                log_scaling_alpha=0.1, log_scaling_n_floor=34, scaled=relative_pb2.INKLING_SCALED_BIAS))
        made.method.inkling.CopyFrom(inkling)
        made.precision.preset = rotary_pb2.PRECISION_PRESET_HF_EAGER
        assert client.call("RelativeScores", made).scores.data == answer.scores.data
        answers[layer_type] = answer
    assert any("query_scale" in note.message for note in answers["hybrid"].info.notes)
    made.method.inkling.projection.CopyFrom(samples.weights(DIM, 5))
    made.method.inkling.ClearField("scaled")
    for field in ("log_scaling_alpha", "log_scaling_n_floor"):
        made.method.inkling.ClearField(field)
    made.method.inkling.model.CopyFrom(file)
    refusal = client.refusal("RelativeScores", made)
    assert (refusal.reason, refusal.field) == ("MISMATCH", "method.inkling.projection.shape")
    made.content = True
    made.method.inkling.projection.CopyFrom(samples.weights(DIM, 7))
    refusal = client.refusal("RelativeScores", made)
    assert (refusal.reason, refusal.field) == ("CONFLICT", "content")


@pytest.mark.parametrize("layout", (rotary_pb2.LAYOUT_BHSD, rotary_pb2.LAYOUT_BSHD))
def test_shaw_values(client, layout):
    alpha = random_values(BATCH, HEADS, QUERIES, KEYS)
    shaw = samples.shaw(21, DIM)
    made = service_pb2.RelativeValuesRequest(shaw=shaw, layout=layout, dtype=FP32, probabilities=tensor(alpha, FP32))
    made.geometry.query_offset = OFFSET
    rows = array(shaw.table).astype("<f8")[numpy.clip(distances(), -10, 10) + 10]
    by_head = layout == rotary_pb2.LAYOUT_BHSD
    expected = numpy.einsum("bhij,ijd->bhid" if by_head else "bhij,ijd->bihd", alpha.astype("<f8"), rows)
    got = array(client.call("RelativeValues", made).values)
    # The server first sums and rounds the probabilities that share a row.
    assert got.shape == expected.shape and numpy.allclose(got, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("wavelet", ("ricker", "gaussian", "morlet", "haar"))
@pytest.mark.parametrize("shifts_fastest", (True, False))
def test_wpr(client, wavelet, shifts_fastest):
    q = random_values(BATCH, HEADS, QUERIES, DIM)
    wpr = relative_pb2.Wpr(
        wavelet=relative_pb2.Wavelet.Value(f"WAVELET_{wavelet.upper()}"), scales=4, first_exponent=1,
        channels=relative_pb2.WPR_CHANNELS_SHIFT_FASTEST if shifts_fastest else relative_pb2.WPR_CHANNELS_SCALE_FASTEST,
        distance=relative_pb2.WPR_DISTANCE_QUERY_MINUS_KEY)
    if wavelet == "morlet":
        wpr.morlet_frequency = 1.5
    channel = numpy.arange(DIM)
    scale, shift = (channel // 2, channel % 2) if shifts_fastest else (channel % 4, channel // 4)
    u = (-distances()[..., None] - shift) / 2.0 ** (1 + scale)
    psi = {"ricker": lambda: (1 - u * u) * numpy.exp(-u * u / 2),
           "gaussian": lambda: numpy.exp(-u * u),
           "morlet": lambda: numpy.exp(-u * u) * numpy.cos(1.5 * u),
           "haar": lambda: numpy.where((u < 0) | (u >= 1), 0, numpy.where(u < 0.5, 1.0, -1.0))}[wavelet]()
    expected = numpy.einsum("bhid,ijd->bhij", q.astype("<f8"), psi.astype("<f4").astype("<f8")) / DIM ** 0.5
    nearly(client.call("RelativeScores", request(relative_pb2.RelativeMethod(wpr=wpr), q)).scores, expected)


@pytest.mark.parametrize("method", samples.relative_methods(heads=HEADS, dim=DIM, width=0, positions=80),
                         ids=lambda method: method.WhichOneof("method"))
def test_tables_without_columns(client, method):
    # Sums of no products are 0, and a projection adds its bias. Transformer-XL needs a width.
    q, k = random_values(BATCH, HEADS, QUERIES, DIM), random_values(BATCH, HEADS, KEYS, DIM, seed=1)
    if method.WhichOneof("method") == "transformer_xl":
        assert client.refusal("RelativeScores", request(method, q, k, content=True)).code == grpc.StatusCode.INVALID_ARGUMENT
    else:
        assert numpy.isfinite(array(client.call("RelativeScores", request(method, q, k, content=True)).scores)).all()


def test_added_to_scores_under_a_mask(client):
    q, scores = random_values(1, 2, 5, DIM), random_values(1, 2, 5, 5, seed=1)
    method = relative_pb2.RelativeMethod(shaw=samples.shaw(7, DIM))
    made = request(method, q)
    made.geometry.Clear()
    made.scale = 0.5
    term = array(client.call("RelativeScores", made).scores)
    made.add_to.CopyFrom(tensor(scores, FP32))
    made.mask.CopyFrom(samples.causal_mask())
    expected = numpy.where(numpy.tri(5, dtype=bool), scores + term, numpy.float32(-numpy.inf))
    assert (array(client.call("RelativeScores", made).scores) == expected).all()

"""Compares the service's numbers with formulas computed here."""

import formulas
import mpmath
import numpy
import pytest
import samples
from posenc.v1 import bias_pb2, embedding_pb2, rotary_pb2, service_pb2
from tensors import BF16, BOOL, FP16, FP32, FP64, INT32, INT64, array, rounded, tensor

FLOATS = (FP32, FP16, BF16)
LONG = 131071


def equal(answer, expected):
    """Asserts the same shape and, in the answer's type, the same bits (-0 differs from 0)."""
    got = array(answer)
    expected = numpy.asarray(expected).astype(got.dtype)
    assert got.shape == expected.shape
    differ = got.view(f"u{got.itemsize}") != expected.view(f"u{got.itemsize}")
    assert not differ.any(), f"{differ.sum()} of {differ.size} differ, first at {numpy.argwhere(differ)[0]}"


def random_values(shape, dtype, seed=20240607):
    return rounded(numpy.random.default_rng(seed).standard_normal(shape), dtype)


@pytest.mark.parametrize("dtype", (FP32, FP16, BF16, FP64))
def test_table_entries_are_the_real_values_rounded_once(client, dtype):
    positions = (0, 1, 4095, LONG)
    request = samples.table(count=None, dtype=dtype, rotary_dim=64)
    request.positions.ids.CopyFrom(tensor(positions, INT32))
    answer = client.call("GenerateTable", request)
    cos, sin = formulas.table(formulas.rope_inv_freq(10000, 64), positions, dtype)
    equal(answer.cos, cos)
    equal(answer.sin, sin)


def test_table_forms(client):
    half = client.call("GenerateTable", samples.table(form=rotary_pb2.TABLE_FORM_HALF_WIDTH))
    duplicated = client.call("GenerateTable", samples.table(form=rotary_pb2.TABLE_FORM_DUPLICATED))
    repeated = client.call("GenerateTable", samples.table(form=rotary_pb2.TABLE_FORM_REPEAT_INTERLEAVED))
    for name in ("cos", "sin"):
        values = array(getattr(half, name))
        equal(getattr(duplicated, name), numpy.concatenate([values, values], -1))
        equal(getattr(repeated, name), numpy.repeat(values, 2, -1))


@pytest.mark.parametrize("rows_per_tile", (None, 1, 7, 100))
def test_streamed_tiles_are_the_table(client, rows_per_tile):
    arguments = dict(count=100, offset=100000, dtype=BF16, rotary_dim=32)
    whole = client.call("GenerateTable", samples.table(**arguments))
    tiles = client.call("StreamTable", samples.stream(rows_per_tile, **arguments))
    sizes = [tile.cos.shape[0] for tile in tiles]
    assert [tile.row_begin for tile in tiles] == [sum(sizes[:n]) for n in range(len(sizes))]
    assert all(size == (rows_per_tile or 100) for size in sizes[:-1])
    assert b"".join(tile.cos.data for tile in tiles) == whole.cos.data
    assert b"".join(tile.sin.data for tile in tiles) == whole.sin.data
    assert tiles[0].info == whole.info
    assert not any(tile.HasField("info") for tile in tiles[1:])


@pytest.mark.parametrize("interleaved", (False, True))
@pytest.mark.parametrize("dtype", FLOATS)
def test_rotation_of_q_and_k_with_fewer_heads(client, dtype, interleaved):
    q = random_values((2, 3, 4, 64), dtype)
    k = random_values((2, 3, 1, 64), dtype, seed=1)
    pairing = rotary_pb2.PAIRING_INTERLEAVED if interleaved else rotary_pb2.PAIRING_HALF_SPLIT
    answer = client.call("ApplyRotary", samples.rotary(q, k, dtype, offset=LONG - 2, rotary_dim=64, pairing=pairing))
    cos, sin = formulas.table(formulas.rope_inv_freq(10000, 64), range(LONG - 2, LONG + 1))
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    equal(answer.q, rounded(formulas.rotate(q, cos, sin, interleaved), dtype))
    equal(answer.k, rounded(formulas.rotate(k, cos, sin, interleaved), dtype))
    assert answer.info.rotated and answer.info.rotary_dim == 64 and answer.info.device == "cpu"
    assert answer.info.input_pairing == answer.info.output_pairing == pairing


def test_layouts_hold_the_same_numbers(client):
    q = random_values((2, 3, 4, 8), FP32)
    by_token = array(client.call("ApplyRotary", samples.rotary(q)).q)
    by_head = client.call("ApplyRotary", samples.rotary(q.transpose(0, 2, 1, 3), layout=rotary_pb2.LAYOUT_BHSD))
    equal(by_head.q, by_token.transpose(0, 2, 1, 3))
    packed = samples.rotary(q.reshape(6, 4, 8), layout=rotary_pb2.LAYOUT_THD)
    packed.positions.cu_seqlens.CopyFrom(tensor([0, 3, 6], INT32))
    equal(client.call("ApplyRotary", packed).q, by_token.reshape(6, 4, 8))


@pytest.mark.parametrize("dtype", FLOATS)
def test_layers_in_one_call_are_as_each_alone(client, dtype):
    """docs/choosing.md: the layers are the batch, the sequences of a step its tokens."""
    ids, layers = numpy.array([17, 400, 100_000]), 5
    q, k = random_values((layers, 3, 4, 8), dtype), random_values((layers, 3, 1, 8), dtype, seed=1)
    whole = samples.rotary(q, k, dtype)
    whole.positions.ids.CopyFrom(tensor(ids, INT64))
    answer = client.call("ApplyRotary", whole)
    # The form for frequencies that depend on a sequence's length.
    apart = samples.rotary(q.reshape(-1, 1, 4, 8), k.reshape(-1, 1, 1, 8), dtype)
    apart.positions.offsets.offset.extend(numpy.tile(ids, layers))
    by_sequence = client.call("ApplyRotary", apart)
    for name in "qk":
        rotated = array(getattr(answer, name))
        equal(getattr(by_sequence, name), rotated.reshape(-1, 1, *rotated.shape[2:]))
        for layer in range(layers):
            for sequence, position in enumerate(ids):
                row = (slice(layer, layer + 1), slice(sequence, sequence + 1))
                alone = client.call("ApplyRotary", samples.rotary(q[row], k[row], dtype, int(position)))
                equal(getattr(alone, name), rotated[row])


def test_only_the_rotary_part_of_a_head_changes(client):
    q = random_values((1, 2, 1, 24), FP32)
    request = samples.rotary(q)
    request.q.rotary_offset = 12
    answer = array(client.call("ApplyRotary", request).q)
    expected = q.copy()
    cos, sin = formulas.table(formulas.rope_inv_freq(10000, 8), range(2))
    expected[..., 12:20] = formulas.rotate(q[..., 12:20], cos[None, :, None, :], sin[None, :, None, :], False)
    assert (answer == expected).all()


def test_inverse_undoes_what_transpose_transposes(client):
    q = random_values((1, 5, 2, 8), FP32)
    forward = samples.rotary(q, offset=1000)
    turned = client.call("ApplyRotary", forward)
    back = samples.rotary(array(turned.q), offset=1000)
    for direction in (rotary_pb2.DIRECTION_INVERSE, rotary_pb2.DIRECTION_TRANSPOSE):
        back.direction = direction
        assert abs(array(client.call("ApplyRotary", back).q) - q).max() < 1e-6  # three float32 roundings of O(1)


def test_a_config_json_means_what_its_settings_mean(client, configs):
    config = (configs / "llama-3.1-8b.json").read_bytes()
    answer = client.call("GenerateTable", samples.model_table(config, count=3))
    inv_freq = formulas.llama3_inv_freq(500000, 128, 8, 1, 4, 8192)
    cos, sin = formulas.table(inv_freq, range(3))
    equal(answer.cos, cos)
    equal(answer.sin, sin)

    explained = client.call("Explain", service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(config_json=config)))
    assert [list(layer.layer_index) for layer in explained.layers] == [list(range(32))]
    info = explained.layers[0].info
    assert list(info.plan.frequencies[0].inv_freq) == inv_freq
    assert info.sequences[0].attention_scaling == 1 and info.plan.softmax_scale_factor == 1
    assert info.plan_fingerprint == answer.info.plan_fingerprint and len(info.plan_fingerprint) == 16

    canonical = samples.model_table(config, count=3)
    canonical.rotary.settings.CopyFrom(info.plan.rotary)
    again = client.call("GenerateTable", canonical)
    assert (again.cos, again.sin) == (answer.cos, answer.sin)
    assert again.info.plan_fingerprint == answer.info.plan_fingerprint


def test_explain_answers_for_every_layer_type(client, configs):
    config = (configs / "gemma-3-1b-it.json").read_bytes()
    answer = client.call("Explain", service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(config_json=config)))
    thetas = {layer.layer_type: layer.info.plan.rotary.rope_parameters.rope_theta for layer in answer.layers}
    assert thetas == {"sliding_attention": 10000, "full_attention": 1000000}
    assert sorted(n for layer in answer.layers for n in layer.layer_index) == list(range(26))


def test_the_plan_comes_only_when_asked_for(client):
    request = samples.rotary()
    assert not client.call("ApplyRotary", request).info.HasField("plan")
    request.hints.return_plan = True
    plan = client.call("ApplyRotary", request).info.plan
    assert list(plan.frequencies[0].inv_freq) == formulas.rope_inv_freq(10000, 8)


@pytest.mark.parametrize("dtype", (FP32, FP16, BF16, FP64))
@pytest.mark.parametrize("interleaved", (True, False))
def test_sinusoidal_embedding(client, dtype, interleaved):
    convention = (embedding_pb2.SINUSOIDAL_CONVENTION_INTERLEAVED if interleaved
                  else embedding_pb2.SINUSOIDAL_CONVENTION_HALVES)
    answer = client.call("GenerateEmbedding", samples.embedding(32, 5, dtype, convention))
    equal(answer.embedding, formulas.sinusoidal(32, range(5), dtype, interleaved))


@pytest.mark.parametrize("dtype", (FP32, FP16, BF16, FP64))
def test_timestep_embedding(client, dtype):
    times = (0.0, 0.7, 17.25, -3.0, 999.0)
    answer = client.call("GenerateEmbedding", samples.timestep(9, times, dtype))
    equal(answer.embedding, formulas.timestep(9, times, dtype))
    flux = {"downscale_freq_shift": 0, "flip_sin_to_cos": True}
    answer = client.call("GenerateEmbedding", samples.timestep(32, times, dtype, scale=1000, **flux))
    equal(answer.embedding, formulas.timestep(32, times, dtype, shift=0, scale=1000, flip=True))


@pytest.mark.parametrize("dtype", (FP32, BF16, FP64))
def test_grid_embeddings(client, dtype):
    height, width = 3, 5
    y, x = (axis.ravel() for axis in numpy.mgrid[:height, :width])

    def rows(*axes):
        return numpy.concatenate(axes, -1)

    mae = samples.grid(24, height, width, dtype, embedding_pb2.GRID_CONVENTION_MAE, extra_tokens=1)
    cells = rows(formulas.grid_axis(x, 12, dtype), formulas.grid_axis(y, 12, dtype))
    equal(client.call("GenerateEmbedding", mae).embedding, rows(numpy.zeros((24, 1)), cells.T).T)

    big_vision = samples.grid(24, height, width, dtype, embedding_pb2.GRID_CONVENTION_BIG_VISION)
    equal(client.call("GenerateEmbedding", big_vision).embedding,
          rows(formulas.grid_axis(x, 12, dtype, spread=5), formulas.grid_axis(y, 12, dtype, spread=5)))

    diffusers = samples.grid(24, height, width, dtype, base_size=7, interpolation_scale=2)
    equal(client.call("GenerateEmbedding", diffusers).embedding,
          rows(formulas.grid_axis(x, 12, dtype, mpmath.mpf(7) / width / 2),
               formulas.grid_axis(y, 12, dtype, mpmath.mpf(7) / height / 2)))

    video = samples.grid(32, height, width, dtype, frames=2, temporal_interpolation_scale=3)
    equal(client.call("GenerateEmbedding", video).embedding,
          rows(formulas.grid_axis(numpy.repeat((0, 1), 15), 8, dtype, mpmath.mpf(1) / 3),
               formulas.grid_axis(numpy.tile(x, 2), 12, dtype), formulas.grid_axis(numpy.tile(y, 2), 12, dtype)))


@pytest.mark.parametrize("dtype", (FP32, FP16, BF16, FP64))
def test_fourier_features(client, dtype):
    random = numpy.random.default_rng(3)
    frequencies, points = 10 * random.standard_normal((6, 2)), random.random((4, 2))
    frequencies[0], points[0] = (1, 2), (0.25, 0.5)
    answer = client.call("GenerateEmbedding", samples.fourier(frequencies, points, dtype))
    equal(answer.embedding, formulas.fourier(points, frequencies, dtype))


def test_learned_rows(client):
    table = numpy.arange(12).reshape(6, 2)
    request = samples.learned(table, offset=2, table_dtype=BF16)
    request.positions.ids.CopyFrom(tensor([[3, -2], [0, 1]], INT64))
    equal(client.call("GenerateEmbedding", request).embedding, table[[[5, 0], [2, 3]]])
    request.positions.ids.CopyFrom(tensor([[3, -2], [0, 4]], INT64))
    refusal = client.refusal("GenerateEmbedding", request)
    assert (refusal.reason, refusal.field, refusal.value) == ("OUT_OF_RANGE", "positions[3]", "4")
    assert refusal.limit == "must be a row of the table: its 6 rows are for positions -2 .. 3"


@pytest.mark.parametrize("dtype", FLOATS)
def test_embedding_added_to_a_batch(client, dtype):
    x, table = random_values((2, 5, 3, 4), dtype), random_values((3, 4), FP32)
    request = samples.learned(table, dtype=0)
    request.positions.offset, request.count = 0, 3
    request.add_to.CopyFrom(tensor(x, dtype))
    equal(client.call("GenerateEmbedding", request).embedding, rounded(x + table, dtype))
    request.precision.preset = rotary_pb2.PRECISION_PRESET_HF_EAGER
    equal(client.call("GenerateEmbedding", request).embedding, rounded(x + rounded(table, dtype), dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("heads", (4, 12))
def test_alibi_bias(client, heads, dtype):
    request = samples.bias(heads, queries=3, keys=5, dtype=dtype)
    request.geometry.query_offset = 2
    distance = (numpy.arange(3)[:, None] + 2) - numpy.arange(5)
    slopes = formulas.alibi_slopes(heads)[:, None, None]
    expected = numpy.where(distance > 0, -slopes * distance.astype("<f4"), numpy.float32(0))
    answer = client.call("GenerateBias", request)
    assert (array(answer.bias) == rounded(expected, dtype)).all()

    request.mask.CopyFrom(samples.causal_mask())
    masked = array(client.call("GenerateBias", request).bias)
    assert (masked == numpy.where(distance >= 0, rounded(expected, dtype), -numpy.inf)).all()


def test_compact_bias_holds_the_dense_one(client):
    symmetric = bias_pb2.ALIBI_FORM_SYMMETRIC
    dense = array(client.call("GenerateBias", samples.bias(queries=4, keys=4, alibi_form=symmetric)).bias)
    compact = array(client.call("GenerateBias", samples.bias(
        queries=4, keys=4, alibi_form=symmetric, form=bias_pb2.BIAS_FORM_COMPACT)).bias)
    assert compact.shape == (4, 7)
    cells = numpy.arange(4) - numpy.arange(4)[:, None] + 3
    assert (compact[:, cells] == dense).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_bias_added_to_scores(client, dtype):
    scores = random_values((2, 4, 3, 3), dtype)
    request = service_pb2.AddBiasRequest(
        method=bias_pb2.BiasMethod(alibi=samples.alibi()), mask=samples.causal_mask(), scores=tensor(scores, dtype))
    request.mask.key_valid.CopyFrom(tensor([[True, True, True], [False, True, True]], BOOL))
    bias = array(client.call("GenerateBias", samples.bias()).bias)
    expected = rounded(scores + bias, dtype)
    visible = numpy.tril(numpy.ones((3, 3), bool)) & numpy.array([[True] * 3, [False, True, True]])[:, None, None, :]
    equal(client.call("AddBias", request).scores, numpy.where(visible, expected, -numpy.inf))


def test_empty_tensors_are_legal(client):
    q = client.call("ApplyRotary", samples.rotary(numpy.ones((0, 2, 1, 8)), numpy.ones((0, 2, 3, 8))))
    assert list(q.q.shape) == [0, 2, 1, 8] and list(q.k.shape) == [0, 2, 3, 8] and q.q.data == q.k.data == b""
    answer = client.call("GenerateTable", samples.table(count=0))
    assert list(answer.cos.shape) == [0, 4] and answer.cos.data == b""
    tiles = client.call("StreamTable", samples.stream(count=0))
    assert [list(tile.cos.shape) for tile in tiles] == [[0, 4]] and tiles[0].HasField("info")
    assert list(client.call("GenerateEmbedding", samples.embedding(count=0)).embedding.shape) == [0, 8]
    assert list(client.call("GenerateBias", samples.bias(queries=0, keys=0)).bias.shape) == [4, 0, 0]

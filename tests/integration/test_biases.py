"""Compares bias methods other than ALiBi, and every mask, over gRPC with numpy."""

import bias_formulas as formulas
import numpy
import pytest
import samples
from posenc.v1 import bias_pb2, rotary_pb2, service_pb2
from tensors import BF16, BOOL, FP16, FP32, INT32, array, rounded, tensor

ROWS_FIRST, HEADS_FIRST = bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS, bias_pb2.BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS
DENSE, COMPACT, INDEX, COMPACT_INDEX = (
    bias_pb2.BIAS_FORM_DENSE, bias_pb2.BIAS_FORM_COMPACT, bias_pb2.BIAS_FORM_INDEX, bias_pb2.BIAS_FORM_COMPACT_INDEX)
QUERIES, KEYS = 7, 300


def weights(*shape, seed=1):
    return numpy.random.default_rng(seed).standard_normal(shape).astype("<f4")


def request(method, queries=None, keys=None, form=DENSE, dtype=FP32):
    made = service_pb2.GenerateBiasRequest(method=method, form=form, dtype=dtype)
    if queries is not None:
        made.geometry.query_length, made.geometry.key_length = queries, keys
        made.geometry.query_offset = keys - queries
    return made


def distances(queries=QUERIES, keys=KEYS):
    """Returns key - query."""
    return numpy.arange(keys) - (numpy.arange(queries)[:, None] + keys - queries)


def t5(bidirectional, table=None, layout=ROWS_FIRST):
    method = bias_pb2.BiasMethod(t5=bias_pb2.T5Bias(bidirectional=bidirectional))
    if table is not None:
        method.table.CopyFrom(tensor(table, FP32))
        method.table_layout = layout
    return method


@pytest.mark.parametrize("bidirectional", (True, False))
def test_t5(client, bidirectional):
    table = weights(32, 6)
    buckets = numpy.vectorize(lambda r: formulas.t5_bucket(int(r), 32, 128, bidirectional))(distances())
    expected = table[buckets].transpose(2, 0, 1)
    for layout, stored in ((ROWS_FIRST, table), (HEADS_FIRST, table.T)):
        answer = client.call("GenerateBias", request(t5(bidirectional, stored, layout), QUERIES, KEYS))
        assert (array(answer.bias) == expected).all()
    index = client.call("GenerateBias", request(t5(bidirectional), QUERIES, KEYS, INDEX, INT32))
    assert (array(index.bias) == buckets).all()
    compact = array(client.call("GenerateBias", request(t5(bidirectional), QUERIES, KEYS, COMPACT_INDEX, INT32)).bias)
    assert (compact[distances() - distances().min()] == buckets).all()


@pytest.mark.parametrize("kernel", ("log", "power"))
def test_kerple(client, kernel):
    a, p = [0.5, 1, 2], [1, 0.25, 1.75]
    method = bias_pb2.BiasMethod(kerple=bias_pb2.Kerple(
        kernel=bias_pb2.KerpleKernel.Value(f"KERPLE_KERNEL_{kernel.upper()}"), a=a, p=p))
    expected = formulas.kerple(kernel, a, p, distances())
    for dtype in (FP32, FP16, BF16):
        answer = array(client.call("GenerateBias", request(method, QUERIES, KEYS, dtype=dtype)).bias)
        assert (answer == rounded(expected.astype("<f4"), dtype)).mean() > 0.999  # float64 rarely rounds differently
        assert numpy.allclose(answer, expected, rtol=2 ** -7)
    compact = array(client.call("GenerateBias", request(method, QUERIES, KEYS, COMPACT)).bias)
    dense = array(client.call("GenerateBias", request(method, QUERIES, KEYS)).bias)
    assert (compact[:, distances() - distances().min()] == dense).all()


@pytest.mark.parametrize("paper", (True, False))
def test_sandwich(client, paper):
    convention = bias_pb2.SANDWICH_CONVENTION_PAPER if paper else bias_pb2.SANDWICH_CONVENTION_SNIPPET
    method = bias_pb2.BiasMethod(sandwich=bias_pb2.Sandwich(convention=convention, num_heads=12))
    answer = array(client.call("GenerateBias", request(method, QUERIES, KEYS)).bias)
    expected = formulas.sandwich(paper, 12, 128, distances())
    assert numpy.allclose(answer, expected, rtol=1e-6, atol=1e-5)
    assert (answer == expected.astype("<f4")).mean() > 0.999


@pytest.mark.parametrize("height, width", ((7, 7), (2, 5)))
def test_swin(client, height, width):
    table = weights((2 * height - 1) * (2 * width - 1), 3)
    method = bias_pb2.BiasMethod(swin=bias_pb2.SwinBias(window_height=height, window_width=width),
                                 table=tensor(table, FP32), table_layout=ROWS_FIRST)
    index = formulas.swin_index(height, width)
    assert (array(client.call("GenerateBias", request(method)).bias) == table[index].transpose(2, 0, 1)).all()
    assert (array(client.call("GenerateBias", request(method, form=INDEX, dtype=INT32)).bias) == index).all()


def test_beit(client):
    table = weights(7 * 3 + 3, 3)
    method = bias_pb2.BiasMethod(
        beit=bias_pb2.BeitBias(window_height=2, window_width=4, table=bias_pb2.BEIT_TABLE_PLAIN),
        table=tensor(table, FP32), table_layout=ROWS_FIRST)
    index = formulas.beit_index(2, 4)
    assert (array(client.call("GenerateBias", request(method)).bias) == table[index].transpose(2, 0, 1)).all()
    assert (array(client.call("GenerateBias", request(method, form=INDEX, dtype=INT32)).bias) == index).all()
    method.beit.table = bias_pb2.BEIT_TABLE_TRANSFORMERS
    resized = array(client.call("GenerateBias", request(method)).bias)
    assert (resized != table[index].transpose(2, 0, 1)).any() and (resized[:, 0] == table[index[0]].T).all()


def test_swin_v2(client):
    hidden, bias, output = weights(512, 2), weights(512, seed=2), weights(4, 512, seed=3) / 16
    method = bias_pb2.BiasMethod(swin_v2=bias_pb2.SwinV2Bias(
        window_height=8, window_width=6, hidden_weight=tensor(hidden, FP32), hidden_bias=tensor(bias, FP32),
        output_weight=tensor(output, FP32)))
    answer = array(client.call("GenerateBias", request(method)).bias)
    expected = formulas.swin_v2(8, 6, hidden, bias, output)
    assert numpy.allclose(answer, expected, rtol=1e-6)
    assert (answer == expected.astype("<f4")).mean() > 0.999


def random_mask(random, batch, queries, keys):
    """Returns a mask message and the cells that it shows, [batch, 1, queries, keys]."""
    mask = bias_pb2.Mask(fill_value=-1e4, fully_masked_row=bias_pb2.FULLY_MASKED_ROW_FILL, causal=bool(random.integers(2)))
    j, i = numpy.arange(keys), numpy.arange(queries)[:, None] + keys - queries
    prefix = random.integers(0, keys, batch)
    valid = random.integers(0, 4, (batch, keys)) > 0
    documents = random.integers(0, 3, (batch, queries)), random.integers(0, 3, (batch, keys))
    shown = valid[:, None, None, :] & numpy.ones((1, 1, queries, 1), bool)
    mask.key_valid.CopyFrom(tensor(valid, BOOL))
    if random.integers(2):
        mask.query_documents.CopyFrom(tensor(documents[0], INT32))
        mask.key_documents.CopyFrom(tensor(documents[1], INT32))
        shown = shown & (documents[0][:, None, :, None] == documents[1][:, None, None, :])
    if mask.causal:
        below = j <= i
        if random.integers(2):
            mask.prefix_length.extend(int(length) for length in prefix)
            below = below | (j < prefix[:, None, None, None])
        shown = shown & below
    if random.integers(2):
        mask.window_left = int(random.integers(keys))
        shown = shown & (j >= i - mask.window_left)
    if random.integers(2):
        mask.window_right = int(random.integers(keys))
        shown = shown & (j <= i + mask.window_right)
    return mask, shown


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ("nope", "t5", "kerple"))
def test_masks(client, name, seed):
    random = numpy.random.default_rng(seed)
    mask, shown = random_mask(random, 2, 5, 9)
    method = {"nope": bias_pb2.BiasMethod(nope=bias_pb2.Nope()), "t5": t5(True, weights(32, 3)),
              "kerple": bias_pb2.BiasMethod(kerple=bias_pb2.Kerple(kernel=bias_pb2.KERPLE_KERNEL_LOG, a=[1] * 3, p=[2] * 3))}
    plain = request(method[name], 5, 9)
    bias = array(client.call("GenerateBias", plain).bias)
    masked = request(method[name], 5, 9)
    masked.mask.CopyFrom(mask)
    assert (array(client.call("GenerateBias", masked).bias) == numpy.where(shown, bias, numpy.float32(-1e4))).all()

    scores = random.standard_normal((2, 3, 5, 9)).astype("<f4")
    added = service_pb2.AddBiasRequest(method=method[name], geometry=masked.geometry, mask=mask, scores=tensor(scores, FP32))
    expected = numpy.where(shown, scores + bias, numpy.float32(-1e4))
    assert (array(client.call("AddBias", added).scores) == expected).all()


def test_a_t5_config_json(client, configs):
    config = (configs / "t5-small.json").read_bytes()
    model = rotary_pb2.ModelConfig(config_json=config, component="decoder")
    method = bias_pb2.BiasMethod(model=model, table=tensor(weights(32, 8), FP32), table_layout=ROWS_FIRST)
    answer = client.call("GenerateBias", request(method, 4, 9))
    assert (array(answer.bias) == array(client.call("GenerateBias", request(t5(False, weights(32, 8)), 4, 9)).bias)).all()
    plan = client.call("Explain", service_pb2.ExplainRequest(model=model)).layers[0].info.plan
    assert plan.bias.t5 == bias_pb2.T5Bias(num_buckets=32, max_distance=128, bidirectional=False)
    method.model.component = ""
    refusal = client.refusal("GenerateBias", request(method, 4, 9))
    assert refusal.reason == "MISSING" and "encoder" in refusal.limit


def test_explained_settings_give_the_same_bytes(client):
    asked = request(bias_pb2.BiasMethod(kerple=bias_pb2.Kerple(
        kernel=bias_pb2.KERPLE_KERNEL_POWER, a=[0.001, 3], p=[5, 1])), 3, 8)
    asked.hints.return_plan = True
    answer = client.call("GenerateBias", asked)
    assert list(answer.info.plan.bias.kerple.a) == [0.01, 3] and list(answer.info.plan.bias.kerple.p) == [2, 1]
    asked.method.CopyFrom(answer.info.plan.bias)
    again = client.call("GenerateBias", asked)
    assert again == answer and len(answer.info.plan_fingerprint) == 16

"""Every method, on a server and in this process, with the same bytes; and the kinds of tensors."""

import array
import math

import array_api_strict
import ml_dtypes
import numpy as np
import pytest
from conftest import LLAMA

import posenc

SETTINGS = {"rope_parameters": {"rope_type": "default"}, "rotary_dim": 8, "input_pairing": "HALF_SPLIT"}
ALIBI = {"alibi": {"num_heads": 2, "rule": "POWER_OF_TWO", "form": "CAUSAL"}}
SQUARE = {"query_length": 3, "key_length": 3}
RANDOM = np.random.default_rng(20261124)


def tensor(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


def rotated(x, position, theta=10000.0):
    """RoPE of the last axis by the paper's formula, in float64, half-split."""
    half = x.shape[-1] // 2
    angles = position * theta ** (-np.arange(half) / half)
    a, b = x[..., :half].astype(np.float64), x[..., half:].astype(np.float64)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)


Q, K = tensor(1, 3, 4, 128), tensor(1, 3, 2, 128)
SHAW = {"shaw": {"table": tensor(5, 4), "order": "KEY_MINUS_QUERY", "clip": True}}
# Each RPC once: a method's name and its arguments.
KINDS = np.array([[0, 1, 1, 1, 1, 0]])
CALLS = {
    "rope": lambda c: c.rope(Q, K, model=LLAMA, positions=7, layout="BSHD"),
    "rope_by_ids": lambda c: c.rope(Q, settings={**SETTINGS, "rotary_dim": 128}, positions=np.array([5, 9, 2]), layout="BSHD"),
    "table": lambda c: c.table(model=LLAMA, positions=3, count=5, dtype="FP64", form="DUPLICATED"),
    "bias": lambda c: c.bias(method=ALIBI, geometry=SQUARE, form="DENSE", dtype="BF16"),
    "add_bias": lambda c: c.add_bias(tensor(1, 2, 3, 3) * 0 + 1, method=ALIBI),
    "scores": lambda c: c.scores(tensor(1, 2, 3, 4) * 0 + 1, method=SHAW, layout="BHSD", content=False, dtype="FP32"),
    "values": lambda c: c.values(np.full((1, 2, 3, 3), 0.25, np.float32), shaw=SHAW["shaw"], layout="BHSD", dtype="FP32"),
    "embedding": lambda c: c.embedding(sinusoidal={"convention": "INTERLEAVED", "dim": 8}, positions=0, count=4, dtype="FP32"),
    "embedding_added": lambda c: c.embedding(sinusoidal={"convention": "INTERLEAVED", "dim": 8}, positions=0, count=4,
                                             add_to=np.ones((2, 4, 8), np.float32)),
    "explain": lambda c: c.explain(LLAMA),
    "analyze": lambda c: c.analyze(model=LLAMA, distances=0, count=4),
    "compare": lambda c: c.compare(LLAMA, {**LLAMA, "rope_theta": 1e4}),
    "compare_settings": lambda c: c.compare({"rotary": SETTINGS}, {"bias": ALIBI}),
    "positions": lambda c: c.positions(model={"model_type": "qwen2_vl"}, mm_token_type_ids=KINDS,
                                       image_grid_thw=np.array([[1, 4, 4]])),
    "diagnose": lambda c: c.diagnose(Q, rotated(Q, np.arange(3)[:, None, None]).astype(np.float32),
                                     settings={**SETTINGS, "rotary_dim": 128}, positions=0, layout="BSHD"),
}
CALLS["diagnose_bias"] = lambda c: c.diagnose_bias(
    np.broadcast_to(-np.abs(np.arange(8) - np.arange(8)[:, None]).astype(np.float32), (1, 8, 8)) / 2, return_values=True)


def plain(value):
    """An answer as dicts and lists, with tensors as type, shape and bytes; without what names the place."""
    if isinstance(value, posenc.Message):
        return {name: plain(getattr(value, name)) for name in value._type.fields if name != "device"}
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return [plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", CALLS)
def test_the_answers_are_the_same_in_both_places(name, remote, local):
    theirs, ours = CALLS[name](remote), CALLS[name](local)
    assert type(theirs) is type(ours)
    theirs, ours = plain(theirs), plain(ours)
    if name == "diagnose":  # the server may have another C library, whose functions are in what is measured
        measured = [answer.pop("measured").pop("inv_freq") for answer in (theirs, ours)]
        np.testing.assert_allclose(*measured, rtol=1e-14)
    assert theirs == ours


def test_every_unary_rpc_is_called():
    called = {"ApplyRotary", "GenerateTable", "GenerateBias", "AddBias", "RelativeScores", "RelativeValues",
              "GenerateEmbedding", "Explain", "Analyze", "Compare", "Positions", "Diagnose", "DiagnoseBias", "GetServerInfo"}
    from posenc._descriptors import api
    assert called == {name for name in api().rpcs if not name.startswith("Stream")}


def test_numbers(client):
    answer = client.rope(Q, settings={**SETTINGS, "rotary_dim": 128}, positions=7, layout="BSHD")
    assert np.allclose(answer.q, rotated(Q, 7 + np.arange(3)[:, None, None]), atol=1e-6)
    assert answer.info.rotary_dim == 128 and answer.info.input_pairing == "HALF_SPLIT" and answer.k is None
    cos, sin = client.table(settings=SETTINGS, positions=1, count=1, dtype="FP64", form="HALF_WIDTH")
    assert cos[0, 0] == math.cos(1) and sin[0, 0] == math.sin(1)
    bias = client.bias(method=ALIBI, geometry=SQUARE, form="DENSE", dtype="FP32").bias
    assert bias.tolist() == [[[0, 0, 0], [-s, 0, 0], [-2 * s, -s, 0]] for s in (1 / 16, 1 / 256)]
    sums = client.add_bias(np.ones((1, 2, 3, 3), np.float32), method=ALIBI).scores
    assert (sums == 1 + bias).all()
    encoding = client.embedding(sinusoidal={"convention": "INTERLEAVED", "dim": 8}, positions=0, count=2, dtype="FP32").embedding
    assert encoding[0].tolist() == [0, 1, 0, 1, 0, 1, 0, 1] and encoding[1, 0] == np.float32(math.sin(1))
    values = client.values(np.full((1, 2, 3, 3), 0.25, np.float32), shaw=SHAW["shaw"], layout="BHSD", dtype="FP32").values
    table = SHAW["shaw"]["table"]
    assert np.allclose(values[0, 0, 1], 0.25 * (table[1] + table[2] + table[3]), atol=1e-6)
    scores = client.scores(np.ones((1, 1, 3, 4), np.float32), method=SHAW, layout="BHSD", content=False, dtype="FP32").scores
    assert np.allclose(scores[0, 0, 1] * 2, [table[row].sum() for row in (1, 2, 3)], atol=1e-5)


def test_positions(client):
    answer = CALLS["positions"](client)
    assert answer.ids[:, 0].tolist() == [[0, 1, 1, 1, 1, 3], [0, 1, 1, 2, 2, 3], [0, 1, 2, 1, 2, 3]]
    assert answer.rope_deltas.tolist() == [-2] and answer.axes == ["t", "h", "w"]
    assert [span.kind for span in answer.spans] == ["TEXT", "IMAGE", "TEXT"]


def test_words(client):
    assert "128 elements of a head rotate" in client.explain(LLAMA).layers[0].text[0].sentence[0]
    assert client.compare(LLAMA, dict(LLAMA)).same and not client.compare(LLAMA, {**LLAMA, "rope_theta": 1e4}).same
    after = client.rope(Q, model=LLAMA, positions=3, layout="BSHD").q
    found = client.diagnose(Q, after, model=LLAMA, positions=3, layout="BSHD")
    assert found.explanations[0].sentence == "the model's encoding was applied"
    curves = client.analyze(model=LLAMA, distances=0, count=4)
    assert curves.cosine_sum[0] == len(curves.pairs) == 64
    slopes = CALLS["diagnose_bias"](client)
    assert slopes.follows == "DISTANCE" and slopes.values.shape == (1, 15)
    assert client.info().limits.max_tensor_rank == 8


def test_settings_of_an_answer_can_be_sent_back(client):
    settings = client.explain(LLAMA).layers[0].info.plan.rotary
    expected = client.rope(Q, model=LLAMA, positions=3, layout="BSHD").q
    for form in (settings, settings.to_dict()):
        assert (client.rope(Q, settings=form, positions=3, layout="BSHD").q == expected).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_types(client, dtype):
    q = Q.astype(dtype)
    answer = client.rope(q, q, model=LLAMA, positions=3, layout="BSHD")
    for one in answer:
        assert one.dtype == q.dtype and one.shape == q.shape and one.flags.writeable
    assert np.allclose(answer.q.astype(np.float32), client.rope(Q, model=LLAMA, positions=3, layout="BSHD").q, atol=0.05)


def test_strided_and_big_endian_arrays_are_converted(client):
    expected = client.rope(Q, model=LLAMA, positions=3, layout="BSHD").q
    for q in (Q.astype(">f4"), np.asfortranarray(Q), np.repeat(Q, 2, axis=-1)[..., ::2], Q[:, ::-1][:, ::-1]):
        assert (client.rope(q, model=LLAMA, positions=3, layout="BSHD").q == expected).all()
    ids = np.array([3, 0, 4, 0, 5, 0], ">i8")[::2]
    assert (client.rope(Q, model=LLAMA, positions=ids, layout="BSHD").q == expected).all()


@pytest.mark.parametrize("bad", [Q.astype(np.complex64), Q.astype(object), Q.astype(np.uint16), Q.astype(np.longdouble)])
def test_other_types_are_refused(client, bad):
    with pytest.raises(posenc.InvalidArgument, match="q.tensor.dtype.*must be float32") as caught:
        client.rope(bad, model=LLAMA, positions=3, layout="BSHD")
    assert caught.value.reason == "UNSUPPORTED"


def test_arrays_of_the_array_api(client):
    expected = client.rope(Q, model=LLAMA, positions=3, layout="BSHD").q
    answer = client.rope(array_api_strict.asarray(Q), model=LLAMA, positions=3, layout="BSHD").q
    assert isinstance(answer, type(array_api_strict.asarray(Q)))
    assert array_api_strict.all(answer == array_api_strict.asarray(expected))


def test_buffers_and_lists(client):
    expected = client.table(settings=SETTINGS, positions=np.array([1, 5, 2]), dtype="FP32", form="HALF_WIDTH").cos
    for ids in (array.array("q", [1, 5, 2]), memoryview(np.array([1, 5, 2])), [1, 5, 2], np.array([1, 5, 2], np.int32)):
        assert (client.table(settings=SETTINGS, positions=ids, dtype="FP32", form="HALF_WIDTH").cos == expected).all()
    assert client.table(settings=SETTINGS, positions=np.int32(1), count=1, dtype="FP32", form="HALF_WIDTH").cos[0, 0] == (
        expected[0, 0])


class OnlyDLPack:
    def __init__(self, values):
        self._values = values

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


def test_objects_with_dlpack(client):
    answer = client.rope(OnlyDLPack(Q), model=LLAMA, positions=3, layout="BSHD").q
    assert (answer == client.rope(Q, model=LLAMA, positions=3, layout="BSHD").q).all()


def test_empty_tensors(client):
    q = np.zeros((1, 0, 4, 128), np.float32)
    answer = client.rope(q, K[:, :0], model=LLAMA, positions=0, layout="BSHD")
    assert answer.q.shape == q.shape and answer.k.shape == (1, 0, 2, 128)


def test_out(client):
    expected = client.rope(Q, K, model=LLAMA, positions=3, layout="BSHD")
    out = [np.empty_like(Q), np.empty_like(K)]
    answer = client.rope(Q, K, model=LLAMA, positions=3, layout="BSHD", out=out)
    assert answer.q is out[0] and answer.k is out[1]
    assert (out[0] == expected.q).all() and (out[1] == expected.k).all()
    assert answer.info.rotary_dim == 128
    q = Q.copy()
    client.rope(q, model=LLAMA, positions=3, layout="BSHD", out=[q])
    assert (q == expected.q).all()
    scores = np.ones((1, 2, 3, 3), np.float32)
    client.add_bias(scores, method=ALIBI, out=[scores])
    assert scores[0, 0, 1, 0] == 1 - 1 / 16


def test_out_is_checked(client):
    read_only = np.empty_like(Q)
    read_only.flags.writeable = False
    for out, message in (([np.empty_like(Q, dtype=np.float64)], "must be float32"), ([np.empty_like(Q)[:, :2]], "out.0.: is"),
                         ([np.empty_like(Q).astype(">f4")], "little-endian"), ([read_only], "must be writable"),
                         ([array_api_strict.asarray(Q)], "must be a NumPy array"),
                         ([np.empty_like(Q), np.empty_like(Q)], "answer has no such tensor")):
        with pytest.raises(posenc.InvalidArgument, match=message):
            client.rope(Q, model=LLAMA, positions=3, layout="BSHD", out=out)


def overlapping_outputs(memory):
    """Pairs of outputs for Q and K with memory in common, made of a flat tensor."""
    whole = memory[:Q.size].reshape(Q.shape)
    return [(whole, memory[:K.size].reshape(K.shape)), (whole, memory[Q.size - 1:Q.size - 1 + K.size].reshape(K.shape)),
            (memory[K.size - 1:K.size - 1 + Q.size].reshape(Q.shape), memory[:K.size].reshape(K.shape))]


def test_outputs_must_not_overlap(client):
    """One result would overwrite the other."""
    with pytest.raises(posenc.InvalidArgument) as caught:
        client.rope(Q, Q, model=LLAMA, positions=3, layout="BSHD", out=[same := np.empty_like(Q), same])
    assert caught.value.reason == "CONFLICT" and caught.value.field == "out[1]"
    for out in overlapping_outputs(np.empty(Q.size + K.size, np.float32)):
        with pytest.raises(posenc.InvalidArgument, match=r"out.1.: is in the memory of out.0."):
            client.rope(Q, K, model=LLAMA, positions=3, layout="BSHD", out=out)


def test_outputs_side_by_side(client):
    expected = client.rope(Q, K, model=LLAMA, positions=3, layout="BSHD")
    memory = np.empty(Q.size + K.size, np.float32)
    out = memory[:Q.size].reshape(Q.shape), memory[Q.size:].reshape(K.shape)
    client.rope(Q, K, model=LLAMA, positions=3, layout="BSHD", out=out)
    assert (out[0] == expected.q).all() and (out[1] == expected.k).all()


@pytest.mark.parametrize("shift", [0, 1, Q.size - 1])
def test_an_output_in_the_memory_of_another_operand(client, shift):
    """All operands are read before an output overwrites them."""
    expected = client.rope(Q, Q + 1, model=LLAMA, positions=3, layout="BSHD")
    memory = np.empty(3 * Q.size, np.float32)
    q, k = memory[:Q.size].reshape(Q.shape), memory[Q.size:2 * Q.size].reshape(Q.shape)
    q[:], k[:] = Q, Q + 1
    out = memory[Q.size + shift:2 * Q.size + shift].reshape(Q.shape), np.empty_like(Q)
    client.rope(q, k, model=LLAMA, positions=3, layout="BSHD", out=out)
    assert (out[0] == expected.q).all() and (out[1] == expected.k).all()


def test_an_answer_of_64_mib(client):
    q = np.ones((1, 2048, 64, 128), np.float32)
    answer = client.rope(q, settings={**SETTINGS, "rotary_dim": 128}, positions=0, layout="BSHD").q
    assert answer.nbytes == 64 << 20
    assert np.allclose(answer[0, -1, 0], rotated(q[0, -1, 0], 2047), atol=1e-5)


def test_answers_outlive_their_client():
    client = posenc.local()
    table = client.table(settings=SETTINGS, positions=0, count=1000, dtype="FP32", form="HALF_WIDTH")
    cos = table.cos
    client.close()
    del client, table
    assert cos[0].tolist() == [1, 1, 1, 1]
    cos[0] = 2
    with pytest.raises(ValueError, match="closed"):
        closed = posenc.local()
        closed.close()
        closed.info()

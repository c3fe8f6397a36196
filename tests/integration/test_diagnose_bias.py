"""Tests `posenc diagnose-bias` and its RPC on biases that numpy made by the papers' formulas."""

import json
import math

import numpy
import pytest
import samples
from bias_formulas import kerple, swin_index, t5_bucket
from google.protobuf import json_format
from posenc.v1 import bias_pb2, diagnose_pb2, service_pb2
from tensors import BF16, FP16, FP32, FP64, INT32, array, rounded, tensor

INVALID = "INVALID_ARGUMENT"
LOWEST = {FP32: numpy.finfo("f4").min, FP16: -65504.0, BF16: -3.3895313892515355e38, FP64: numpy.finfo("f8").min}


def slopes(heads):
    """arXiv:2108.12409's released code, rounded to float32 at the end."""
    def of_power(n):
        return [2.0 ** (-8.0 * (h + 1) / n) for h in range(n)]
    below = 2 ** math.floor(math.log2(heads))
    return numpy.array(of_power(below) + of_power(2 * below)[0::2][:heads - below]).astype("<f4").astype("f8")


def distances(queries, keys, offset=0):
    """Returns j - i."""
    return numpy.arange(keys) - (numpy.arange(queries) + offset)[:, None]


def alibi(heads=8, queries=24, keys=24, offset=0, slope=None):
    return -(slopes(heads) if slope is None else slope)[:, None, None] * numpy.abs(distances(queries, keys, offset))


def bloom(heads=8, queries=24, keys=24):
    return numpy.broadcast_to(slopes(heads)[:, None, None] * numpy.arange(keys), (heads, queries, keys))


def causal(bias, fill=-numpy.inf, offset=0):
    return numpy.where(distances(*bias.shape[-2:], offset) > 0, fill, bias)


def t5(queries, keys, bidirectional, buckets=32, max_distance=128, heads=3, offset=0):
    table = numpy.random.default_rng(1910).standard_normal((buckets, heads)).astype("<f4")
    apart = distances(queries, keys, offset)
    known = {int(d): t5_bucket(int(d), buckets, max_distance, bidirectional) for d in numpy.unique(apart)}
    return table[numpy.vectorize(known.get)(apart)].transpose(2, 0, 1), table


def request(bias, dtype=FP32, **fields):
    return service_pb2.DiagnoseBiasRequest(bias=tensor(bias, dtype), **fields)


def model(config, **choice):
    return bias_pb2.BiasMethod(model={"config_json": json.dumps(config).encode(), **choice})


def sent_back(client, explanation, dtype, mask=None):
    """Returns the bias that an explanation describes."""
    made = service_pb2.GenerateBiasRequest(method=explanation.method, geometry=explanation.geometry, dtype=dtype,
                                           form=bias_pb2.BIAS_FORM_DENSE)
    made.precision.axes.CopyFrom(explanation.precision)
    if mask is not None:
        made.mask.CopyFrom(mask)
    return array(client.call("GenerateBias", made).bias)


def check_sent_back(client, answer, given, dtype):
    """Asserts that all visible cells have the same bits; 0 and -0 count as equal."""
    best = answer.explanations[0]
    assert best.equal_share == 1 and best.equal_elements == best.elements > 0, best
    assert not best.HasField("first_difference")
    assert best.elements == given.size - answer.mask.cells
    computed = numpy.broadcast_to(sent_back(client, best, answer.compared_as), given.shape)
    shown = given > answer.mask.highest_fill if answer.mask.cells else numpy.ones(given.shape, bool)
    given = rounded(numpy.where(shown, given, 0), answer.compared_as)
    numpy.testing.assert_array_equal(computed[shown], given[shown])


BLOOM = {"model_type": "bloom", "n_head": 8, "hidden_size": 64, "n_layer": 2}
T5 = {"model_type": "t5", "d_model": 64, "num_heads": 3, "relative_attention_num_buckets": 32,
      "relative_attention_max_distance": 128}


@pytest.mark.parametrize("dtype", (FP32, FP16, BF16, FP64), ids=("fp32", "fp16", "bf16", "fp64"))
@pytest.mark.parametrize("heads", (8, 12))
@pytest.mark.parametrize("fill", ("-inf", "lowest", "-1e4"))
def test_alibi_with_a_causal_mask(client, heads, fill, dtype):
    value = {"-inf": -numpy.inf, "lowest": LOWEST[dtype], "-1e4": -10000.0}[fill]
    given = causal(alibi(heads), value)
    answer = client.call("DiagnoseBias", request(given, dtype))
    assert answer.mask.kind == diagnose_pb2.BIAS_MASK_KIND_CAUSAL and answer.mask.offset == 0
    assert answer.mask.cells == heads * 24 * 23 // 2
    assert answer.mask.fill == answer.mask.highest_fill == (-9984 if (fill, dtype) == ("-1e4", BF16) else value)
    assert answer.follows == diagnose_pb2.BIAS_FOLLOWS_DISTANCE
    assert answer.compared_as == (FP32 if dtype == FP64 else dtype)
    best = answer.explanations[0]
    assert best.method.alibi.rule == bias_pb2.ALIBI_SLOPE_RULE_POWER_OF_TWO and best.method.alibi.num_heads == heads
    check_sent_back(client, answer, given, dtype)
    # The causal mask hides the difference between ALiBi's forms, so it is no alternative.
    assert not answer.undecided
    assert answer.verdict.kind == diagnose_pb2.VERDICT_KIND_MATCHES


def test_a_mask_sent_back_gives_all_bytes(client):
    given = causal(alibi()).astype("<f4")
    best = client.call("DiagnoseBias", request(given)).explanations[0]
    assert sent_back(client, best, FP32, samples.causal_mask()).tobytes() == (given + 0.0).astype("<f4").tobytes()


def test_blooms_form(client):
    answer = client.call("DiagnoseBias", request(bloom()))
    assert answer.follows == diagnose_pb2.BIAS_FOLLOWS_KEY
    assert answer.mask.kind == diagnose_pb2.BIAS_MASK_KIND_NONE
    assert answer.explanations[0].method.alibi.form == bias_pb2.ALIBI_FORM_BLOOM
    check_sent_back(client, answer, bloom(), FP32)
    assert not answer.undecided


@pytest.mark.parametrize("slope, said", [
    (2 * slopes(8), "the released code's slopes, but slopes were multiplied by 2, as if exponents began one head too "
                    "early"),
    (slopes(8) / 2, "slopes were divided by 2, as if exponents began one head too late"),
    (-slopes(8), "slopes have the wrong sign"),
    (slopes(8) * math.log2(math.e), "slopes were multiplied by 1.4427"),
    (slopes(8)[::-1], "slopes of the heads are in reverse order"),
    (2.0 ** (-8 * numpy.arange(1, 13) / 12), "the paper's slopes"),
    (slopes(8)[4:], "the released code's slopes, heads 4 .. 7 of 8"),
    (numpy.array([0.3, 0.21, 0.77]), "slopes of its own, 0.3"),
])
def test_slopes_that_are_not_what_was_meant(client, slope, said):
    given = causal(alibi(slope=slope.astype("<f4").astype("f8")))
    answer = client.call("DiagnoseBias", request(given))
    assert said in answer.explanations[0].sentence
    check_sent_back(client, answer, given, FP32)


@pytest.mark.parametrize("dtype", (FP32, FP16, BF16), ids=("fp32", "fp16", "bf16"))
@pytest.mark.parametrize("bidirectional", (True, False))
@pytest.mark.parametrize("max_distance", (128, 64))
def test_t5(client, bidirectional, max_distance, dtype):
    given, table = t5(200, 200, bidirectional, max_distance=max_distance)
    answer = client.call("DiagnoseBias", request(given, dtype))
    best = answer.explanations[0]
    settings = best.method.t5
    assert (settings.num_buckets, settings.max_distance, settings.bidirectional) == (32, max_distance, bidirectional)
    check_sent_back(client, answer, given, dtype)
    used = numpy.arange(32) != (16 if bidirectional else -1)  # no distance above 0 has magnitude 0
    numpy.testing.assert_array_equal(array(best.method.table)[:, used], rounded(table.T, dtype)[:, used])


def test_what_was_expected(client):
    for given, expected, offset in ((bloom(), model(BLOOM), 0), (t5(40, 60, True, offset=20)[0], None, 20)):
        expected = expected or model(T5, component="encoder")
        answer = client.call("DiagnoseBias", request(given, expected=expected))
        assert answer.explanations[0].expected
        assert answer.explanations[0].sentence.startswith("the model's bias")
        assert answer.explanations[0].geometry.query_offset in (0, offset)
        check_sent_back(client, answer, given, FP32)


def test_what_was_not_expected(client):
    # Other slopes, another form, another max_distance, and a decoder's buckets.
    cases = ((2 * bloom(), model(BLOOM)), (alibi(), model(BLOOM)),
             (t5(200, 200, True, max_distance=64)[0], model(T5, component="encoder")),
             (t5(200, 200, False)[0], model(T5, component="encoder")))
    for given, expected in cases:
        answer = client.call("DiagnoseBias", request(given, expected=expected))
        assert not answer.explanations[0].expected
        check_sent_back(client, answer, given, FP32)
        asked, = (one for one in answer.explanations if one.expected)
        assert asked.equal_share < 1 and asked.worst_ulp > 0
        first = asked.first_difference
        assert rounded(given, FP32)[tuple(first.index[1:])] == first.given != first.computed
        # The expected method is the second of two explanations, however far it is.
        for most, kinds in ((1, [False]), (2, [False, True])):
            few = client.call("DiagnoseBias", request(given, expected=expected, max_explanations=most))
            assert [one.expected for one in few.explanations] == kinds and few.explanations[0].equal_share == 1


def test_a_table_that_is_not_the_models(client):
    given, table = t5(64, 64, True)
    table = table.copy()
    table[3, 1] += 1
    expected = model(T5, component="encoder")
    expected.table.CopyFrom(tensor(table, FP32))
    expected.table_layout = bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS
    answer = client.call("DiagnoseBias", request(given, expected=expected, query_offset=0))
    assert not answer.explanations[0].expected and answer.explanations[0].equal_share == 1
    asked, = (one for one in answer.explanations if one.expected)
    # Bucket 3 of head 1 has the cells three keys back.
    assert asked.elements - asked.equal_elements == 61
    assert list(asked.first_difference.index) == [0, 1, 3, 0]


@pytest.mark.parametrize("dtype", (FP32, FP16))
def test_a_slice_of_a_larger_bias(client, dtype):
    whole = alibi(8, 1, 2000, offset=1999)
    queries = alibi(8, 16, 64, offset=1000)
    for given, offset in ((queries, 1000), (alibi(8, 600, 600)[2:5, 300:332, 290:340], 10)):
        answer = client.call("DiagnoseBias", request(given[None], dtype))
        best = answer.explanations[0]
        assert best.geometry.query_offset == offset or dtype == FP16, best.sentence
        if dtype == FP32 or offset == 10:
            check_sent_back(client, answer, given, dtype)
    answer = client.call("DiagnoseBias", request(whole, dtype))
    assert "ONE_QUERY" in [doubt.code for doubt in answer.undecided]
    check_sent_back(client, answer, whole, dtype)


def test_some_heads_of_what_was_expected(client):
    given = alibi(slope=slopes(8)[4:])
    expected = bias_pb2.BiasMethod(alibi=samples.alibi(8, bias_pb2.ALIBI_FORM_SYMMETRIC))
    answer = client.call("DiagnoseBias", request(given, expected=expected, head_start=4))
    assert answer.explanations[0].expected and answer.explanations[0].geometry.head_start == 4
    assert answer.explanations[0].geometry.head_count == 4
    check_sent_back(client, answer, given, FP32)
    assert client.call("DiagnoseBias", request(given, expected=expected, head_start=3)).explanations[1].expected


def test_methods_that_are_found_only_if_they_are_expected(client):
    apart = distances(12, 12)
    expected = bias_pb2.BiasMethod(kerple=bias_pb2.Kerple(kernel=bias_pb2.KERPLE_KERNEL_LOG, a=[0.5], p=[2]))
    given = kerple("log", [0.5], [2], apart)
    assert [doubt.code for doubt in client.call("DiagnoseBias", request(given)).undecided] == ["NO_METHOD"]
    answer = client.call("DiagnoseBias", request(given, expected=expected))
    check_sent_back(client, answer, given, FP32)
    assert not answer.undecided
    # The line of these values is 0 half a billion keys away, where the expected method cannot be computed.
    level = (1 + 2e-9 * apart)[None]
    answer = client.call("DiagnoseBias", request(level, FP64, expected=expected))
    assert any(one.expected for one in answer.explanations)
    # A window's bias depends on two distances.
    table = numpy.random.default_rng(5).standard_normal((15, 2)).astype("<f4")
    given = table[swin_index(2, 3)].transpose(2, 0, 1)
    expected = bias_pb2.BiasMethod(swin=bias_pb2.SwinBias(window_height=2, window_width=3), table=tensor(table, FP32),
                                   table_layout=bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS)
    answer = client.call("DiagnoseBias", request(given, expected=expected))
    assert answer.follows == diagnose_pb2.BIAS_FOLLOWS_BOTH and not answer.undecided
    check_sent_back(client, answer, given, FP32)


def test_other_roundings_are_no_other_method(client):
    given = -numpy.array([2.0 ** (-8 * (h + 1) / 12) for h in range(12)])[:, None, None] * numpy.abs(distances(64, 64))
    answer = client.call("DiagnoseBias", request(given, FP64))
    assert answer.explanations[0].method.alibi.rule == bias_pb2.ALIBI_SLOPE_RULE_GEOMETRIC
    assert answer.explanations[0].worst_ulp == 1
    assert [doubt.code for doubt in answer.undecided] == ["ROUNDING"]


def test_a_query_that_stands_elsewhere(client):
    given = causal(alibi(4, 6, 16, offset=9), offset=9)
    answer = client.call("DiagnoseBias", request(given, query_offset=10))
    assert answer.explanations[0].geometry.query_offset == 9
    assert "the first query is at position 9, not 10" in answer.explanations[0].sentence


def test_a_mask_that_was_added(client):
    for dtype in (FP32, FP16, BF16):
        for fill in (-10000.0, LOWEST[dtype]):
            given = rounded(alibi(), dtype)
            with numpy.errstate(over="ignore"):
                given = numpy.where(distances(24, 24) > 0, rounded(given + numpy.float32(fill), dtype), given)
            answer = client.call("DiagnoseBias", request(given, dtype))
            assert answer.mask.kind == diagnose_pb2.BIAS_MASK_KIND_CAUSAL
            check_sent_back(client, answer, given, dtype)
    # Two masks were added: twice the lowest value is minus infinity.
    given = causal(alibi(), LOWEST[FP32])
    given[:, :, :3] = numpy.where(distances(24, 24)[:, :3] > 0, -numpy.inf, LOWEST[FP32])
    answer = client.call("DiagnoseBias", request(given))
    assert answer.mask.kind == diagnose_pb2.BIAS_MASK_KIND_CAUSAL and answer.mask.padded_keys == 3
    assert answer.mask.fill == -numpy.inf and answer.mask.highest_fill == LOWEST[FP32]
    check_sent_back(client, answer, given, FP32)


def test_masks_alone(client):
    apart = distances(20, 30, 10)
    window = numpy.where((apart <= 0) & (apart > -7), 0, -numpy.inf)[None]
    answer = client.call("DiagnoseBias", request(window))
    assert (answer.mask.kind, answer.mask.window, answer.mask.offset) == (diagnose_pb2.BIAS_MASK_KIND_WINDOW, 7, 10)
    assert answer.follows == diagnose_pb2.BIAS_FOLLOWS_NOTHING
    assert answer.explanations[0].method.HasField("nope") and answer.explanations[0].equal_share == 1
    masked = client.call("DiagnoseBias", request(numpy.full((1, 4, 4), -numpy.inf)))
    assert masked.mask.cells == 16 and not masked.explanations
    assert [doubt.code for doubt in masked.undecided] == ["ALL_MASKED"]


def test_what_no_method_gives(client):
    chance = numpy.random.default_rng(7).standard_normal((2, 9, 9)).astype("<f4")
    answer = client.call("DiagnoseBias", request(chance, return_values=True))
    assert answer.follows == diagnose_pb2.BIAS_FOLLOWS_BOTH and not answer.explanations
    assert [doubt.code for doubt in answer.undecided] == ["NOT_OF_DISTANCE"]
    one, other = answer.contradiction
    assert one.index[1] == other.index[1] and one.index[3] - one.index[2] == other.index[3] - other.index[2]
    for cell in (one, other):
        assert cell.value == chance[tuple(cell.index[1:])]
    assert not answer.HasField("values")

    by_distance = numpy.random.default_rng(8).standard_normal((2, 17)).astype("<f4")
    given = by_distance[:, distances(9, 9) + 8]
    answer = client.call("DiagnoseBias", request(given, return_values=True))
    assert answer.follows == diagnose_pb2.BIAS_FOLLOWS_DISTANCE
    numpy.testing.assert_array_equal(array(answer.values), by_distance)
    assert [doubt.code for doubt in answer.undecided] == ["NO_METHOD"]
    assert not answer.explanations or answer.explanations[0].equal_share < 1

    constant = client.call("DiagnoseBias", request(numpy.full((2, 8, 8), 0.3)))
    assert [doubt.code for doubt in constant.undecided] == ["ONE_VALUE"] and not constant.explanations
    one_cell = client.call("DiagnoseBias", request([[[0.25]]]))
    assert "ONE_DISTANCE" in [doubt.code for doubt in one_cell.undecided]


def test_bad_requests_are_refused_by_name(client):
    nan, above = alibi(), alibi()
    nan[3, 2, 1], above[1, 1, 1] = numpy.nan, numpy.inf
    swin = bias_pb2.BiasMethod(swin=bias_pb2.SwinBias(window_height=2, window_width=2))
    wrong = bias_pb2.BiasMethod(alibi=samples.alibi(8))
    wrong.alibi.num_heads = 0
    fine = samples.alibi(8)
    near = bias_pb2.BiasMethod(sandwich=bias_pb2.Sandwich(convention=bias_pb2.SANDWICH_CONVENTION_PAPER, num_heads=8))
    for made, reason, field in (
            (service_pb2.DiagnoseBiasRequest(), "MISSING", "bias"),
            (request(numpy.zeros((2, 2))), "MISMATCH", "bias.shape"),
            (request(numpy.zeros((1, 1, 1, 2, 2))), "MISMATCH", "bias.shape"),
            (request(numpy.zeros((1, 0, 2))), "OUT_OF_RANGE", "bias.shape"),
            (request(numpy.zeros((1, 2, 2)), INT32), "UNSUPPORTED", "bias.dtype"),
            (request(nan), "OUT_OF_RANGE", "bias[0, 3, 2, 1]"), (request(above), "OUT_OF_RANGE", "bias[0, 1, 1, 1]"),
            (request(alibi(), query_offset=2**30 + 1), "OUT_OF_RANGE", "query_offset"),
            (request(alibi(), query_offset=-(2**63)), "OUT_OF_RANGE", "query_offset"),
            (request(alibi(), max_explanations=0), "OUT_OF_RANGE", "max_explanations"),
            (request(alibi(), max_explanations=33), "OUT_OF_RANGE", "max_explanations"),
            (request(alibi(), head_start=1), "NOT_READ", "head_start"),
            (request(alibi(), precision={"preset": 1}), "NOT_READ", "precision"),
            (request(alibi(), expected=wrong), "OUT_OF_RANGE", "expected.alibi.num_heads"),
            (request(alibi(), expected=bias_pb2.BiasMethod()), "MISSING", "expected"),
            (request(alibi(), expected=near, query_offset=2**25), "OUT_OF_RANGE", "query_offset"),
            (request(alibi(), expected=swin), "MISMATCH", "bias.shape"),
            (request(alibi(4, 4, 4), expected=swin), "MISSING", "expected.table"),
            (request(alibi(), mask={"causal": True}), "NOT_READ", "mask"),
            (request(alibi(), up_to_softmax=True), "NOT_READ", "up_to_softmax"),
            (request(alibi(), expected={"alibi": fine}, mask={"causal": True, "fill_value": -1}), "NOT_READ", "mask.fill"),
            (request(alibi(), expected={"alibi": fine}, mask={"fully_masked_row": 1}), "NOT_READ",
             "mask.fully_masked_row"),
            (request(alibi(), expected={"alibi": fine}, mask={"window_left": -1}), "OUT_OF_RANGE", "mask.window_left"),
            (request(alibi(4), expected={"alibi": fine}), "MISMATCH", "bias.shape"),
            (request(alibi(4), expected={"alibi": fine}, head_start=5), "OUT_OF_RANGE", "head_start"),
            (request(alibi(4), expected={"alibi": fine}, head_start=-1), "OUT_OF_RANGE", "head_start"),
            (request(alibi(), expected=model({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8})),
             "UNSUPPORTED", "expected.model.config_json")):
        refusal = client.refusal("DiagnoseBias", made)
        assert (refusal.code.name, refusal.reason, refusal.field) == (INVALID, reason, field), refusal
        assert refusal.limit


def test_limits(start_server):
    from client import Client
    server = start_server("--max-bias-values", "1000")
    with Client(server.port) as client:
        client.call("DiagnoseBias", request(alibi(8, 60, 60)))
        refusal = client.refusal("DiagnoseBias", request(alibi(8, 64, 64)))
    assert (refusal.code.name, refusal.field) == ("RESOURCE_EXHAUSTED", "bias.shape")
    assert refusal.value == "8 heads of 127 distances"


def test_the_command(posenc, tmp_path):
    given = causal(alibi()).astype("<f4")
    (tmp_path / "config.json").write_text(json.dumps(BLOOM))
    for name, bias in {"four": given[None], "three": given, "two": given[3]}.items():
        numpy.save(tmp_path / f"{name}.npy", bias)
        printed = posenc("diagnose-bias", f"{name}.npy", "--json")
        answer = json_format.Parse(printed.stdout, service_pb2.DiagnoseBiasResponse())
        assert answer.mask.fill == -numpy.inf
        best = answer.explanations[0]
        assert best.equal_share == 1 and best.elements == bias.size * 25 // 48
        if name == "two":
            assert "as in head 3 of 8 of the released code's slopes" in best.sentence
        else:
            assert best.method.alibi.rule == bias_pb2.ALIBI_SLOPE_RULE_POWER_OF_TWO
    report = posenc("diagnose-bias", "three.npy", "--model", "config.json", exit_code=1).stdout
    assert report.startswith("DIFFERS: ALiBi, -slope (i - j) up to the query, with the expected slopes; softmax removes the "
                             "difference, a constant in each row: --up-to-softmax accepts it; the mask is as expected\n")
    assert report.splitlines()[2].startswith("Measured: causal: query i sees keys up to i+0; masked cells are -inf; values depend "
                                             "only on the distance (Toeplitz).")
    assert "\n1. ALiBi, -slope (i - j) up to the query, with the expected slopes\n" in report
    accepted = posenc("diagnose-bias", "three.npy", "--model", "config.json", "--up-to-softmax").stdout
    assert accepted.startswith("MATCHES: ") and "up to a constant in each row" in accepted.splitlines()[0]
    assert "all 2400 cells, bit for bit" in report
    assert "the model's bias\n" in report
    numpy.save(tmp_path / "key.npy", bloom().astype("<f4"))
    report = posenc("diagnose-bias", "--bias", "key.npy", "--model", "config.json").stdout
    assert "\n1. the model's bias\n" in report and "\n2." not in report
    by_flags = posenc("diagnose-bias", "key.npy", "--num-heads", 8, "--slopes", "power-of-two", "--alibi-form", "bloom")
    assert "\n1. the settings' bias\n" in by_flags.stdout


def test_the_command_says_what_it_knows_of_an_unknown_bias(posenc, tmp_path):
    by_distance = numpy.random.default_rng(8).standard_normal(17)
    numpy.save(tmp_path / "bias.npy", by_distance[distances(9, 9) + 8])
    report = posenc("diagnose-bias", "bias.npy", exit_code=4).stdout
    assert report.startswith("UNKNOWN: ")
    assert "Undecided: no method that was tried gives these values" in report
    assert "Values of head 0, 9 of 17:\n" in report and f"j - i = 0   {by_distance[8]:.9g}\n" in report


def test_the_command_refuses(posenc, tmp_path):
    numpy.save(tmp_path / "flat.npy", numpy.zeros(4))
    assert "flat.npy: shape is [4]; must be" in posenc("diagnose-bias", "flat.npy", exit_code=3).stderr
    assert "--layer" in posenc("diagnose-bias", "flat.npy", "--layer-index", 1, exit_code=2).stderr
    posenc("diagnose-bias", exit_code=2)


def test_the_command_compares_masks(posenc, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BLOOM))

    def said(name, *flags, exit_code):
        return posenc("diagnose-bias", f"{name}.npy", *flags, exit_code=exit_code).stdout.splitlines()[0]

    for name, later in (("right", 0), ("next", 1)):
        numpy.save(tmp_path / f"{name}.npy", numpy.where(distances(24, 24) > later, -numpy.inf, bloom()).astype("<f4"))
    model = "--model", "config.json"
    assert said("right", *model, exit_code=0).endswith("; the mask is as expected")
    assert said("right", *model, "--causal", exit_code=0).endswith("; the mask is as expected")
    wrong = "DIFFERS: the mask lets query i see keys up to i+1, not i+0, in distance 1; the rest matches"
    assert said("next", *model, exit_code=1) == said("next", *model, "--causal", exit_code=1) == wrong
    assert "see keys up to i+0, not" not in said("right", *model, "--causal", "--window-left", 3, exit_code=1)
    settings = "--num-heads", 8, "--slopes", "power-of-two", "--alibi-form", "bloom"
    assert said("next", *settings, exit_code=0).endswith("; the mask was not checked (causal: query i sees keys up to i+1)")
    padded = numpy.array([[False] * 5 + [True] * 19])
    numpy.save(tmp_path / "valid.npy", padded)
    numpy.save(tmp_path / "padded.npy", numpy.where(padded & (distances(24, 24) <= 0), bloom(), -1e9).astype("<f4"))
    said("padded", *model, exit_code=0)
    said("padded", *model, "--causal", exit_code=1)
    said("padded", *model, "--causal", "--key-valid", "valid.npy", exit_code=0)


def test_forget_gates(posenc, tmp_path):
    gates = -numpy.random.default_rng(3).random((2, 20)).astype("<f4")
    numpy.save(tmp_path / "gates.npy", gates)
    sums = numpy.cumsum(gates.astype("f8"), -1)
    bias = sums[:, :, None] - sums[:, None, :]
    for name, given, exit_code, start in (
            ("whole", bias, 0, "MATCHES: all 420 cells are equal"), ("masked", causal(bias), 0, "MATCHES: all 420 cells"),
            ("negated", causal(-bias), 1, "DIFFERS: the bias has the wrong sign")):
        numpy.save(tmp_path / f"{name}.npy", given.astype("<f4"))
        printed = posenc("diagnose-bias", f"{name}.npy", "--forget-gate-log-gates", "gates.npy", exit_code=exit_code)
        assert printed.stdout.startswith(start), printed.stdout


def test_cells_that_differ(client):
    expected = bias_pb2.BiasMethod(alibi=samples.alibi(8, bias_pb2.ALIBI_FORM_SYMMETRIC))
    expected.alibi.rule = bias_pb2.ALIBI_SLOPE_RULE_POWER_OF_TWO
    wrong = numpy.zeros((8, 24, 24), bool)
    wrong[2::3, 5:9, ::4] = True
    given = numpy.where(wrong, alibi() - 0.01 * (1 + numpy.arange(24)), alibi())
    fault, = verdict(client, given, expected).faults
    claimed = numpy.zeros_like(wrong)
    for part in fault.parts:
        def indices(ranges, count, first=0):
            every = {n for r in ranges for n in range(r.first, r.last + 1, r.step)}
            return numpy.array([not ranges or n in every for n in range(first, first + count)])
        of_distance = indices(part.distances, 47, -23)[distances(24, 24) + 23]
        claimed |= (indices(part.heads, 8)[:, None, None] & indices(part.tokens, 24)[:, None] &
                    indices(part.keys, 24) & of_distance)
        assert part.cells == 0
    numpy.testing.assert_array_equal(claimed, wrong)


def verdict(client, given, expected=None, dtype=FP32, **fields):
    answer = client.call("DiagnoseBias", request(given, dtype, **({"expected": expected} if expected else {}), **fields))
    return answer.verdict


FAULTS = {
    "as asked": (lambda b: b, None, ""),
    "sign": (lambda b: -b, "SIGN", ""),
    "divided": (lambda b: b / 8, "SCALE", ""),
    "transposed": (lambda b: b.transpose(0, 2, 1), "TRANSPOSED", ""),
    "one head": (lambda b: numpy.concatenate([b[:3], 2 * b[3:4], b[4:]]), "SCALE", "head 3 has the slope"),
    "alibi_bias_max 16": (lambda b: slopes(8)[:, None, None] * b, "SLOPES", ""),
    "clamped": (lambda b: numpy.maximum(b, -3), "CLIPPED", "values were clipped at -3"),
    "noise": (lambda b: b + numpy.random.default_rng(4).standard_normal(b.shape), None, None),
    "one cell": (lambda b: b + (numpy.arange(b.size) == 777).reshape(b.shape), None, None),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("queries", (24, 200))
def test_the_verdict_names_the_fault(client, fault, queries):
    change, code, where = FAULTS[fault]
    expected = bias_pb2.BiasMethod(alibi=samples.alibi(8, bias_pb2.ALIBI_FORM_SYMMETRIC))
    expected.alibi.rule = bias_pb2.ALIBI_SLOPE_RULE_POWER_OF_TWO
    given = alibi(queries=queries, keys=queries)
    if fault == "transposed":  # a bias that is not symmetric
        expected.alibi.form = bias_pb2.ALIBI_FORM_BLOOM
        given = bloom(queries=queries, keys=queries)
    said = verdict(client, change(given), expected)
    if fault == "as asked":
        assert said.kind == diagnose_pb2.VERDICT_KIND_MATCHES
    elif code is None:
        assert said.kind == diagnose_pb2.VERDICT_KIND_DIFFERS and said.faults[0].described, said.sentence
    else:
        assert said.kind == diagnose_pb2.VERDICT_KIND_DIFFERS, said.sentence
        assert said.faults[0].departures[0].code == code, said.sentence
        assert where in said.sentence


def test_a_table_with_as_many_values_as_the_data_proves_nothing(client):
    # T5's buckets of one distance each fit any bias.
    any_bias = numpy.random.default_rng(8).standard_normal((2, 15))[:, distances(8, 8) + 7]
    said = verdict(client, any_bias, bias_pb2.BiasMethod(t5={"num_buckets": 32, "max_distance": 128, "bidirectional": True}))
    assert said.kind == diagnose_pb2.VERDICT_KIND_UNKNOWN, said.sentence
    # A clamped ALiBi is not T5 with 128 buckets.
    clamped = causal(numpy.maximum(alibi(8, 512, 512), -slopes(8)[:, None, None] * 64))
    said = verdict(client, clamped)
    assert said.kind == diagnose_pb2.VERDICT_KIND_UNKNOWN, said.sentence


def test_a_table_in_the_other_orientation(client):
    given, table = t5(64, 64, True)
    expected = model(T5, component="encoder")
    expected.table.CopyFrom(tensor(table, FP32))
    expected.table_layout = bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS
    assert verdict(client, given, expected).kind == diagnose_pb2.VERDICT_KIND_MATCHES
    read_wrongly = table.reshape(table.shape[::-1]).T  # as if the file had heads first
    apart = numpy.vectorize(lambda d: t5_bucket(int(d), 32, 128, True))(distances(64, 64))
    said = verdict(client, read_wrongly[apart].transpose(2, 0, 1), expected)
    assert [departure.code for departure in said.faults[0].departures] == ["TABLE"], said.sentence
    assert "other order" in said.sentence


def test_what_belongs_to_the_request_goes_with_a_model(posenc, tmp_path):
    """BLOOM with left padding, whose mask moves the keys: a bias, its diagnosis, and an explanation."""
    (tmp_path / "config.json").write_text(json.dumps(BLOOM))
    numpy.save(tmp_path / "mask.npy", numpy.array([[False] * 5 + [True] * 19]))
    model, mask = ("--model", "config.json"), ("--position-mask", "mask.npy")
    settings = ("--num-heads", 8, "--slopes", "power-of-two", "--alibi-form", "bloom")
    shape = ("--query-length", 24, "--key-length", 24, "--dtype", "fp32", "--bias-form", "dense")
    for name, source in (("model", model), ("settings", settings)):
        posenc("bias", *source, *mask, *shape, "-o", f"{name}.npy")
    given = numpy.load(tmp_path / "model.npy")
    assert (given == numpy.load(tmp_path / "settings.npy")).all()
    assert (given[0, :, 0, :6] == 0).all() and (given[0, :, 0, 6] > 0).all(), "padding does not count as a position"
    posenc("diagnose-bias", "model.npy", *model, *mask)
    posenc("diagnose-bias", "model.npy", *model, exit_code=(1, 4))
    assert "alibi" in posenc("explain", *model, *mask, "--json").stdout
    for flag, value in (("--key-positions", "keys.npy"), ("--query-positions", "keys.npy"), ("--key-valid", "mask.npy"),
                        ("--key-documents", "keys.npy"), ("--causal", None), ("--window-left", 3), ("--query-offset", 7),
                        ("--head-start", 2)):
        numpy.save(tmp_path / "keys.npy", numpy.arange(24))
        more = [] if value is None else [value]
        if flag == "--key-documents":
            more += ["--query-documents", "keys.npy"]
        if flag == "--query-positions":
            more += ["--key-positions", "keys.npy"]
        if flag == "--head-start":
            more += ["--head-count", 2]
        posenc("bias", *model, flag, *more, *shape, "-o", "more.npy")

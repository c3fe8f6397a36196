"""Tests ApplyRotary with cached_keys: keys of a KV cache that move to other positions or to another scaling."""

import contextlib
import json

import grpc
import mpmath
import numpy
import pytest
from posenc.v1 import rotary_pb2, service_pb2
from shared_memory import Side
from tensors import BF16, FP16, FP32, FP64, INT64, array, from_bf16, rounded, tensor, to_bf16

from client import Client

HEADS, WIDTH, TOKENS = 2, 16, 40
LLAMA = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "rope_theta": 5e5}
PHI3 = {"model_type": "phi3", "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2,
        "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0 + n / 16 for n in range(8)],
                         "long_factor": [2.0 + n * n for n in range(8)]}}


def positions(given, **fields):
    """An offset, or ids."""
    if isinstance(given, int):
        return rotary_pb2.Positions(offset=given, **fields)
    return rotary_pb2.Positions(ids=tensor(given, FP64), **fields)


def source(config, **choice):
    return rotary_pb2.RotarySource(model=rotary_pb2.ModelConfig(config_json=json.dumps(config).encode(), **choice))


def settings(**fields):
    fields = {"rotary_dim": WIDTH, "input_pairing": rotary_pb2.PAIRING_HALF_SPLIT, **fields}
    return rotary_pb2.RotarySource(settings=rotary_pb2.RotarySettings(**fields))


def theta(value, **fields):
    return settings(rope_parameters=rotary_pb2.RopeParameters(rope_type="default", rope_theta=value), **fields)


def keys(dtype=FP32, seed=1, shape=(1, TOKENS, HEADS, WIDTH)):
    return rounded(numpy.random.default_rng(seed).standard_normal(shape), dtype)


def rotation(rotary, at, k, dtype=FP32, layout=rotary_pb2.LAYOUT_BSHD):
    return service_pb2.ApplyRotaryRequest(
        rotary=rotary, positions=at if isinstance(at, rotary_pb2.Positions) else positions(at), layout=layout,
        q=rotary_pb2.RotaryOperand(tensor=tensor(numpy.zeros((1, k.shape[1], 0, WIDTH)), dtype)),
        k=rotary_pb2.RotaryOperand(tensor=tensor(k, dtype)))


def move(rotary, to, at, k, dtype=FP32, by=None, layout=rotary_pb2.LAYOUT_BSHD):
    request = rotation(rotary, to, k, dtype, layout)
    request.ClearField("q")
    request.cached_keys.positions.CopyFrom(at if isinstance(at, rotary_pb2.Positions) else positions(at))
    if by is not None:
        request.cached_keys.rotary.CopyFrom(by)
    return request


def call(client, request):
    return array(client.call("ApplyRotary", request).k)


@pytest.mark.parametrize("dtype", (FP32, FP16, BF16))
@pytest.mark.parametrize("to, at", ((0, 4096), (70000, 3), (numpy.arange(TOKENS) * 3, numpy.arange(TOKENS)[::-1].copy())))
def test_within_a_model_it_is_the_rotation_by_the_difference(client, dtype, to, at):
    k = keys(dtype)
    moved = call(client, move(source(LLAMA), to, at, k, dtype))
    difference = numpy.broadcast_to(numpy.asarray(to) - at, TOKENS)
    assert (moved == call(client, rotation(source(LLAMA), difference, k, dtype))).all()


def exact_entries(to_frequency, to, from_frequency, at, factor):
    """Cosines and sines of the differences of angles, times a factor, rounded once to float32."""
    with mpmath.workprec(400):
        angle = mpmath.mpf(to_frequency) * int(to) - mpmath.mpf(from_frequency) * int(at)
        return [numpy.float32(float(mpmath.nstr(mpmath.mpf(factor) * value, 30))) for value in
                (mpmath.cos(angle), mpmath.sin(angle))]


def plans(client, request):
    """Frequencies and attention scaling of a request's rotation."""
    request.hints.return_plan = True
    info = client.call("ApplyRotary", request).info
    return list(info.plan.frequencies[0].inv_freq), info.sequences[0].attention_scaling


@pytest.mark.parametrize("to_rule, from_rule", (("long", "short"), ("short", "long")))
def test_between_two_lists_each_entry_is_rounded_once(client, to_rule, from_rule):
    branches = {"short": rotary_pb2.LONGROPE_BRANCH_SHORT, "long": rotary_pb2.LONGROPE_BRANCH_LONG}
    ones = numpy.zeros((1, TOKENS, 1, WIDTH), "f4")
    ones[..., :WIDTH // 2] = 1  # a pair (1, 0) becomes (cos, sin)

    def of(rule):
        parameters = rotary_pb2.RopeParameters(
            rope_type="longrope", longrope_branch=branches[rule], original_max_position_embeddings=4096, factor=32,
            short_factor=PHI3["rope_scaling"]["short_factor"], long_factor=PHI3["rope_scaling"]["long_factor"])
        return settings(rope_parameters=parameters)

    moved = call(client, move(of(to_rule), 90000, 11, ones, by=of(from_rule)))
    to_frequencies, scaling = plans(client, rotation(of(to_rule), 0, ones))
    from_frequencies, _ = plans(client, rotation(of(from_rule), 0, ones))
    assert scaling > 1 and to_frequencies != from_frequencies
    for token in range(TOKENS):
        for pair in range(WIDTH // 2):
            cos, sin = exact_entries(to_frequencies[pair], 90000 + token, from_frequencies[pair], 11 + token, 1)
            assert moved[0, token, 0, pair] == cos and moved[0, token, 0, pair + WIDTH // 2] == sin


@pytest.mark.parametrize("dtype, unit", ((FP32, 2.0**-24), (BF16, 2.0**-8)))
def test_against_a_fresh_rotation_there_are_two_roundings(client, dtype, unit):
    k = keys(dtype)
    config = LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}}
    for by, to, at in ((source(LLAMA), 100, 5000), (source(LLAMA), 30000, 7)):
        cached = call(client, rotation(by, at, k, dtype))
        moved = call(client, move(source(config), to, at, cached, dtype, by))
        fresh = call(client, rotation(source(config), to, k, dtype))
        # Of the cached pair, times a / a', and of the answer; a rotation moves an error between its two elements.
        half = WIDTH // 2
        size = numpy.hypot(fresh[..., :half], fresh[..., half:]).repeat(2, axis=-1).max()
        error = numpy.abs(moved - fresh).max() / size
        assert 0 < error < 3.2 * unit


def test_yarn_multiplies_by_the_quotient_of_the_scalings(client):
    config = LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}}
    ones = numpy.zeros((1, 3, 1, WIDTH), "f4")
    ones[..., :WIDTH // 2] = 1
    _, scaling = plans(client, rotation(source(config), 0, ones))
    moved = call(client, move(source(LLAMA), 5, 5, ones, by=source(config)))
    assert moved[0, 0, 0, 0] == numpy.float32(1 / scaling)  # the first frequency is the same, so its angle is 0
    assert call(client, move(source(config), 5, 5, ones, by=source(LLAMA)))[0, 0, 0, 0] == numpy.float32(scaling)


def test_dynamic_frequencies_by_the_lengths_of_both_sides(client):
    config = LLAMA | {"max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    k = keys()
    at = positions(0)
    grown = rotary_pb2.Positions(offset=0, scaling_length_rule=rotary_pb2.SCALING_LENGTH_RULE_GIVEN, seq_len=[500])
    cached = call(client, rotation(source(config), at, k))
    moved = call(client, move(source(config), grown, at, cached))
    fresh = call(client, rotation(source(config), grown, k))
    assert numpy.abs(moved - fresh).max() < 1e-6 < numpy.abs(moved - cached).max()


def test_packed_sequences_and_several_axes(client):
    ids = numpy.stack([numpy.arange(TOKENS), numpy.arange(TOKENS) * 2, numpy.arange(TOKENS) % 7])
    config = LLAMA | {"model_type": "qwen2_vl", "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    first = {"axis_dimension": rotary_pb2.AXIS_DIMENSION_FIRST}
    k = keys()
    moved = call(client, move(source(config), positions(ids[:, None] + 100, **first), positions(ids[:, None], **first), k))
    everywhere = positions(numpy.full(TOKENS, 100), axis_dimension=rotary_pb2.AXIS_DIMENSION_NONE)
    shifted = call(client, rotation(source(config), everywhere, k))
    assert (moved == shifted).all()
    packed = tensor([0, 10, TOKENS], INT64)
    moved = call(client, move(source(LLAMA), rotary_pb2.Positions(offset=50, cu_seqlens=packed), 0,
                              k[0], layout=rotary_pb2.LAYOUT_THD))
    assert (moved == call(client, rotation(source(LLAMA), numpy.full(TOKENS, 50), k))[0]).all()


def test_axes_of_pairs_count_as_frequencies(client):
    def of(axis):
        return settings(given_frequencies=rotary_pb2.GivenFrequencies(inv_freq=[1.0] * 8, axis=axis))

    at = positions(numpy.zeros((1, TOKENS, 2)), axis_dimension=rotary_pb2.AXIS_DIMENSION_LAST)
    request = move(of([0, 1] * 4), at, at, keys(), by=of([1, 0] * 4))
    refusal = client.refusal("ApplyRotary", request)
    assert (refusal.reason, refusal.field) == ("UNSUPPORTED", "cached_keys.rotary"), refusal
    request.cached_keys.rotary.CopyFrom(of([0, 1] * 4))
    assert (call(client, request) == keys()).all()
    request.cached_keys.positions.ids.CopyFrom(tensor(numpy.full((1, TOKENS, 2), 0.1), FP64))
    request.positions.ids.CopyFrom(tensor(numpy.full((1, TOKENS, 2), 9), FP64))
    assert client.refusal("ApplyRotary", request).field == "cached_keys.positions"


def test_keys_have_the_output_pairing(client):
    """DeepSeek's class reads interleaved pairs and writes half-split ones."""
    config = {"model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1,
              "qk_rope_head_dim": WIDTH, "qk_nope_head_dim": 16, "v_head_dim": 16, "kv_lora_rank": 16}
    k = keys()
    cached = call(client, rotation(source(config), 4, k))
    answer = client.call("ApplyRotary", move(source(config), 90, 4, cached))
    assert numpy.abs(array(answer.k) - call(client, rotation(source(config), 90, k))).max() < 1e-6
    assert answer.info.input_pairing == answer.info.output_pairing == rotary_pb2.PAIRING_HALF_SPLIT


def test_fingerprints_differ_by_where_the_keys_were(client):
    k = keys()
    requests = rotation(theta(1e4), 5, k), move(theta(1e4), 5, 5, k), move(theta(1e4), 5, 5, k, by=theta(5e5))
    prints = [client.call("ApplyRotary", request).info.plan_fingerprint for request in requests]
    assert len(set(prints)) == 3


def test_xpos_divides_keys_by_the_power_of_the_difference(client):
    rotary = theta(1e4, xpos=rotary_pb2.Xpos(centre=512))
    k = keys()
    cached = call(client, rotation(rotary, 3, k))
    moved = call(client, move(rotary, 700, 3, cached))
    fresh = call(client, rotation(rotary, 700, k))
    assert numpy.abs(moved / fresh - 1).max() < 1e-4 and not numpy.allclose(cached, fresh, rtol=1e-3)


def test_a_stream_moves_the_same(client):
    k = keys()
    request = move(source(LLAMA), 9, 1000, k, by=source(PHI3))
    whole = call(client, request)
    header = service_pb2.ApplyRotaryRequest()
    header.CopyFrom(request)
    header.k.tensor.data = b""
    chunk = service_pb2.RotaryChunk(operand=rotary_pb2.OPERAND_KEY)
    chunk.rows.data = k.astype("<f4").tobytes()
    answers = client.call("StreamApplyRotary", iter([service_pb2.StreamApplyRotaryRequest(header=header),
                                                     service_pb2.StreamApplyRotaryRequest(chunk=chunk)]))
    assert answers[1].chunk.rows.data == whole.astype("<f4").tobytes()


TABLE = rotary_pb2.GivenTable(cos=tensor(numpy.ones((64, 8)), FP32), sin=tensor(numpy.zeros((64, 8)), FP32),
                              form=rotary_pb2.TABLE_FORM_HALF_WIDTH)
REFUSED = {
    "no k": (lambda r: r.ClearField("k"), "MISSING", "k"),
    "a q": (lambda r: r.q.tensor.CopyFrom(r.k.tensor), "CONFLICT", "q"),
    "no positions": (lambda r: r.cached_keys.ClearField("positions"), "MISSING", "cached_keys.positions.source"),
    "other positions": (lambda r: r.cached_keys.positions.ids.CopyFrom(tensor([1, 2], INT64)), "MISMATCH",
                        "cached_keys.positions.ids.shape"),
    "backwards": (lambda r: setattr(r, "direction", rotary_pb2.DIRECTION_INVERSE), "CONFLICT", "direction"),
    "rounded": (lambda r: setattr(r.precision, "preset", rotary_pb2.PRECISION_PRESET_F32), "UNSUPPORTED", "precision"),
    "another pairing": (lambda r: r.cached_keys.rotary.CopyFrom(theta(1e4, input_pairing=rotary_pb2.PAIRING_INTERLEAVED)),
                        "MISMATCH", "cached_keys.rotary"),
    "an infinite frequency": (lambda r: r.cached_keys.rotary.CopyFrom(settings(
        rope_parameters=rotary_pb2.RopeParameters(rope_type="linear", factor=5e-324))), "OUT_OF_RANGE",
                              "cached_keys.rotary.settings.rope_parameters"),
    "another width": (lambda r: r.cached_keys.rotary.CopyFrom(theta(1e4, rotary_dim=8)), "MISMATCH", "cached_keys.rotary"),
    "a table": (lambda r: r.cached_keys.rotary.CopyFrom(settings(given_table=TABLE)), "UNSUPPORTED", "cached_keys.rotary"),
    "xpos on one side": (lambda r: r.cached_keys.rotary.CopyFrom(theta(1e4, xpos=rotary_pb2.Xpos(centre=0))), "MISMATCH",
                         "cached_keys.rotary"),
    "a scaling of 0": (lambda r: r.cached_keys.rotary.CopyFrom(settings(given_frequencies=rotary_pb2.GivenFrequencies(
        inv_freq=[1.0] * 8, attention_scaling=0))), "UNSUPPORTED", "cached_keys.rotary"),
    "two angles in a pair": (lambda r: r.rotary.CopyFrom(theta(1e4, table_pairing=rotary_pb2.PAIRING_INTERLEAVED)),
                             "UNSUPPORTED", "rotary"),
    "a factor of queries": (lambda r: r.rotary.settings.query_scale.CopyFrom(rotary_pb2.QueryScale(
        function=rotary_pb2.QUERY_SCALE_FUNCTION_BEAM)), "NOT_READ", "rotary.settings.query_scale"),
    "pages of bytes": (lambda r: r.cached_keys.pages.CopyFrom(rotary_pb2.KvPages(block_table=[0], tokens=TOKENS)),
                       "UNSUPPORTED", "cached_keys.pages"),
    "a wrong field of its file": (lambda r: r.cached_keys.rotary.CopyFrom(source(LLAMA | {"rope_theta": -1})), "OUT_OF_RANGE",
                                  "cached_keys.rotary.model.config_json.rope_theta"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_move_is_refused(client, name):
    change, reason, field = REFUSED[name]
    request = move(theta(1e4), 0, 100, keys())
    change(request)
    refusal = client.refusal("ApplyRotary", request)
    assert (refusal.code, refusal.reason, refusal.field) == (grpc.StatusCode.INVALID_ARGUMENT, reason, field), refusal


@pytest.fixture
def shared(start_server, tmp_path_factory):
    """A server with shared memory, its client and memory of 1 MiB."""
    path = tmp_path_factory.mktemp("side") / "memory.sock"
    with contextlib.ExitStack() as stack:
        server = start_server("--shared-memory-socket", path)
        yield stack.enter_context(Client(server.port)), stack.enter_context(contextlib.closing(Side(path))).memory(1 << 20)


PAGES, PAGE = 6, 4


def paged(memory, layout, pages, first_slot, tokens, dtype=BF16, to=7, at=900):
    """A request for a cache in shared memory, the cache's bytes as an array, and where its tokens lie."""
    shape = (PAGES, PAGE, HEADS, WIDTH) if layout == rotary_pb2.LAYOUT_BSHD else (PAGES, HEADS, PAGE, WIDTH)
    cache = to_bf16(keys(dtype, shape=shape))
    region = memory.put(cache.tobytes())
    request = move(theta(1e4), to, at, numpy.zeros((1, tokens, HEADS, WIDTH)), dtype, layout=layout, by=theta(5e5))
    request.k.tensor.CopyFrom(tensor(numpy.zeros(shape), dtype))
    request.k.tensor.data = b""
    request.k.tensor.region.CopyFrom(region)
    request.k.output.CopyFrom(region)
    request.cached_keys.pages.CopyFrom(rotary_pb2.KvPages(block_table=pages, first_slot=first_slot, tokens=tokens))
    slots = [(pages[(first_slot + t) // PAGE], (first_slot + t) % PAGE) for t in range(tokens)]
    return request, cache, region, slots


def expect_only_these_moved(client, layout, cache, slots, after):
    by_token = [(page, slot) if layout == rotary_pb2.LAYOUT_BSHD else (page, slice(None), slot) for page, slot in slots]
    dense = numpy.stack([cache[at] for at in by_token]) if slots else cache[:0, 0]
    if slots:
        moved = call(client, move(theta(1e4), 7, 900, from_bf16(dense)[None], BF16, theta(5e5)))
        assert (numpy.stack([after[at] for at in by_token]) == to_bf16(moved[0])).all()
        assert not (numpy.stack([after[at] for at in by_token]) == dense).all()
    untouched = numpy.ones(cache.shape, bool)
    for at in by_token:
        untouched[at] = False
    assert (after[untouched] == cache[untouched]).all()


@pytest.mark.parametrize("layout", (rotary_pb2.LAYOUT_BSHD, rotary_pb2.LAYOUT_BHSD))
@pytest.mark.parametrize("pages, first_slot, tokens", (([4, 0, 3], 2, 9), ([5], 1, 2), ([1, 2], 0, 8), ([], 0, 0)))
def test_pages_turn_in_place_and_the_other_slots_stay(shared, layout, pages, first_slot, tokens):
    client, memory = shared
    request, cache, region, slots = paged(memory, layout, pages, first_slot, tokens)
    client.call("ApplyRotary", request)
    after = numpy.frombuffer(memory.bytes[region.offset:region.offset + region.byte_size], "<u2").reshape(cache.shape)
    expect_only_these_moved(client, layout, cache, slots, after)


@pytest.mark.parametrize("pages, first_slot, tokens, field", (
    ([4, 6], 0, 8, "block_table[1]"), ([4, -1], 0, 8, "block_table[1]"), ([2, 3, 2], 0, 12, "block_table"),
    ([4], 4, 0, "first_slot"), ([4], -1, 1, "first_slot"), ([4], 2, 3, "tokens"), ([4], 0, -1, "tokens"), ([], 0, 1, "tokens")))
def test_pages_that_are_not_there_are_refused(shared, pages, first_slot, tokens, field):
    client, memory = shared
    request, cache, region, _ = paged(memory, rotary_pb2.LAYOUT_BSHD, [0], 0, 1)
    request.cached_keys.pages.CopyFrom(rotary_pb2.KvPages(block_table=pages, first_slot=first_slot, tokens=tokens))
    refusal = client.refusal("ApplyRotary", request)
    assert refusal.field == f"cached_keys.pages.{field}", refusal
    assert memory.bytes[region.offset:region.offset + region.byte_size] == cache.tobytes()

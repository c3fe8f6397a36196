"""Legal requests of every RPC that together set every field, except those that name memory or a device.

Tests send them with one thing changed, over other transports and to other processors; the mutations and the fuzzers
begin with them. test_rich_requests.py says which field no request sets.
"""

import json

import gguf_file
import numpy
from posenc.v1 import bias_pb2, diagnose_pb2, embedding_pb2, positions_pb2, relative_pb2, rotary_pb2, service_pb2
from samples import (
    alibi,
    analysis,
    bias,
    causal_mask,
    comparison,
    diagnosis,
    embedding,
    explain,
    fourier,
    grid,
    learned,
    projection,
    relative,
    relative_methods,
    rope_settings,
    rotary,
    shaw,
    stream,
    table,
    timestep,
    weights,
)
from tensors import BF16, BOOL, FP32, FP64, INT32, INT64, tensor

EXACT = rotary_pb2.Precision(preset=rotary_pb2.PRECISION_PRESET_EXACT)
AXES = rotary_pb2.Precision(axes=rotary_pb2.PrecisionAxes(
    frequencies=rotary_pb2.FREQUENCY_ARITHMETIC_EXACT, table_dtype=rotary_pb2.TABLE_DTYPE_FLOAT32,
    rounding=rotary_pb2.ROUNDING_ONCE))
BUCKETS_BY_HEADS = bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS


def model(model_type, choice=None, **fields):
    """A config.json."""
    text = json.dumps({"model_type": model_type, **fields}).encode()
    return rotary_pb2.ModelConfig(config_json=text, **(choice or {}))


def llama(**fields):
    return model("llama", hidden_size=64, num_attention_heads=4, num_hidden_layers=2, **fields)


def llama_gguf():
    return rotary_pb2.ModelConfig(gguf=gguf_file.model("llama", {"rope_freqs.weight": gguf_file.llama3_factors()}))


def scaled(rope_type, rope_theta=10000.0, **parameters):
    """Settings of a scaling."""
    return rotary_pb2.RotarySettings(
        rope_parameters=rotary_pb2.RopeParameters(rope_type=rope_type, rope_theta=rope_theta, **parameters), rotary_dim=8,
        input_pairing=rotary_pb2.PAIRING_HALF_SPLIT)


def dynamic():
    settings = scaled("dynamic", factor=2)
    settings.max_position_embeddings = 64
    return settings


def scalings():
    """Settings of every other rope_type, with the fields that it reads."""
    original = {"original_max_position_embeddings": 64}
    ramp = {**original, "factor": 4, "beta_fast": 16, "beta_slow": 2}
    magnitudes = {"mscale": 0.8, "mscale_all_dim": 0.7}
    part = scaled("linear", factor=4, partial_rotary_factor=0.5)
    part.head_dim = 16
    part.ClearField("rotary_dim")
    part.output_pairing = rotary_pb2.PAIRING_INTERLEAVED
    telechat = scaled("telechat_ntk", **original)
    telechat.max_position_embeddings = 128
    return [
        part,
        scaled("linear_positions", factor=4, negate_angle=True),
        scaled("ntk_alpha", alpha=1000),
        scaled("ntk", factor=4, mixed_b=0.6),
        scaled("qwen_ntk", **original),
        telechat,
        scaled("yarn", **ramp, **magnitudes, truncate=False),
        scaled("yarn", **ramp, attention_factor=0.5),
        scaled("deepseek_yarn", **ramp, **magnitudes, frequency_dim=10),
        scaled("ggml_yarn", **ramp, ext_factor=0.5, attn_factor=1.5, freq_factors=[1, 1, 2, 8]),
        scaled("longrope", **original, short_factor=[1, 1, 1.5, 2], long_factor=[1, 2, 4, 8],
               longrope_branch=rotary_pb2.LONGROPE_BRANCH_LONG, factor=4),
        scaled("llama3", **original, factor=8, low_freq_factor=1, high_freq_factor=4, resonance=True),
        scaled("proportional", factor=2, partial_rotary_factor=0.5),
        scaled("pixel", None, max_freq=20),
        scaled("constant", None),
    ]


def explanations():
    of_alibi = service_pb2.ExplainRequest(bias=bias_pb2.BiasMethod(alibi=alibi()))
    of_alibi.bias.alibi.given.CopyFrom(tensor([1, 2, 3, 4], FP32))
    of_dynamic = service_pb2.ExplainRequest(rotary=dynamic(), seq_len=[64, 4096], precision=AXES)
    of_dynamic.hints.request_id = "explained"
    of_text = service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(
        config_json_text='{"model_type": "t5", "num_heads": 4, "num_layers": 2}', component="decoder"))
    of_layer = service_pb2.ExplainRequest(model=llama())
    of_layer.model.layer_index = 1
    of_layer.model.input_pairing = rotary_pb2.PAIRING_INTERLEAVED
    of_layer.model.output_pairing = rotary_pb2.PAIRING_HALF_SPLIT
    methods = [bias_pb2.BiasMethod(kerple=bias_pb2.Kerple(kernel=bias_pb2.KERPLE_KERNEL_LOG, a=[1], p=[1])),
               bias_pb2.BiasMethod(sandwich=bias_pb2.Sandwich(
                   convention=bias_pb2.SANDWICH_CONVENTION_PAPER, num_heads=2)),
               bias_pb2.BiasMethod(swin=bias_pb2.SwinBias(window_height=2, window_width=2)),
               bias_pb2.BiasMethod(beit=bias_pb2.BeitBias(window_height=2, window_width=2, table=bias_pb2.BEIT_TABLE_PLAIN))]
    return [service_pb2.ExplainRequest(model=llama()), service_pb2.ExplainRequest(model=llama_gguf()), explain(),
            of_alibi, of_dynamic, of_text, of_layer,
            *(service_pb2.ExplainRequest(bias=method) for method in methods)]


def by_segments():
    request = table()
    request.ClearField("count")
    request.positions.segments.segment.add().line.CopyFrom(rotary_pb2.PositionLine(count=2, start=1, step=0.5))
    request.rotary.settings.given_frequencies.CopyFrom(
        rotary_pb2.GivenFrequencies(inv_freq=[1, 0.5, 0.25, 0.125], attention_scaling=1.5))
    request.hints.return_plan = True
    return request


def tables():
    by_grid = table(rotary_dim=12)
    by_grid.ClearField("count")
    by_grid.rotary.settings.rope_parameters.mrope_section.extend([2, 2, 2])
    by_grid.rotary.settings.rope_parameters.mrope_order = rotary_pb2.MROPE_ORDER_INTERLEAVED
    by_grid.positions.segments.segment.add().grid.CopyFrom(
        rotary_pb2.PositionGrid(size=[1, 2, 3], start=[4, -4, 0.5], step=[1, 2, 0.5]))

    with_xpos = table()
    with_xpos.rotary.settings.xpos.CopyFrom(rotary_pb2.Xpos(scale_base=256, centre=2))
    with_xpos.operand = rotary_pb2.OPERAND_KEY

    by_length = table()
    by_length.rotary.settings.CopyFrom(dynamic())
    by_length.positions.scaling_length_rule = rotary_pb2.SCALING_LENGTH_RULE_GIVEN
    by_length.positions.seq_len.append(128)
    by_length.precision.CopyFrom(AXES)

    of_layer = table()
    of_layer.rotary.model.CopyFrom(model("gemma3_text", hidden_size=64, num_attention_heads=4, num_hidden_layers=2,
                                         head_dim=16, layer_types=["sliding_attention", "full_attention"]))
    of_layer.rotary.model.layer_type = "sliding_attention"

    found = [by_segments(), by_grid, with_xpos, by_length, of_layer]
    for settings in scalings():
        found.append(table())
        found[-1].rotary.settings.CopyFrom(settings)
        if settings.rope_parameters.rope_type in ("qwen_ntk", "telechat_ntk"):
            found[-1].positions.scaling_length_rule = rotary_pb2.SCALING_LENGTH_RULE_GIVEN
            found[-1].positions.seq_len.append(128)
    return found


def table_streams():
    return [service_pb2.StreamTableRequest(table=by_segments(), rows_per_tile=1)]


def by_table():
    request = rotary(numpy.ones((1, 2, 1, 4)))
    request.rotary.settings.ClearField("rotary_dim")
    request.rotary.settings.given_table.CopyFrom(rotary_pb2.GivenTable(
        cos=tensor(numpy.ones((2, 2)), FP32), sin=tensor(numpy.zeros((2, 2)), FP32),
        form=rotary_pb2.TABLE_FORM_HALF_WIDTH))
    request.hints.return_plan = True
    return request


def own_entries():
    """Heads, tokens and the elements of a pair with entries of their own."""
    by_token = rotary(numpy.ones((1, 2, 2, 4)))
    by_token.rotary.settings.ClearField("rotary_dim")
    by_token.ClearField("positions")
    by_token.rotary.settings.given_table.CopyFrom(rotary_pb2.GivenTable(
        cos=tensor(numpy.arange(16).reshape(1, 2, 2, 4), FP32), sin=tensor(numpy.ones((1, 2, 2, 4)), FP32),
        form=rotary_pb2.TABLE_FORM_PER_ELEMENT, per_head=True))

    summed = rotary(numpy.ones((1, 2, 2, 8)))
    summed.rotary.settings.given_frequencies.CopyFrom(
        rotary_pb2.GivenFrequencies(inv_freq=[n / 8 for n in range(16)], heads=2, axes=2))
    summed.positions.ids.CopyFrom(tensor([[3, 4], [5, 6]], INT64))
    summed.positions.axis_dimension = rotary_pb2.AXIS_DIMENSION_LAST

    other_pairing = rotary(numpy.ones((1, 2, 1, 8)))
    other_pairing.rotary.settings.table_pairing = rotary_pb2.PAIRING_INTERLEAVED

    by_element = rotary(numpy.ones((1, 2, 1, 8)))
    by_element.rotary.settings.rope_parameters.mrope_section.extend([1, 3])
    by_element.rotary.settings.rope_parameters.mrope_order = rotary_pb2.MROPE_ORDER_ELEMENTS
    by_element.positions.ids.CopyFrom(tensor([[3, 4], [5, 6]], INT64))
    by_element.positions.axis_dimension = rotary_pb2.AXIS_DIMENSION_LAST
    return [by_token, summed, other_pairing, by_element]


def scaled_queries():
    """A rotation with each factor of q, and one by the index in the cache, without a rotation."""
    functions = [
        rotary_pb2.QueryScale(function=rotary_pb2.QUERY_SCALE_FUNCTION_LLAMA4, attn_scale=0.1, floor_scale=4),
        rotary_pb2.QueryScale(function=rotary_pb2.QUERY_SCALE_FUNCTION_MINISTRAL3, llama_4_scaling_beta=0.1,
                              original_max_position_embeddings=4, rounds_factor=True),
        rotary_pb2.QueryScale(function=rotary_pb2.QUERY_SCALE_FUNCTION_BEAM,
                              position_source=rotary_pb2.POSITION_SOURCE_POSITION_IDS),
        rotary_pb2.QueryScale(function=rotary_pb2.QUERY_SCALE_FUNCTION_LOGN, seq_length=4),
        rotary_pb2.QueryScale(function=rotary_pb2.QUERY_SCALE_FUNCTION_INKLING, log_scaling_alpha=0.1,
                              log_scaling_n_floor=4),
    ]
    found = [rotary(numpy.ones((1, 2, 1, 12)), numpy.ones((1, 2, 1, 8)), BF16, offset=3) for _ in functions]
    for request, scale in zip(found, functions, strict=True):
        request.rotary.settings.query_scale.CopyFrom(scale)
        request.precision.preset = rotary_pb2.PRECISION_PRESET_HF_EAGER
    alone = rotary(numpy.ones((1, 2, 1, 8)))
    alone.rotary.settings.Clear()
    alone.rotary.settings.query_scale.CopyFrom(functions[0])
    alone.rotary.settings.query_scale.position_source = rotary_pb2.POSITION_SOURCE_CACHE_INDEX
    alone.positions.ids.CopyFrom(tensor([0, 1], INT64))
    alone.positions.cache_index = 7
    return [*found, alone]


def rotations():
    packed = rotary(numpy.ones((3, 2, 8)), numpy.ones((3, 1, 8)), BF16, layout=rotary_pb2.LAYOUT_THD)
    packed.positions.cu_seqlens.CopyFrom(tensor([0, 1, 3], INT32))
    packed.positions.offsets.offset.extend([5, 7])
    packed.direction = rotary_pb2.DIRECTION_TRANSPOSE
    packed.precision.CopyFrom(AXES)
    packed.hints.request_id = "packed"

    by_ids = rotary(numpy.ones((1, 2, 1, 8)))
    by_ids.positions.ids.CopyFrom(tensor([3, 4], INT64))
    by_ids.precision.CopyFrom(EXACT)

    by_axes = rotary(numpy.ones((1, 2, 1, 8)))
    by_axes.rotary.settings.axial.axes.add(dim=2)
    by_axes.rotary.settings.axial.axes.add(dim=6, rope_theta=256, frequency_start=0.5)
    by_axes.positions.ids.CopyFrom(tensor([[3, 4], [5, 6]], INT64))
    by_axes.positions.axis_dimension = rotary_pb2.AXIS_DIMENSION_LAST
    by_axes.rotary.settings.half_split_parts = 2

    alternating = rotary(numpy.ones((1, 2, 1, 8)), numpy.ones((1, 2, 1, 12)))
    alternating.rotary.settings.axial.axes.add(dim=4)
    alternating.rotary.settings.axial.axes.add(dim=4)
    alternating.rotary.settings.axial.alternating = True
    alternating.k.rotary_offset = 4

    on_axes = rotary(numpy.ones((1, 2, 1, 8)))
    on_axes.rotary.settings.given_frequencies.CopyFrom(
        rotary_pb2.GivenFrequencies(inv_freq=[1, 0.5, 0.25, 0.125], axis=[0, 1, 1, 0]))
    on_axes.positions.ids.CopyFrom(tensor([[3, 4], [5, 6]], INT64))
    on_axes.positions.axis_dimension = rotary_pb2.AXIS_DIMENSION_FIRST

    by_model = rotary(numpy.ones((1, 2, 1, 16)), numpy.ones((1, 2, 1, 24)))
    by_model.rotary.model.CopyFrom(llama())
    by_model.k.rotates_first = True

    moved = rotary(k=numpy.ones((1, 2, 1, 8)), offset=7)
    moved.ClearField("q")
    moved.cached_keys.positions.offset = 500
    moved.cached_keys.rotary.settings.CopyFrom(rope_settings())
    moved.cached_keys.rotary.settings.rope_parameters.rope_theta = 5e5
    return [packed, by_ids, by_axes, by_table(), alternating, on_axes, by_model, moved, *scaled_queries(),
            *own_entries()]


def embeddings():
    padded = embedding(convention=embedding_pb2.SINUSOIDAL_CONVENTION_FAIRSEQ)
    padded.ClearField("positions")
    padded.ClearField("count")
    padded.sinusoidal.padding_idx = 1
    padded.sinusoidal.token_valid.CopyFrom(tensor([[True, True, False]], BOOL))

    spaced = embedding(convention=embedding_pb2.SINUSOIDAL_CONVENTION_TENSOR2TENSOR)
    spaced.sinusoidal.MergeFrom(embedding_pb2.Sinusoidal(
        max_timescale=1000, min_timescale=2, start_index=3, scale=0.5, cosines_first=True))
    spaced.hints.request_id = "embedded"

    looked_up = learned(numpy.ones((4, 2)), offset=1, token_valid=tensor([[True, True, False]], BOOL), scale=0.5)
    looked_up.dtype = 0
    looked_up.add_to.CopyFrom(tensor(numpy.ones((2, 1, 3, 2)), BF16))
    looked_up.precision.CopyFrom(AXES)

    resized = learned(numpy.ones((13, 2)), offset=1)
    resized.learned.resize.CopyFrom(embedding_pb2.TableResize(
        source=[2, 5], target=[2, 4], scale_factor=[1.2, 0.9], mode=embedding_pb2.RESIZE_MODE_BICUBIC, antialias=True,
        rows_before=1, rows_after=2, spatial_merge_size=2, padding=embedding_pb2.RESIZE_PADDING_BORDER,
        operations=embedding_pb2.RESIZE_OPERATIONS_INTERPOLATE))
    gathered = learned(numpy.ones((9, 2)))
    gathered.learned.resize.CopyFrom(embedding_pb2.TableResize(
        target=[2, 4], mode=embedding_pb2.RESIZE_MODE_BILINEAR, align_corners=True,
        padding=embedding_pb2.RESIZE_PADDING_ZEROS, operations=embedding_pb2.RESIZE_OPERATIONS_GATHER))

    of_file = embedding()
    of_file.sinusoidal.CopyFrom(embedding_pb2.Sinusoidal(
        model=model("marian", d_model=8, encoder_layers=1, max_position_embeddings=16, encoder_attention_heads=2)))
    rows_of_file = learned(numpy.ones((6, 4)), model=model("opt", hidden_size=4, num_attention_heads=2, num_hidden_layers=1,
                                                           max_position_embeddings=4, word_embed_proj_dim=4))
    rows_of_file.learned.ClearField("offset")
    rows_of_file.positions.offset = 0
    rows_of_file.count = 2

    video = grid(frames=2, temperature=100, interpolation_scale=2, temporal_interpolation_scale=3, extra_tokens=1)
    cut = grid(base_size=4, pos_embed_max_size=6)
    detr = grid(convention=embedding_pb2.GRID_CONVENTION_DETR, normalize=True, scale=3, offset=-0.5)
    turned = grid(convention=embedding_pb2.GRID_CONVENTION_MAE, rows_first=True)
    grid_of_file = grid()
    grid_of_file.grid.CopyFrom(embedding_pb2.Grid(height=2, width=2, model=model(
        "vit_mae", hidden_size=16, num_attention_heads=2, image_size=4, patch_size=2)))
    return [padded, spaced, looked_up, resized, gathered, of_file, rows_of_file,
            timestep(max_period=100, downscale_freq_shift=0, scale=2, flip_sin_to_cos=True), video, cut, detr, turned,
            grid_of_file, fourier(numpy.ones((3, 2)), numpy.ones((4, 2)))]


def masked():
    request = bias(alibi_form=bias_pb2.ALIBI_FORM_ASYMMETRIC)
    request.method.alibi.future_slopes.CopyFrom(tensor([1, 2, 3, 4], FP64))
    request.mask.CopyFrom(causal_mask())
    request.mask.key_valid.CopyFrom(tensor([[True, True, False]], BOOL))
    request.geometry.query_positions.CopyFrom(tensor([0, 1, 2], INT64))
    request.geometry.key_positions.CopyFrom(tensor([0, 1, 2], INT64))
    request.precision.CopyFrom(EXACT)
    request.hints.request_id = "masked"
    return request


def of_method(**method):
    """A bias of another method."""
    request = bias()
    request.method.CopyFrom(bias_pb2.BiasMethod(**method))
    return request


def biases():
    bucketed = of_method(t5=bias_pb2.T5Bias(bidirectional=True), table=weights(32, 4), table_layout=BUCKETS_BY_HEADS)
    network = of_method(swin_v2=bias_pb2.SwinV2Bias(
        window_height=2, window_width=2, pretrained_window_height=3, pretrained_window_width=3,
        hidden_weight=weights(3, 2), hidden_bias=weights(3), output_weight=weights(4, 3)))
    network.ClearField("geometry")

    prefixed = of_method(nope=bias_pb2.Nope(num_heads=2))
    prefixed.mask.CopyFrom(causal_mask())
    prefixed.mask.prefix_length.append(1)
    prefixed.mask.query_documents.CopyFrom(tensor([0, 0, 1], INT32))
    prefixed.mask.key_documents.CopyFrom(tensor([0, 0, 1], INT32))

    windowed = bias(alibi_form=bias_pb2.ALIBI_FORM_SYMMETRIC)
    windowed.method.alibi.alibi_bias_max = 4
    windowed.method.alibi.bias_dtype = BF16
    windowed.mask.CopyFrom(bias_pb2.Mask(window_left=1, window_right=0, fill_value=-1e4,
                                         fully_masked_row=bias_pb2.FULLY_MASKED_ROW_ZEROS))
    windowed.geometry.head_start = 1
    windowed.geometry.head_count = 2

    padded = bias(alibi_form=bias_pb2.ALIBI_FORM_BLOOM)
    padded.method.alibi.log_slopes.CopyFrom(tensor([-1, -2, -3, -4], FP32))
    padded.method.alibi.position_mask.CopyFrom(tensor([[False, True, True]], BOOL))

    few_buckets = bias_pb2.T5Bias(num_buckets=8, max_distance=16, bidirectional=False)
    windows = model("swinv2", window_size=2, image_size=8, patch_size=2, embed_dim=4, depths=[1], num_heads=[2])
    of_file = of_method(swin_v2=bias_pb2.SwinV2Bias(hidden_weight=weights(3, 2), hidden_bias=weights(3),
                                                    output_weight=weights(2, 3), model=windows))
    of_file.ClearField("geometry")
    fire = bias_pb2.Fire(c=0.1, threshold=8, epsilon=1e-5, hidden_weight=weights(3), hidden_bias=weights(3),
                         output_weight=weights(4, 3), output_bias=weights(4))
    gates = of_method(forget_gate=bias_pb2.ForgetGate(
        log_gates=tensor(-numpy.abs(numpy.arange(6).reshape(2, 3) / 4), FP32), cu_seqlens=tensor([0, 1, 3], INT32)))
    gates.mask.CopyFrom(causal_mask())
    return [
        masked(), bucketed, network, prefixed, windowed, padded, of_file, gates,
        of_method(fire=fire),
        of_method(t5=few_buckets, table=weights(4, 8), table_layout=bias_pb2.BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS),
        of_method(sandwich=bias_pb2.Sandwich(convention=bias_pb2.SANDWICH_CONVENTION_SNIPPET, num_heads=2, dim=16,
                                             base=1000)),
        of_method(kerple=bias_pb2.Kerple(kernel=bias_pb2.KERPLE_KERNEL_POWER, a=[1, 2], p=[1, 0.5])),
        of_method(model=model("bloom", n_head=4, hidden_size=16, n_layer=1),
                  position_mask=tensor([[False, True, True]], BOOL)),
    ]


def bias_streams():
    return [service_pb2.StreamBiasRequest(bias=masked(), rows_per_tile=2)]


def sums():
    request = service_pb2.AddBiasRequest(method=masked().method, mask=masked().mask, precision=AXES,
                                         scores=tensor(numpy.zeros((1, 4, 3, 3)), FP32))
    request.geometry.query_offsets.offset.append(0)
    request.hints.return_plan = True
    return [request]


def analyses():
    curves = analysis()
    curves.rotary.settings.xpos.CopyFrom(rotary_pb2.Xpos(scale_base=256, centre=2))
    dots = service_pb2.AnalyzeRequest(sinusoidal=embedding_pb2.Sinusoidal(
        convention=embedding_pb2.SINUSOIDAL_CONVENTION_HALVES, dim=8), distances=by_segments().positions, count=2)
    by_length = service_pb2.AnalyzeRequest(rotary=rotary_pb2.RotarySource(settings=dynamic()), seq_len=128)
    by_length.hints.request_id = "analyzed"
    return [curves, dots, by_length]


def methods_of_files():
    """Relative methods whose settings are in a config.json."""
    bert = model("bert", position_embedding_type="relative_key", hidden_size=8, num_attention_heads=2,
                 max_position_embeddings=3)
    xlnet = model("xlnet", d_model=8, n_head=2, n_layer=1)
    deberta = model("deberta", hidden_size=8, num_attention_heads=2, max_position_embeddings=4, relative_attention=True,
                    pos_att_type=["c2p"], max_relative_positions=4)
    return [
        relative_pb2.RelativeMethod(shaw=relative_pb2.Shaw(table=weights(5, 4), model=bert)),
        relative_pb2.RelativeMethod(transformer_xl=relative_pb2.TransformerXl(
            position=projection(8, 8), position_bias=weights(2, 4), content_bias=weights(2, 4), model=xlnet)),
        relative_pb2.RelativeMethod(deberta=relative_pb2.Deberta(
            relative_embeddings=weights(8, 8), key=projection(8, 8), model=deberta)),
    ]


def inklings():
    """Inkling's bias by each order of tau, and with a config.json."""
    file = model("inkling2_text", num_hidden_layers=6, d_rel=4, rel_extent=3, num_attention_heads=2,
                 log_scaling_n_floor=2)
    file.layer_type = "hybrid"
    scaled = {"log_scaling_alpha": 0.5, "log_scaling_n_floor": 2}
    settings = ({}, {"scaled": relative_pb2.INKLING_SCALED_BIAS, **scaled},
                {"scaled": relative_pb2.INKLING_SCALED_STATES, **scaled}, {"model": file})
    methods = [relative_pb2.RelativeMethod(inkling=relative_pb2.Inkling(projection=weights(4, 3), **fields))
               for fields in settings]
    return [relative(method, dtype=BF16, content=False) for method in methods]


def relative_scores():
    found = [relative(method) for method in relative_methods()]
    for request in found:
        request.mask.CopyFrom(causal_mask())
        request.geometry.query_offset = 1
        request.precision.preset = rotary_pb2.PRECISION_PRESET_HF_EAGER
        request.hints.return_plan = True
        request.scale = 0.25
        request.add_to.CopyFrom(weights(1, 2, 3, 3))
    conformer = relative(relative_pb2.RelativeMethod(transformer_xl=relative_pb2.TransformerXl(
        position=projection(8, 6), encoding=relative_pb2.TRANSFORMER_XL_ENCODING_INTERLEAVED)))
    before = relative(relative_pb2.RelativeMethod(shaw=shaw(5, 4, before=1)))
    return [*found, conformer, before, *(relative(method) for method in methods_of_files()),
            *inklings()]


def relative_values():
    request = service_pb2.RelativeValuesRequest(
        shaw=shaw(5, 4), layout=rotary_pb2.LAYOUT_BSHD, probabilities=weights(1, 2, 3, 5, dtype=BF16),
        add_to=weights(1, 3, 2, 4), precision=AXES)
    request.geometry.query_offset = 2
    request.hints.return_plan = True
    alone = service_pb2.RelativeValuesRequest(shaw=shaw(5, 4), layout=rotary_pb2.LAYOUT_BHSD, dtype=BF16,
                                              probabilities=weights(1, 2, 3, 3))
    return [request, alone]


def diagnoses():
    rows = numpy.ones((1, 2, 1, 8)) + numpy.eye(8)[:2].reshape(1, 2, 1, 8)
    request = diagnosis(rows, rows[..., ::-1])
    request.rotation.k.CopyFrom(request.rotation.q)
    request.rotation.k.rotary_offset = 0
    request.direction = rotary_pb2.DIRECTION_INVERSE
    request.precision.CopyFrom(AXES)
    request.max_explanations = 2
    request.tolerance_ulp = 3
    request.hints.request_id = "diagnosed"

    wide = numpy.concatenate([rows, rows], axis=-1)
    shifted = diagnosis(wide, wide)
    shifted.rotation.q.rotary_offset = 8
    shifted.rotation.k.CopyFrom(shifted.rotation.q)
    shifted.rotation.k.rotary_offset = 0
    shifted.rotation.k.rotates_first = True

    angles = numpy.arange(4)[:, None] * 10000.0 ** (-numpy.arange(4) / 4)
    of_table = service_pb2.DiagnoseRequest(
        expected=request.expected, positions=rotary_pb2.Positions(offset=0),
        table=diagnose_pb2.TableEvidence(cos=tensor(numpy.cos(angles), FP32), sin=tensor(numpy.sin(angles), FP32),
                                         form=rotary_pb2.TABLE_FORM_HALF_WIDTH))
    of_frequencies = service_pb2.DiagnoseRequest(expected=request.expected, inv_freq=tensor(angles[1], FP64))
    return [request, shifted, of_table, of_frequencies]


def bias_diagnoses():
    falling = -numpy.abs(numpy.arange(3) - numpy.arange(3)[:, None]) * numpy.ones((4, 1, 1))
    request = service_pb2.DiagnoseBiasRequest(
        expected=masked().method, head_start=0, query_offset=0, precision=AXES, max_explanations=2, return_values=True,
        tolerance_ulp=3, up_to_softmax=True, mask=bias_pb2.Mask(causal=True), bias=tensor(falling, FP32))
    request.hints.return_plan = True
    # T5's buckets in one direction: distances 0, 1, 2, 3, 4 and 5, 6 and 7.
    distances = numpy.maximum(numpy.arange(8)[:, None] - numpy.arange(8), 0)
    buckets = numpy.array([0, 1, 2, 3, 4, 4, 5, 5])[distances]
    of_buckets = service_pb2.DiagnoseBiasRequest(
        expected=bias_pb2.BiasMethod(t5=bias_pb2.T5Bias(num_buckets=8, max_distance=16, bidirectional=False)),
        bias=tensor(numpy.stack([numpy.sin(buckets), numpy.cos(buckets)]), FP32))
    return [request, of_buckets]


def positions():
    """Of images, videos and audio, for the classes that together read all fields."""
    def request(model_type, tokens, **fields):
        of_model = {"model": model(model_type, **fields)} if model_type else {}
        return service_pb2.PositionsRequest(tokens=positions_pb2.TokenDescription(**tokens), **of_model)

    of_video = request("qwen2_5_vl", {
        "mm_token_type_ids": tensor([[0, 1, 0, 2, 2, 0]], INT32), "attention_mask": tensor([[1, 1, 1, 1, 1, 1]], BOOL),
        "image_grid_thw": tensor([[1, 2, 2]], INT64), "video_grid_thw": tensor([[2, 2, 2]], INT64),
        "second_per_grid_ts": tensor([0.5], FP32), "sequences": 1, "length": 6})
    of_video.token_begin, of_video.token_count = 1, 3
    of_video.hints.request_id = "positions"
    of_video.given.CopyFrom(positions_pb2.GivenPositions(ids=tensor([[2, 3, 4]], INT64), rope_deltas=tensor([0], INT64)))
    ids = {"vision_start_token_id": 1, "audio_start_token_id": 2, "video_token_id": 3, "audio_token_id": 4}
    of_omni = request("qwen2_5_omni_thinker", {
        "input_ids": tensor([[1, 2, 3, 4, 4, 5, 6]], INT64), "use_audio_in_video": True,
        "video_grid_thw": tensor([[1, 2, 2]], INT64), "second_per_grid_ts": tensor([1.0], FP64),
        "audio_seqlens": tensor([8], INT64)}, **ids)
    of_glm = request("glm_image", {
        "input_ids": tensor([[7, 8, 9]], INT64), "image_grid_thw": tensor([[1, 2, 2]], INT64),
        "images_per_sample": tensor([1], INT64)})
    of_crops = request("minicpmv4_7", {
        "mm_token_type_ids": tensor([0, 1, 0, 0, 2, 0], INT64), "input_ids": tensor([13, 7, 14, 13, 7, 14], INT64),
        "target_sizes": tensor([[2, 2]], INT64), "target_sizes_videos": tensor([[2, 2]], INT64),
        "downsample_mode": "4x"}, image_start_id=13, image_end_id=14)
    packed = request(None, {"mm_token_type_ids": tensor([0, 0, 0], INT64), "cu_seqlens": tensor([0, 1, 3], INT64)})
    after = request("qwen2_vl", {"length": 2, "cache_length": 3, "rope_deltas": tensor([-1], INT64)})
    in_window = request(None, {"length": 1, "cache_length": 9, "cache_window": positions_pb2.CacheWindow(
        size=4, sinks=1, renumbers=True)})
    return [of_video, of_omni, of_glm, of_crops, packed, after, in_window,
            service_pb2.PositionsRequest(model=flux("FluxTransformer2DModel"), latents=latents(text_length=2)),
            service_pb2.PositionsRequest(model=flux("LTXVideoTransformer3DModel"),
                                         latents=latents(rope_interpolation_scale=[0.4, 32, 32]))]


def flux(class_name):
    return rotary_pb2.ModelConfig(config_json=json.dumps({"_class_name": class_name}).encode())


def latents(**fields):
    return positions_pb2.LatentDescription(grid_thw=tensor([[1, 2, 3]], INT64), **fields)


def described():
    """Rotary requests whose positions are descriptions."""
    by_tokens = table()
    by_tokens.ClearField("rotary")
    by_tokens.rotary.model.CopyFrom(llama())
    by_tokens.ClearField("count")
    by_tokens.positions.CopyFrom(rotary_pb2.Positions(tokens=positions_pb2.TokenDescription(length=4)))
    by_latents = service_pb2.GenerateTableRequest()
    by_latents.CopyFrom(by_tokens)
    by_latents.rotary.model.CopyFrom(flux("FluxTransformer2DModel"))
    by_latents.positions.CopyFrom(rotary_pb2.Positions(latents=latents(text_length=2)))
    return [by_tokens, by_latents]


def comparisons():
    by_lengths = comparison(llama(), dynamic(), seq_len=[64, 128])
    by_lengths.hints.request_id = "compared"
    given = bias_pb2.BiasMethod(alibi=alibi())
    given.alibi.given.CopyFrom(tensor([1, 2, 3, 4], FP32))
    return [by_lengths, comparison(llama_gguf()), comparison(given, bias_pb2.BiasMethod(alibi=alibi())),
            comparison(by_table().rotary.settings, by_segments().rotary.settings)]


def rich_requests():
    """Returns (method, request)."""
    of_methods = {
        "GetServerInfo": [service_pb2.GetServerInfoRequest()], "Explain": explanations(), "ApplyRotary": rotations(),
        "GenerateTable": [*tables(), *described()], "StreamTable": table_streams(), "StreamBias": bias_streams(),
        "GenerateEmbedding": embeddings(), "GenerateBias": biases(), "AddBias": sums(), "Analyze": analyses(),
        "RelativeScores": relative_scores(), "RelativeValues": relative_values(), "Diagnose": diagnoses(),
        "DiagnoseBias": bias_diagnoses(), "Compare": comparisons(), "Positions": positions()}
    return [(method, request) for method, requests in of_methods.items() for request in requests]

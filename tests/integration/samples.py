"""Legal requests: small ones, and for each method one with as many fields set as possible."""

import numpy
from posenc.v1 import bias_pb2, compare_pb2, diagnose_pb2, embedding_pb2, relative_pb2, rotary_pb2, service_pb2
from tensors import BF16, BOOL, FP32, FP64, INT32, INT64, tensor


def rope_settings(rotary_dim=8, theta=10000.0, pairing=rotary_pb2.PAIRING_HALF_SPLIT):
    return rotary_pb2.RotarySettings(
        rope_parameters=rotary_pb2.RopeParameters(rope_type="default", rope_theta=theta), rotary_dim=rotary_dim,
        input_pairing=pairing)


def explain(**settings):
    return service_pb2.ExplainRequest(rotary=rope_settings(**settings))


def table(count=4, offset=0, dtype=FP32, form=rotary_pb2.TABLE_FORM_HALF_WIDTH, **settings):
    return service_pb2.GenerateTableRequest(
        rotary=rotary_pb2.RotarySource(settings=rope_settings(**settings)),
        positions=rotary_pb2.Positions(offset=offset), count=count, dtype=dtype, form=form)


def stream(rows_per_tile=None, **arguments):
    return service_pb2.StreamTableRequest(table=table(**arguments), rows_per_tile=rows_per_tile)


def rotary(q=None, k=None, dtype=FP32, offset=0, layout=rotary_pb2.LAYOUT_BSHD, **settings):
    q = numpy.ones((1, 2, 1, 8)) if q is None else q
    request = service_pb2.ApplyRotaryRequest(
        rotary=rotary_pb2.RotarySource(settings=rope_settings(**settings)),
        positions=rotary_pb2.Positions(offset=offset), layout=layout,
        q=rotary_pb2.RotaryOperand(tensor=tensor(q, dtype)))
    if k is not None:
        request.k.tensor.CopyFrom(tensor(k, dtype))
    return request


def model_table(config_json, count=4, **choice):
    return service_pb2.GenerateTableRequest(
        rotary=rotary_pb2.RotarySource(model=rotary_pb2.ModelConfig(config_json=config_json, **choice)),
        positions=rotary_pb2.Positions(offset=0), count=count, dtype=FP32, form=rotary_pb2.TABLE_FORM_HALF_WIDTH)


def analysis(distances=(0.0, 4.0), **settings):
    return service_pb2.AnalyzeRequest(rotary=rotary_pb2.RotarySource(settings=rope_settings(**settings)),
                                      distances=rotary_pb2.Positions(ids=tensor(distances, FP64)))


def comparison(a=None, b=None, seq_len=()):
    """Compares two settings, each a message of one of ComparedSettings' cases. By default they differ in theta."""
    def side(settings):
        for case in ("model", "rotary", "bias"):
            if isinstance(settings, type(getattr(compare_pb2.ComparedSettings(), case))):
                return compare_pb2.ComparedSettings(**{case: settings})
        raise TypeError(settings)
    return service_pb2.CompareRequest(a=side(a or rope_settings()), b=side(b or rope_settings(theta=20000.0)),
                                      seq_len=seq_len)


def diagnosis(before, after, offset=0, dtype=FP32, **settings):
    rows = diagnose_pb2.BeforeAndAfter(before=tensor(before, dtype), after=tensor(after, dtype))
    return service_pb2.DiagnoseRequest(
        expected=rotary_pb2.RotarySource(settings=rope_settings(**settings)),
        positions=rotary_pb2.Positions(offset=offset), layout=rotary_pb2.LAYOUT_BSHD,
        rotation=diagnose_pb2.RotationEvidence(q=rows))


def embedding(dim=8, count=4, dtype=FP32, convention=embedding_pb2.SINUSOIDAL_CONVENTION_INTERLEAVED):
    return service_pb2.GenerateEmbeddingRequest(
        sinusoidal=embedding_pb2.Sinusoidal(convention=convention, dim=dim),
        positions=rotary_pb2.Positions(offset=0), count=count, dtype=dtype)


def timestep(dim=8, timesteps=(0.5, 17.0), dtype=FP32, **settings):
    return service_pb2.GenerateEmbeddingRequest(
        timestep=embedding_pb2.Timestep(dim=dim, **settings),
        positions=rotary_pb2.Positions(ids=tensor(timesteps, FP64)), dtype=dtype)


def grid(dim=16, height=2, width=3, dtype=FP32, convention=embedding_pb2.GRID_CONVENTION_DIFFUSERS, **settings):
    return service_pb2.GenerateEmbeddingRequest(
        grid=embedding_pb2.Grid(convention=convention, dim=dim, height=height, width=width, **settings), dtype=dtype)


def learned(table, offset=0, dtype=FP32, table_dtype=FP32, **settings):
    return service_pb2.GenerateEmbeddingRequest(
        learned=embedding_pb2.Learned(table=tensor(table, table_dtype), offset=offset, **settings), dtype=dtype)


def fourier(frequencies, points, dtype=FP32):
    return service_pb2.GenerateEmbeddingRequest(
        fourier=embedding_pb2.Fourier(frequencies=tensor(frequencies, FP64), points=tensor(points, FP64)), dtype=dtype)


def alibi(heads=4, form=bias_pb2.ALIBI_FORM_CAUSAL):
    return bias_pb2.Alibi(num_heads=heads, rule=bias_pb2.ALIBI_SLOPE_RULE_POWER_OF_TWO, form=form)


def bias(heads=4, queries=3, keys=3, dtype=FP32, form=bias_pb2.BIAS_FORM_DENSE, alibi_form=bias_pb2.ALIBI_FORM_CAUSAL):
    return service_pb2.GenerateBiasRequest(
        method=bias_pb2.BiasMethod(alibi=alibi(heads, alibi_form)),
        geometry=bias_pb2.BiasGeometry(query_length=queries, key_length=keys), form=form, dtype=dtype)


def causal_mask():
    return bias_pb2.Mask(causal=True, fill_kind=bias_pb2.MASK_FILL_NEGATIVE_INFINITY,
                         fully_masked_row=bias_pb2.FULLY_MASKED_ROW_FILL)


def repeated_segments(segment):
    """A table for 7 MiB of one segment, again and again."""
    request = table(rotary_dim=2, dtype=BF16)
    request.ClearField("count")
    one = rotary_pb2.PositionSegments(segment=[segment]).SerializeToString()
    request.positions.CopyFrom(rotary_pb2.Positions(
        segments=rotary_pb2.PositionSegments.FromString(one * ((7 << 20) // len(one)))))
    return request


def masked_single_key():
    """A bias of one key, whose positions take more memory than the answer of nearly 8 MiB."""
    request = bias(heads=1, queries=(2 << 20) - 64, keys=1)
    request.geometry.query_offset = 0
    request.mask.CopyFrom(causal_mask())
    return request


def weights(*shape, dtype=FP32):
    return tensor(numpy.random.default_rng(20261121).standard_normal(shape), dtype)


def projection(outputs, inputs, bias=False):
    return relative_pb2.Projection(weight=weights(outputs, inputs), layout=relative_pb2.WEIGHT_LAYOUT_OUTPUT_BY_INPUT,
                                   bias=weights(outputs) if bias else None)


def shaw(rows, dim, order=relative_pb2.SHAW_ORDER_KEY_MINUS_QUERY, clip=True, **settings):
    return relative_pb2.Shaw(table=weights(rows, dim), order=order, clip=clip, **settings)


def relative_methods(heads=2, dim=4, width=6, positions=16):
    """Returns a RelativeMethod of each kind, with as many fields set as possible."""
    norm = relative_pb2.LayerNorm(weight=weights(width), bias=weights(width), epsilon=1e-5)
    outputs = heads * dim
    return [
        relative_pb2.RelativeMethod(shaw=shaw(5, dim, key_term=True)),
        relative_pb2.RelativeMethod(transformer_xl=relative_pb2.TransformerXl(
            position=projection(outputs, width), position_bias=weights(heads, dim), content_bias=weights(heads, dim),
            clamp_len=9)),
        relative_pb2.RelativeMethod(tupe=relative_pb2.Tupe(
            position_embeddings=weights(positions + 1, width), layer_norm=norm, query=projection(outputs, width, True),
            key=projection(outputs, width), relative_bias=bias_pb2.T5Bias(bidirectional=True),
            relative_bias_table=weights(32, heads), cls=relative_pb2.TUPE_CLS_UNTIED,
            relative_bias_table_layout=bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS)),
        relative_pb2.RelativeMethod(deberta=relative_pb2.Deberta(
            relative_embeddings=weights(16, width), layer_norm=norm, key=projection(outputs, width, True),
            query=projection(outputs, width), position_buckets=8, max_relative_positions=16,
            distance=relative_pb2.DEBERTA_DISTANCE_CLAMPED)),
        relative_pb2.RelativeMethod(wpr=relative_pb2.Wpr(
            wavelet=relative_pb2.WAVELET_MORLET, scales=2, first_exponent=1, morlet_frequency=1.5,
            channels=relative_pb2.WPR_CHANNELS_SCALE_FASTEST, distance=relative_pb2.WPR_DISTANCE_KEY_MINUS_QUERY)),
        relative_pb2.RelativeMethod(cope=relative_pb2.Cope(position_embeddings=weights(3, dim))),
    ]


def relative(method, heads=2, queries=3, dim=4, dtype=FP32, content=True):
    """Requests scores of `queries` queries and as many keys. Keys have half as many heads."""
    return service_pb2.RelativeScoresRequest(
        method=method, layout=rotary_pb2.LAYOUT_BHSD, content=content, dtype=dtype,
        q=weights(1, heads, queries, dim, dtype=dtype),
        k=weights(1, heads // 2, queries, dim, dtype=dtype) if content else None)


def scores(method, heads, queries, keys, dim, dtype=FP32, **geometry):
    """Requests scores of tensors of any lengths; all heads share the keys."""
    return service_pb2.RelativeScoresRequest(
        method=method, layout=rotary_pb2.LAYOUT_BHSD, content=True, dtype=dtype,
        geometry=bias_pb2.BiasGeometry(**geometry), q=weights(1, heads, queries, dim, dtype=dtype),
        k=weights(1, 1, keys, dim, dtype=dtype))


def rich_requests():
    """Returns (method, request) for each method and each way to give positions, so that all message types occur."""
    axes = rotary_pb2.Precision(axes=rotary_pb2.PrecisionAxes(
        frequencies=rotary_pb2.FREQUENCY_ARITHMETIC_EXACT, table_dtype=rotary_pb2.TABLE_DTYPE_FLOAT32,
        rounding=rotary_pb2.ROUNDING_ONCE))

    packed = rotary(numpy.ones((3, 2, 8)), numpy.ones((3, 1, 8)), BF16, layout=rotary_pb2.LAYOUT_THD)
    packed.positions.cu_seqlens.CopyFrom(tensor([0, 1, 3], INT32))
    packed.positions.offsets.offset.extend([5, 7])
    packed.direction = rotary_pb2.DIRECTION_TRANSPOSE
    packed.precision.CopyFrom(axes)
    packed.hints.request_id = "packed"

    by_ids = rotary(numpy.ones((1, 2, 1, 8)))
    by_ids.positions.ids.CopyFrom(tensor([3, 4], INT64))
    by_ids.precision.preset = rotary_pb2.PRECISION_PRESET_EXACT

    by_segments = table()
    by_segments.ClearField("count")
    by_segments.positions.segments.segment.add().line.CopyFrom(rotary_pb2.PositionLine(count=2, start=1, step=0.5))
    by_segments.rotary.settings.given_frequencies.CopyFrom(
        rotary_pb2.GivenFrequencies(inv_freq=[1, 0.5, 0.25, 0.125], attention_scaling=1.5))
    by_segments.hints.return_plan = True

    by_grid = table(rotary_dim=12)
    by_grid.ClearField("count")
    by_grid.rotary.settings.rope_parameters.mrope_section.extend([2, 2, 2])
    by_grid.rotary.settings.rope_parameters.mrope_order = rotary_pb2.MROPE_ORDER_INTERLEAVED
    by_grid.positions.segments.segment.add().grid.CopyFrom(rotary_pb2.PositionGrid(size=[1, 2, 3], start=[4, -4, 0.5]))

    by_axes = rotary(numpy.ones((1, 2, 1, 8)))
    by_axes.rotary.settings.axial.axes.add(dim=2)
    by_axes.rotary.settings.axial.axes.add(dim=6, rope_theta=256, frequency_start=0.5)
    by_axes.positions.ids.CopyFrom(tensor([[3, 4], [5, 6]], INT64))
    by_axes.positions.axis_dimension = rotary_pb2.AXIS_DIMENSION_LAST
    by_axes.rotary.settings.half_split_parts = 2

    by_table = rotary(numpy.ones((1, 2, 1, 4)))
    by_table.rotary.settings.ClearField("rotary_dim")
    by_table.rotary.settings.given_table.CopyFrom(rotary_pb2.GivenTable(
        cos=tensor(numpy.ones((2, 2)), FP32), sin=tensor(numpy.zeros((2, 2)), FP32),
        form=rotary_pb2.TABLE_FORM_HALF_WIDTH))
    by_table.hints.return_plan = True

    with_xpos = table()
    with_xpos.rotary.settings.xpos.CopyFrom(rotary_pb2.Xpos(scale_base=256, centre=2))
    with_xpos.operand = rotary_pb2.OPERAND_KEY

    by_model = service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(
        config_json=b'{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}'))

    of_alibi = service_pb2.ExplainRequest(bias=bias_pb2.BiasMethod(alibi=alibi()))
    of_alibi.bias.alibi.given.CopyFrom(tensor([1, 2, 3, 4], FP32))

    masked = bias(alibi_form=bias_pb2.ALIBI_FORM_ASYMMETRIC)
    masked.method.alibi.future_slopes.CopyFrom(tensor([1, 2, 3, 4], FP64))
    masked.mask.CopyFrom(causal_mask())
    masked.mask.key_valid.CopyFrom(tensor([[True, True, False]], BOOL))
    masked.geometry.query_positions.CopyFrom(tensor([0, 1, 2], INT64))
    masked.geometry.key_positions.CopyFrom(tensor([0, 1, 2], INT64))
    masked.precision.preset = rotary_pb2.PRECISION_PRESET_EXACT
    masked.hints.request_id = "masked"

    added = service_pb2.AddBiasRequest(method=masked.method, mask=masked.mask,
                                       scores=tensor(numpy.zeros((1, 4, 3, 3)), FP32))
    added.geometry.query_offsets.offset.append(0)

    bucketed = bias()
    bucketed.method.CopyFrom(bias_pb2.BiasMethod(
        t5=bias_pb2.T5Bias(bidirectional=True), table=tensor(numpy.zeros((32, 4)), FP32),
        table_layout=bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS))
    network = service_pb2.GenerateBiasRequest(
        method=bias_pb2.BiasMethod(swin_v2=bias_pb2.SwinV2Bias(
            window_height=2, window_width=2, hidden_weight=tensor(numpy.ones((3, 2)), FP32),
            hidden_bias=tensor(numpy.ones(3), FP32), output_weight=tensor(numpy.ones((4, 3)), FP32))),
        form=bias_pb2.BIAS_FORM_DENSE, dtype=FP32)
    methods = [bias_pb2.BiasMethod(kerple=bias_pb2.Kerple(kernel=bias_pb2.KERPLE_KERNEL_LOG, a=[1], p=[1])),
               bias_pb2.BiasMethod(sandwich=bias_pb2.Sandwich(
                   convention=bias_pb2.SANDWICH_CONVENTION_PAPER, num_heads=2)),
               bias_pb2.BiasMethod(swin=bias_pb2.SwinBias(window_height=2, window_width=2)),
               bias_pb2.BiasMethod(beit=bias_pb2.BeitBias(window_height=2, window_width=2, table=bias_pb2.BEIT_TABLE_PLAIN))]
    others = [("Explain", service_pb2.ExplainRequest(bias=method)) for method in methods]
    prefixed = bias()
    prefixed.method.nope.SetInParent()
    prefixed.mask.CopyFrom(causal_mask())
    prefixed.mask.prefix_length.append(1)
    prefixed.mask.query_documents.CopyFrom(tensor([0, 0, 1], INT32))
    prefixed.mask.key_documents.CopyFrom(tensor([0, 0, 1], INT32))

    padded = embedding(convention=embedding_pb2.SINUSOIDAL_CONVENTION_FAIRSEQ)
    padded.ClearField("positions")
    padded.ClearField("count")
    padded.sinusoidal.padding_idx = 1
    padded.sinusoidal.token_valid.CopyFrom(tensor([[True, True, False]], BOOL))

    looked_up = learned(numpy.ones((4, 2)), offset=1, token_valid=tensor([[True, True, False]], BOOL), scale=0.5)
    looked_up.dtype = 0
    looked_up.add_to.CopyFrom(tensor(numpy.ones((2, 1, 3, 2)), BF16))
    looked_up.precision.CopyFrom(axes)

    in_time = timestep(max_period=100, downscale_freq_shift=0, scale=2, flip_sin_to_cos=True)
    video = grid(frames=2, temperature=100, interpolation_scale=2, temporal_interpolation_scale=3, extra_tokens=1)
    features = fourier(numpy.ones((3, 2)), numpy.ones((4, 2)))

    curves = analysis()
    curves.rotary.settings.xpos.CopyFrom(rotary_pb2.Xpos(scale_base=256, centre=2))
    dots = service_pb2.AnalyzeRequest(sinusoidal=embedding_pb2.Sinusoidal(
        convention=embedding_pb2.SINUSOIDAL_CONVENTION_HALVES, dim=8), distances=by_segments.positions, count=2)
    scores = [relative(method) for method in relative_methods()]
    for request in scores:
        request.mask.CopyFrom(causal_mask())
        request.geometry.query_offset = 1
        request.precision.preset = rotary_pb2.PRECISION_PRESET_HF_EAGER
        request.hints.return_plan = True
        request.scale = 0.25
        request.add_to.CopyFrom(weights(1, 2, 3, 3))
    values = service_pb2.RelativeValuesRequest(
        shaw=shaw(5, 4), layout=rotary_pb2.LAYOUT_BSHD, probabilities=weights(1, 2, 3, 5, dtype=BF16),
        add_to=weights(1, 3, 2, 4), precision=axes)
    values.geometry.query_offset = 2
    values.hints.return_plan = True

    rows = numpy.ones((1, 2, 1, 8)) + numpy.eye(8)[:2].reshape(1, 2, 1, 8)
    found = diagnosis(rows, rows[..., ::-1])
    found.rotation.k.CopyFrom(found.rotation.q)
    found.direction = rotary_pb2.DIRECTION_INVERSE
    found.precision.CopyFrom(axes)
    found.max_explanations = 2

    falling = -numpy.abs(numpy.arange(3) - numpy.arange(3)[:, None]) * numpy.ones((4, 1, 1))
    found_bias = service_pb2.DiagnoseBiasRequest(
        expected=masked.method, head_start=0, query_offset=0, precision=axes, max_explanations=2, return_values=True,
        bias=tensor(falling, FP32))
    found_bias.hints.return_plan = True

    dynamic = rope_settings()
    dynamic.rope_parameters.rope_type = "dynamic"
    dynamic.rope_parameters.factor = 2
    dynamic.max_position_embeddings = 64
    by_lengths = comparison(by_model.model, dynamic, seq_len=[64, 128])
    by_lengths.hints.request_id = "compared"
    slopes = comparison(of_alibi.bias, bias_pb2.BiasMethod(alibi=alibi()))
    tables = comparison(by_table.rotary.settings, by_segments.rotary.settings)

    tiled = service_pb2.StreamTableRequest(table=by_segments, rows_per_tile=1)
    return [
        ("GetServerInfo", service_pb2.GetServerInfoRequest()), ("Explain", by_model), ("Explain", explain()),
        ("Explain", of_alibi), ("ApplyRotary", packed), ("ApplyRotary", by_ids), ("GenerateTable", by_segments),
        ("GenerateTable", by_grid), ("ApplyRotary", by_axes), ("ApplyRotary", by_table), ("GenerateTable", with_xpos),
        ("StreamTable", tiled), ("StreamBias", service_pb2.StreamBiasRequest(bias=masked, rows_per_tile=2)),
        ("GenerateEmbedding", padded),
        ("GenerateEmbedding", looked_up), ("GenerateEmbedding", in_time), ("GenerateEmbedding", video),
        ("GenerateEmbedding", features), ("GenerateBias", masked), ("AddBias", added),
        ("GenerateBias", bucketed), ("GenerateBias", network), ("GenerateBias", prefixed),
        ("Analyze", curves), ("Analyze", dots), *others,
        *(("RelativeScores", request) for request in scores), ("RelativeValues", values), ("Diagnose", found),
        ("DiagnoseBias", found_bias), ("Compare", by_lengths), ("Compare", slopes), ("Compare", tables),
    ]

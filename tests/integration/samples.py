"""Small legal requests, and their parts."""

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

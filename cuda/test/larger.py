"""What the digests' cases have not: tensors of many chunks in pieces that end anywhere, tables that are computed where
they are used, several axes, biases given as rows, documents, prefixes. Each function returns (expected, actual)."""

from ctypes import byref

import mpmath
import numpy

from cases import Finisher, Format, chain_format, kernels, table_of
from plugin import (DTYPES, PAIRINGS, ROUNDINGS, SIZES, Bias, DeviceMemory, Rotate, address, pieces)

RANDOM = numpy.random.default_rng(20)


def expected_table(positions, inv_freq, frequencies, dtype, scale, divide):
    """[rows, pairs] of cosines and of sines; `positions` is [rows, pairs]."""
    form, answer = Format(dtype), []
    for function in (mpmath.cos, mpmath.sin):
        entries = []
        for position, frequency in zip(positions.ravel().tolist(), numpy.tile(inv_freq, len(positions)).tolist()):
            arguments = function, position, frequency, scale, divide, form
            entries.append(kernels.exact_entry(*arguments) if frequencies == "exact" else
                           kernels.stepwise_entry(*arguments, chain_format(frequencies)))
        answer.append(numpy.array(entries).reshape(positions.shape))
    return answer


def expected_rotation(x, cos, sin, form, table_dtype, rounding, interleaved):
    """x is [tokens, heads, dims] of the format's bits; cos and sin are [tokens, pairs]."""
    real = "<f8" if table_dtype == "FP64" else "<f4"
    c, s = (values.astype(real)[:, None, :] for values in (cos, sin))
    pairs = cos.shape[1]
    values = form.float64(x).astype(real)
    at = ((slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else
          (slice(0, pairs), slice(pairs, 2 * pairs)))
    x0, x1 = values[..., at[0]], values[..., at[1]]
    step = (lambda value: form.round(value).astype(real)) if rounding == "each" else (lambda value: value)
    y = x.copy()
    y[..., at[0]] = form.rounded(step(x0 * c) - step(x1 * s))
    y[..., at[1]] = form.rounded(step(x1 * c) + step(x0 * s))
    return y


def cut(array, count):
    """The array's bytes as that many pieces, of which some are empty."""
    ends = numpy.sort(RANDOM.integers(0, array.nbytes, count - 1)).tolist() + [array.nbytes]
    return pieces(*((array, begin, end - begin) for begin, end in zip([0] + ends, ends)))


def rotation(plugin, dtype, table_dtype, frequencies, rounding="once", interleaved=False, tokens=48, heads=6, pairs=24,
             axes=1, heads_first=False, on_device=False, scale=1.0, divide=0, negate=0, far=0):
    form = Format(dtype)
    positions = numpy.ascontiguousarray(RANDOM.integers(0, 100000, (axes, tokens)), "<f8")
    positions[:, :far] = 2.0**70  # beyond what the device can prove, whatever the frequency
    inv_freq = 10000.0 ** (-numpy.arange(pairs) / pairs)
    if frequencies == "float32":
        inv_freq = inv_freq.astype("<f4").astype("<f8")
    axis = (numpy.arange(pairs) % axes).astype("<u4")
    finisher = Finisher(frequencies, table_dtype, scale, divide)
    table = table_of(positions[0], inv_freq, frequencies, table_dtype, scale, divide, finisher)
    table.positions, table.axes, table.negate_sin = address(positions), axes, negate
    if axes > 1:
        table.axis = address(axis)
    cos, sin = expected_table(positions[axis].T, inv_freq, frequencies, table_dtype, scale, divide)

    dims = 2 * pairs + 16
    x = form.rounded(RANDOM.standard_normal((tokens, heads, dims)))
    expected = expected_rotation(x, cos, -sin if negate else sin, form, table_dtype, rounding, interleaved)
    if heads_first:
        x, expected = (numpy.ascontiguousarray(array.swapaxes(0, 1)) for array in (x, expected))
    y = numpy.zeros_like(x)
    pairing = PAIRINGS["interleaved" if interleaved else "half-split"]
    work = Rotate(dtype=DTYPES[dtype], rounding=ROUNDINGS[rounding], input_pairing=pairing, output_pairing=pairing,
                  half_split_parts=1, head_dim=dims, rotary_offset=0, tokens=tokens, heads=heads, table=table,
                  heads_first=heads_first)
    row = dims * SIZES[dtype]
    if on_device:
        work.token_stride, work.head_stride = (row, tokens * row) if heads_first else (heads * row, row)
        with DeviceMemory(plugin.helpers, x) as device_x, DeviceMemory(plugin.helpers, y) as device_y:
            work.x, work.y = device_x.at(0), device_y.at(0)
            plugin.call("rotate", byref(work))
            y = device_y.read()
    else:
        work.x, work.y = cut(x, 7), cut(y, 11)
        plugin.call("rotate", byref(work))
    assert finisher.calls >= far * pairs, "entries were taken for proven that cannot be"
    return expected.tobytes(), y.tobytes()


def bias(plugin, dtype, stride=None, scores=True, documents=False, prefix=False, on_device=False, queries=70, keys=90,
         rounding="once", cls=None, at=0.0, step=1.0):
    """A bias given as rows of this stride, or linear if that is None; or gathered, with a cls token or without one.

    Key 0 is at position `at`, the next one at a distance of `step`.
    """
    form = Format(dtype)
    i, j = at + step * (numpy.arange(queries) + float(keys - queries)), at + step * numpy.arange(keys, dtype="<f8")
    work = Bias(dtype=DTYPES[dtype], rounding=ROUNDINGS[rounding], queries=queries, keys=keys, causal=1,
                prefix_end=at + 7 * step if prefix else -numpy.inf, window_left=33 * step, window_right=numpy.inf,
                fill=-3.0, past_slope=0.25, future_slope=-0.5, mask_query_positions=address(i),
                mask_key_positions=address(j), zero_fully_masked_rows=1)
    if cls is not None:
        values = RANDOM.standard_normal(queries + 2 * keys).astype("<f4")
        origins, places = 2 * keys - RANDOM.integers(0, keys, queries).astype("<f8"), (
            at + 2.0 * keys + RANDOM.integers(0, queries, keys))
        work.values, work.value_count, work.cls_query, work.cls_key = address(values), len(values), cls, cls
        work.query_positions, work.key_positions, work.first = address(origins), address(places), at - 7
        value = values[(places - origins[:, None] - at).astype(int) + 7]
        if cls:
            value[0], value[:, 0], value[0, 0] = values[-3], values[-2], values[-1]
    elif stride is None:
        work.query_positions, work.key_positions = address(i), address(j)
        value = numpy.where(j > i[:, None], -0.5, 0.25).astype("<f4") * (j - i[:, None]).astype("<f4")
    else:
        before = (queries - 1) * max(-stride, 0)
        rows = RANDOM.standard_normal(before + (queries - 1) * max(stride, 0) + keys).astype("<f4")
        work.bias, work.bias_stride = address(rows) + 4 * before, stride
        value = rows[before + stride * numpy.arange(queries)[:, None] + numpy.arange(keys)]
    given = form.rounded(RANDOM.standard_normal((queries, keys)))
    if scores:
        if rounding == "each":
            value = form.round(value).astype("<f4")
        value = form.float64(given).astype("<f4") + value
    highest = numpy.maximum(i, at + 7 * step) if prefix else i
    visible = (j <= highest[:, None]) & (j >= i[:, None] - 33 * step)
    query_documents, key_documents = numpy.floor((i - at) / (13 * step)), numpy.floor((j - at) / (17 * step))
    if documents:
        work.query_documents, work.key_documents = address(query_documents), address(key_documents)
        visible &= query_documents[:, None] == key_documents
    value = numpy.where(visible, value, numpy.float32(-3))
    value[~visible.any(1)] = 0
    out = numpy.zeros_like(given)
    if on_device:
        with DeviceMemory(plugin.helpers, given) as memory:
            if scores:
                work.scores = memory.at(0)
            work.out = memory.at(0)
            plugin.call("bias", byref(work))
            out = memory.read()
    else:
        if scores:
            work.scores = cut(given, 5)
        work.out = cut(out, 3)
        plugin.call("bias", byref(work))
    return form.rounded(value).tobytes(), out.tobytes()


def all_cases():
    """Yields (name, function of a plugin that returns (expected, actual))."""
    settings = []
    for dtype in ("FP32", "FP16", "BF16"):
        for table in (dtype, "FP32", "FP64"):
            for frequencies in ("exact", "float32", "float64"):
                n = len(settings)
                settings.append({"dtype": dtype, "table_dtype": table, "frequencies": frequencies, "axes": 1 + n % 3,
                                 "rounding": ("once", "each")[n % 2], "interleaved": n % 4 < 2, "on_device": n % 5 == 0,
                                 "heads_first": n % 3 == 0, "scale": (1.0, 1.1386294361119891)[n // 3 % 2],
                                 "divide": n % 7 == 3, "negate": n % 2, "far": (0, 2)[n % 4 == 3]})
    # More entries that cannot be proven than there is room for at first.
    settings.append({"dtype": "FP32", "table_dtype": "FP32", "frequencies": "float32", "tokens": 400, "heads": 1,
                     "pairs": 50, "far": 400, "on_device": True})
    # 16 MB and more, through the staging in many chunks.
    settings += [{"dtype": dtype, "table_dtype": "FP32", "frequencies": "exact", "tokens": 37, "heads": heads}
                 for dtype, heads in (("FP32", 2000), ("BF16", 4001))]
    for setting in settings:
        yield f"rotate {setting}", lambda plugin, setting=setting: rotation(plugin, **setting)
    settings = []
    for dtype in ("FP32", "FP16", "BF16"):
        for stride in (None, -1, 0, 1, 90):
            n = len(settings)
            settings.append({"dtype": dtype, "stride": stride, "scores": n % 3 > 0, "documents": n % 2 == 1,
                             "prefix": n % 4 > 1, "on_device": n % 5 == 2, "rounding": ("once", "each")[n // 2 % 2]})
        for cls in (0, 1):
            settings.append({"dtype": dtype, "cls": cls, "on_device": cls == 1, "scores": dtype != "BF16"})
    settings.append({"dtype": "FP32", "stride": -1, "queries": 1000, "keys": 3001})
    settings.append({"dtype": "BF16", "cls": 1, "queries": 700, "keys": 2048})
    # Positions that float holds, which kernels use then, and those beyond: 2^24 and more, negative, fractions.
    for at, step in ((2.0**24 - 1000, 1), (2.0**24 - 60, 1), (-2.0**24, 1), (2.0**31, 1), (-3, 0.25), (-3, 0.1)):
        for dtype, keys in (("FP32", 90), ("BF16", 96)):
            n = len(settings)
            settings.append({"dtype": dtype, "keys": keys, "at": at, "step": step, "scores": n % 3 > 0,
                             "documents": n % 4 > 1, "prefix": n % 3 > 1, "on_device": n % 5 == 2})
        settings.append({"dtype": "FP32", "cls": 0, "at": float(round(at)), "scores": False})
    for setting in settings:
        yield f"bias {setting}", lambda plugin, setting=setting: bias(plugin, **setting)

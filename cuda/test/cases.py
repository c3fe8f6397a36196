"""The cases of tests/digests as work for a plugin: each function returns what the plugin made of a case, as bytes.

What they should be is told by tests/digests/kernels.py, which computes it by mpmath, numpy and integers and which
tests/digests/test_digests.py holds against the recorded digests.
"""

import pathlib
import sys
from ctypes import byref

import numpy

sys.dont_write_bytecode = True
DIGESTS = pathlib.Path(__file__).resolve().parents[2] / "tests/digests"
sys.path.insert(0, str(DIGESTS))

import case_lines  # noqa: E402
import kernels  # noqa: E402
import mpmath  # noqa: E402
from binary_formats import Format, chain_format, certain, elements, random  # noqa: E402
from plugin import (DTYPES, FINISH, FREQUENCIES, PAIRINGS, ROUNDINGS, SIZES, Bias, DeviceMemory, Rotate, Table, address,
                    pieces, whole)  # noqa: E402


def read(file):
    """Yields (line, case) of one of the files."""
    return ((line, case) for line, case, _ in case_lines.read(DIGESTS / file))


def with_equal_nans(form, data):
    bits = numpy.frombuffer(data, form.dtype).copy()
    bits[numpy.isnan(form.float64(bits))] = form.infinity + form.normal // 2
    return bits


class Finisher:
    """posenc_table.finish, and how often it was called."""

    def __init__(self, frequencies, dtype, scale, divide):
        self.calls = 0
        exact = frequencies == "exact"
        form = Format(dtype) if exact else chain_format(frequencies)

        def finish(_, position, inv_freq, cos, sin):
            self.calls += 1
            for function, to in ((mpmath.cos, cos), (mpmath.sin, sin)):
                if exact:
                    to[0] = kernels.exact_entry(function, position, inv_freq, scale, divide, form)
                else:
                    angle = float(form.round(numpy.float64(position) * inv_freq))
                    to[0] = (numpy.nan if not numpy.isfinite(angle) else
                             certain(lambda: function(mpmath.mpf(angle)), form))

        self.function = FINISH(finish)


def table_of(positions, inv_freq, frequencies, dtype, scale=1.0, divide=0, finisher=None):
    """A table to compute, of one axis. `positions` and `inv_freq` must outlive it."""
    return Table(rows=len(positions), pairs=len(inv_freq), dtype=DTYPES[dtype], frequencies=FREQUENCIES[frequencies],
                 positions=address(positions), axes=1, inv_freq=address(inv_freq), scale=scale, divide=divide,
                 finish=finisher.function if finisher else FINISH())


def sincos_rows(plugin, case):
    positions = numpy.ascontiguousarray(kernels.positions_of(case, Format(case["dtype"])), "<f8")
    inv_freq = numpy.ascontiguousarray(kernels.frequencies_of(case), "<f8")
    recipe = case["frequencies"], case["dtype"], case["scale"], case["divide"]
    finisher = Finisher(*recipe)
    table = table_of(positions, inv_freq, *recipe, finisher=finisher)
    out = numpy.zeros((2, case["rows"] * case["pairs"] * SIZES[case["dtype"]]), "u1")
    plugin.call("table", byref(table), address(out[0]), address(out[1]))
    return with_equal_nans(Format(case["dtype"]), out).tobytes()


def rotate_pairs(plugin, case, on_device):
    """Tokens 1 and 2 of three: on the device with the case's strides, else each head row as a piece of its own."""
    form, table_form, tokens = Format(case["dtype"]), Format(case["table"]), kernels.TOKENS
    heads, pairs, before, size = case["heads"], case["pairs"], case["before"], SIZES[case["dtype"]]
    head_dim = before + 2 * pairs + case["after"]
    row_bytes = head_dim * size
    step = row_bytes + case["gap"]
    cos, sin = (with_equal_nans(table_form, elements(table_form, stream, tokens * pairs)[pairs:]) for stream in (1, 2))
    x = numpy.full((tokens * heads, step), 0x5A, "u1")
    x[:, :row_bytes] = elements(form, 3, tokens * heads * head_dim).view("u1").reshape(-1, row_bytes)
    y = x.copy() if case["in_place"] else numpy.full_like(x, 0xA5)
    outermost = bool(case["heads_outermost"])
    token_stride, head_stride = (step, tokens * step) if outermost else (heads * step, step)
    work = Rotate(dtype=DTYPES[case["dtype"]], rounding=ROUNDINGS[case["rounding"]],
                  input_pairing=PAIRINGS[case["input"]], output_pairing=PAIRINGS[case["output"]],
                  half_split_parts=case.get("half_split_parts", 1), head_dim=head_dim, rotary_offset=before,
                  tokens=tokens - 1, heads=heads, heads_first=outermost,
                  table=Table(rows=tokens - 1, pairs=pairs, dtype=DTYPES[case["table"]], cos=address(cos),
                              sin=address(sin)))
    if on_device:
        work.token_stride, work.head_stride = token_stride, head_stride
        with DeviceMemory(plugin.helpers, x) as device_x, DeviceMemory(plugin.helpers, y) as device_y:
            work.x = (device_y if case["in_place"] else device_x).at(token_stride)
            work.y = device_y.at(token_stride)
            plugin.call("rotate", byref(work))
            y = device_y.read().reshape(x.shape)
    else:
        rows = ([head * tokens + token for head in range(heads) for token in range(1, tokens)] if outermost else
                range(heads, tokens * heads))
        work.x, work.y = (pieces(*((array, row * step, row_bytes) for row in rows))
                          for array in (y if case["in_place"] else x, y))
        plugin.call("rotate", byref(work))
    token = numpy.arange(len(x)) % tokens if outermost else numpy.arange(len(x)) // heads
    rotated = numpy.ix_(token > 0, before * size + numpy.arange(2 * pairs * size))
    y[rotated] = with_equal_nans(form, y[rotated].tobytes()).view("u1").reshape(y[rotated].shape)
    return y.tobytes()


def distance_bias(plugin, case, on_device):
    form = Format(case["dtype"])
    queries, keys = case["queries"], case["keys"]
    i, j = case["offset"] + numpy.arange(queries, dtype="<f8"), numpy.arange(keys, dtype="<f8")
    arrays = {"query_positions": case["step"] * i, "key_positions": case["step"] * j}
    if case["mask"] != "none":
        shuffled = (random(1, j) % numpy.uint64(100)).astype("<f8")
        arrays |= {"mask_query_positions": i, "mask_key_positions": shuffled if case["mask"] == "shuffled" else j}
    if case["valid"] <= 4:
        valid = random(2, j) % numpy.uint64(4) < numpy.uint64(case["valid"])
        arrays["key_valid"] = numpy.where(valid, 1 + random(3, j) % numpy.uint64(255), 0).astype("u1")
    if case.get("documents"):
        arrays["query_documents"], arrays["key_documents"] = kernels.documents(case)
    masked = case["mask"] != "none"
    work = Bias(dtype=DTYPES[case["dtype"]], rounding=ROUNDINGS[case["rounding"]], queries=queries, keys=keys,
                past_slope=case["past"], future_slope=case["future"], bias_dtype=DTYPES[case["bias_dtype"]],
                causal=case["causal"] if masked else 0, prefix_end=case.get("prefix", -numpy.inf),
                window_left=case["left"] if masked else numpy.inf, window_right=case["right"] if masked else numpy.inf,
                fill=case["fill"], zero_fully_masked_rows=case["zero_rows"],
                **{name: address(array) for name, array in arrays.items()})
    if case.get("gather", "none") != "none":
        values, origins, places = kernels.gathered(case)
        work.values, work.value_count = address(values), len(values)
        work.cls_query = work.cls_key = case["gather"] == "cls"
        work.query_positions, work.key_positions = address(origins), address(places)
    if "source" in case:
        given, first, work.bias_stride = kernels.given_rows(case)
        work.query_positions = work.key_positions = None
        work.bias = None if given is None else address(given[first:])
    scores = elements(form, 4, queries * keys)
    out = numpy.zeros_like(scores)
    if on_device:
        with DeviceMemory(plugin.helpers, scores) as device_scores, DeviceMemory(plugin.helpers, out) as device_out:
            if case["scores"]:
                work.scores = device_scores.at(0)
            work.out = device_out.at(0)
            plugin.call("bias", byref(work))
            out = device_out.read()
    else:
        if case["scores"]:
            work.scores = whole(scores)
        work.out = whole(out)
        plugin.call("bias", byref(work))
    return with_equal_nans(form, out.tobytes()).tobytes()

"""Recomputes the primitives on data: conversions, cosines and sines, rotations, biases and masks."""

import mpmath
import numpy

from binary_formats import Format, certain, chain_format, elements, random, random_reals


def convert(case):
    source, target = Format(case["from"]), Format(case["to"])
    return target.rounded(source.float64(elements(source, case["count"], case["count"]))).tobytes()


# sincos_rows

EXTREME_POSITIONS = (0.0, -0.0, 1e300, -1e300, 5e-324, 1.7976931348623157e308, -1e-6, 1e15, 1e20, -1e-300)
EXTREME_FREQUENCIES = (1.0, 0.0, 2.0**-149, 0.5, 2.0**-20, 2.0**100, 5e-324, 1e-310, 1e300)


def positions_of(case, form):
    rows, kind = numpy.arange(case["rows"]), case["positions"]
    r = random(1, rows)
    if kind == "count":
        return rows.astype("<f8")
    if kind == "31-bits":
        return (r >> numpy.uint64(33)).astype("<f8")
    if kind == "53-bits":
        return (r >> numpy.uint64(11)).astype("<f8")
    if kind == "middles":
        return 2.0 ** min(form.mantissa + 1, 52) + 1 + 2 * rows
    if kind == "extremes":
        return numpy.array(EXTREME_POSITIONS)
    if "+n*" in kind:
        first, step = map(float, kind.split("+n*"))
        return first + rows * step
    return random_reals(1, rows, -40, 86)


def frequencies_of(case):
    pairs = numpy.arange(case["pairs"])
    if case["positions"] == "middles":
        return 2.0 ** (-8 - pairs)
    if case["positions"] == "extremes":
        return numpy.array(EXTREME_FREQUENCIES)[pairs]
    mantissa = random(2, pairs) >> numpy.uint64(12)
    if case["frequencies"] == "float32":
        mantissa = mantissa >> numpy.uint64(29) << numpy.uint64(29)
    return ((1022 - pairs % 40).astype("<u8") << numpy.uint64(52) | mantissa).view("<f8")


def exact_entry(function, position, frequency, scale, divide, form):
    if position == 0 or frequency == 0:
        if function is mpmath.sin:
            return 0.0
        one = mpmath.mpf(1)
        return certain(lambda: one / scale if divide else one * scale, form) if divide else float(form.round(scale))
    angle = mpmath.fmul(position, frequency, exact=True)
    return certain(lambda: function(angle) / scale if divide else function(angle) * scale, form)


def stepwise_entry(function, position, frequency, scale, divide, form, step):
    """Rounds each operation to the type of the steps, and the result to the table's type."""
    angle = float(step.round(numpy.float64(step.round(position)) * frequency))  # float32: exact before rounding
    if not numpy.isfinite(angle):
        return numpy.nan
    if angle == 0 and function is mpmath.sin:
        return 0.0
    value = 1.0 if angle == 0 else certain(lambda: function(mpmath.mpf(angle)), step)
    scale = numpy.float64(step.round(scale))
    # Two float32 numbers' product is exact in float64; their quotient's second rounding is harmless, 53 >= 2 * 24 + 2.
    scaled = step.round(numpy.float64(value) / scale if divide else numpy.float64(value) * scale)
    return float(form.round(scaled))


def sincos_rows(case):
    form = Format(case["dtype"])
    answer = []
    for function in (mpmath.cos, mpmath.sin):
        for position in positions_of(case, form).tolist():
            for frequency in frequencies_of(case).tolist():
                arguments = function, position, frequency, case["scale"], case["divide"], form
                if case["frequencies"] == "exact":
                    answer.append(exact_entry(*arguments))
                else:
                    answer.append(stepwise_entry(*arguments, chain_format(case["frequencies"])))
    return form.rounded(numpy.array(answer)).tobytes()


# rotate_pairs

TOKENS = 3


def rotate_pairs(case):
    form, table = Format(case["dtype"]), Format(case["table"])
    heads, pairs, before = case["heads"], case["pairs"], case["before"]
    head_dim = before + 2 * pairs + case["after"]
    real = f"<f{table.bits // 8}"  # the arithmetic's type
    own_heads, own = heads if case.get("by_head") else 1, 2 if case.get("by_element") else 1
    shape = TOKENS, own_heads, own, pairs
    cos, sin = (table.float64(elements(table, stream, TOKENS * own_heads * own * pairs)).astype(real).reshape(shape)
                for stream in (1, 2))
    x = elements(form, 3, TOKENS * heads * head_dim).reshape(TOKENS * heads, head_dim)
    rounded = form.round if case["rounding"] == "each" else lambda values: values

    y = x.copy() if case["in_place"] else numpy.full_like(x, int.from_bytes(b"\xa5" * 8, "little") >> 64 - form.bits)
    def of_pair(pairing):
        if pairing == "interleaved":
            first = before + numpy.arange(pairs) * 2
            return first, first + 1
        half = pairs // case.get("half_split_parts", 1)
        first = before + numpy.arange(pairs) // half * 2 * half + numpy.arange(pairs) % half
        return first, first + half
    for row in range(TOKENS * heads):
        token = row % TOKENS if case["heads_outermost"] else row // heads
        if token == 0:
            continue
        y[row] = x[row]
        x0, x1 = (form.float64(x[row, at]).astype(real) for at in of_pair(case["input"]))
        head = row // TOKENS if case["heads_outermost"] else row % heads
        c, s = (entries[token, head % own_heads] for entries in (cos, sin))
        products = [rounded(product).astype(real) for product in (x0 * c[0], x1 * s[0], x1 * c[-1], x0 * s[-1])]
        for at, result in zip(of_pair(case["output"]), (products[0] - products[1], products[2] + products[3])):
            y[row, at] = form.rounded(result)
    gap = b"\x5a" if case["in_place"] else b"\xa5"
    return b"".join(row.tobytes() + gap * case["gap"] for row in y)


# distance_bias

def gathered(case):
    """Returns a list of values, and the places of the queries and keys in it."""
    values = ((random(5, numpy.arange(64)) % numpy.uint64(65536)).astype("<f4") / 1024 - 32).astype("<f4")
    origins = -(random(7, numpy.arange(case["queries"])) % numpy.uint64(20)).astype("<f8")
    return values, origins, (random(6, numpy.arange(case["keys"])) % numpy.uint64(40)).astype("<f8")


def given_rows(case):
    """Returns a list of float32 values (None for no-bias), the first cell's place in it, and the stride of rows."""
    source, keys = case["source"], case["keys"]
    if source == "no-bias":
        return None, 0, 0
    form = Format("FP32")
    values = form.rounded(form.float64(elements(form, 8, case["queries"] * keys + keys))).view("<f4")
    return values, *{"rows": (0, keys), "one-row": (0, 0), "shifted": (case["queries"] - 1, -1)}[source]


def documents(case):
    """Yields the documents of the queries, then those of the keys."""
    return ((random(stream, numpy.arange(case[axis])) % numpy.uint64(case["documents"])).astype("<f8")
            for stream, axis in ((9, "queries"), (10, "keys")))


def distance_bias(case):
    form, bias_form = Format(case["dtype"]), Format(case["bias_dtype"])
    i, j = case["offset"] + numpy.arange(case["queries"])[:, None], numpy.arange(case["keys"], dtype="<f8")
    distance = (case["step"] * j - case["step"] * i).astype("<f4")
    slope = numpy.where(distance > 0, numpy.float32(case["future"]), numpy.float32(case["past"]))
    value = bias_form.round(slope * distance + numpy.float32(0)).astype("<f4")  # + 0 makes -0 positive
    if case.get("gather", "none") != "none":
        values, origins, places = gathered(case)
        value = values[(places - origins[:, None]).astype(int)]
        if case["gather"] == "cls":
            value[0], value[:, 0], value[0, 0] = values[-3], values[-2], values[-1]
    no_bias = case.get("source") == "no-bias"
    if no_bias:
        value = numpy.zeros_like(distance)
    elif "source" in case:
        values, first, stride = given_rows(case)
        value = values[first + numpy.arange(case["queries"])[:, None] * stride + numpy.arange(case["keys"])]
    if case["scores"]:
        if case["rounding"] == "each":
            value = form.round(value).astype("<f4")
        scores = form.float64(elements(form, 4, distance.size)).astype("<f4").reshape(distance.shape)
        value = scores if no_bias else scores + value  # without a bias, a score of -0 stays -0

    visible = numpy.ones(distance.shape, bool)
    if case["mask"] != "none":
        key = (random(1, j) % numpy.uint64(100)).astype("<f8") if case["mask"] == "shuffled" else j
        last = i + case["right"]
        if case["causal"]:
            last = numpy.minimum(last, numpy.maximum(i, case.get("prefix", -numpy.inf)))
        visible &= (key >= i - case["left"]) & (key <= last)
    if case.get("documents"):
        of_query, of_key = documents(case)
        visible &= of_query[:, None] == of_key
    if case["valid"] <= 4:
        visible &= random(2, j) % numpy.uint64(4) < numpy.uint64(case["valid"])
    value = numpy.where(visible, value, numpy.float32(case["fill"]))
    masked = case["valid"] <= 4 or case["mask"] != "none" or case.get("documents")
    if masked and case["zero_rows"]:
        value[~visible.any(-1)] = 0
    return form.rounded(value).tobytes()

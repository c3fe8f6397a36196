"""Recomputes the digests from what their lines say: the formulas once more, by mpmath, numpy and integers alone.

So whoever writes the files anew from a wrong kernel fails here. Nothing in this file is taken from posenc's code.
"""

import pathlib

import mpmath
import numpy
import pytest
import xxhash

TYPES = {"FP64": ("<u8", 52), "FP32": ("<u4", 23), "FP16": ("<u2", 10), "BF16": ("<u2", 7)}


class Format:
    """A binary floating-point format: the integers that describe its bits."""

    def __init__(self, name):
        self.name = name
        self.dtype, self.mantissa = TYPES[name]
        self.bits = 8 * numpy.dtype(self.dtype).itemsize
        self.exponents = (1 << (self.bits - 1 - self.mantissa)) - 1
        self.bias = self.exponents // 2
        self.normal = 1 << self.mantissa
        self.infinity = self.exponents << self.mantissa
        self.least = 1 - self.bias - self.mantissa  # the smallest positive value is 2^least

    def float64(self, bits):
        """The values of elements: exact."""
        if self.name in ("FP64", "FP32"):
            return bits.view(f"<f{self.bits // 8}").astype("<f8")
        bits = bits.astype("<i8")
        fraction, exponent = bits % self.normal, bits // self.normal % (self.exponents + 1)
        significand = numpy.where(exponent == 0, fraction, fraction + self.normal)
        value = numpy.ldexp(significand.astype("<f8"), numpy.maximum(exponent, 1) - 1 + self.least)
        value = numpy.where(exponent == self.exponents, numpy.where(fraction == 0, numpy.inf, numpy.nan), value)
        return numpy.where(bits >> (self.bits - 1), -value, value)

    def rounded(self, values):
        """float64 values as the nearest elements, ties to even, by integers; every NaN as the same one."""
        bits = numpy.asarray(values, "<f8").view("<i8")
        sign, bits = bits < 0, bits & (1 << 63) - 1
        exponent = (bits >> 52) - 1023  # float64's own subnormals are zero in every narrower type
        if self.name == "FP64":
            magnitude = bits
        else:
            dropped = numpy.minimum(52 - self.mantissa + numpy.maximum(1 - self.bias - exponent, 0), 54)
            significand = bits & (1 << 52) - 1 | 1 << 52
            kept = significand >> dropped
            rest = significand - (kept << dropped)
            half = numpy.int64(1) << dropped - 1
            kept += (rest > half) | (rest == half) & (kept % 2 == 1)
            magnitude = (numpy.maximum(exponent + self.bias - 1, 0) << self.mantissa) + kept
            magnitude = numpy.minimum(magnitude, self.infinity)
        nan = self.infinity + self.normal // 2
        magnitude = numpy.where(bits > 0x7FF << 52, nan, magnitude)
        sign = sign & (bits <= 0x7FF << 52)
        return (magnitude.astype("<u8") | sign.astype("<u8") << numpy.uint64(self.bits - 1)).astype(self.dtype)

    def round(self, values):
        """float64 values rounded to the format, as float64."""
        return self.float64(self.rounded(values))


def random(stream, index):
    """splitmix64."""
    z = (numpy.uint64(stream) << numpy.uint64(32)) + numpy.asarray(index, "<u8") + numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
    return z ^ z >> numpy.uint64(31)


def elements(form, stream, count):
    """The bits of a stream's first elements."""
    out = []
    for r in map(int, random(stream, numpy.arange(count))):
        sign, kind, choice, mantissa = r % 2 << form.bits - 1, r // 2 % 16, r // 32, r >> 64 - form.mantissa
        if kind < 10:
            cleared = form.mantissa - min((8, 11, 24, 52)[choice // 16 % 4], form.mantissa)
            out.append(sign + (form.bias - 4 + choice % 8) * form.normal + (mantissa >> cleared << cleared))
        elif kind < 14:
            out.append(sign + choice % (form.exponents + 1) * form.normal + mantissa)
        else:
            out.append(sign + (0, 1, 3, form.normal - 1, form.normal, form.infinity - 1, form.infinity,
                               form.bias * form.normal)[choice % 8])
    return numpy.array(out, form.dtype)


def convert(case):
    source, target = Format(case["from"]), Format(case["to"])
    return target.rounded(source.float64(elements(source, case["count"], case["count"]))).tobytes()


# sincos_rows

def certain(function, form):
    """function(), a real number that mpmath evaluates in its working precision, rounded to the format, as float64."""
    precision = 128
    while True:
        with mpmath.workprec(precision):
            value = function()
            error = abs(value) * mpmath.ldexp(1, 16 - precision)
            low, high = (round_real(bound, form) for bound in (value - error, value + error))
        if low == high:
            return low
        precision *= 2


def round_real(value, form):
    """An mpmath number rounded to the format, ties to even."""
    if value == 0:
        return 0.0
    quantum = max(mpmath.frexp(value)[1] - 1 - form.mantissa, form.least)
    multiple = int(mpmath.nint(mpmath.ldexp(value, -quantum)))
    if abs(multiple) * mpmath.ldexp(1, quantum) >= mpmath.ldexp(1, form.bias + 1):
        return numpy.copysign(numpy.inf, float(mpmath.sign(value)))
    return numpy.copysign(float(mpmath.ldexp(multiple, quantum)), float(mpmath.sign(value)))


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
    two, bits = numpy.uint64(2), numpy.uint64
    return (r % two << bits(63) | bits(1023 - 40) + r // two % bits(86) << bits(52) | r >> bits(12)).view("<f8")


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
    """Each operation rounded to the type of the steps, then to the table's."""
    angle = float(step.round(numpy.float64(step.round(position)) * frequency))  # of float32 numbers: exact, then rounded
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
                    answer.append(stepwise_entry(*arguments, Format("FP" + case["frequencies"][-2:])))
    return form.rounded(numpy.array(answer)).tobytes()


# rotate_pairs

TOKENS = 3


def rotate_pairs(case):
    form, table = Format(case["dtype"]), Format(case["table"])
    heads, pairs, before = case["heads"], case["pairs"], case["before"]
    head_dim = before + 2 * pairs + case["after"]
    real = f"<f{table.bits // 8}"  # the arithmetic's type
    cos, sin = (table.float64(elements(table, stream, TOKENS * pairs)).astype(real).reshape(TOKENS, pairs)
                for stream in (1, 2))
    x = elements(form, 3, TOKENS * heads * head_dim).reshape(TOKENS * heads, head_dim)
    rounded = form.round if case["rounding"] == "each" else lambda values: values

    y = x.copy() if case["in_place"] else numpy.full_like(x, int.from_bytes(b"\xa5" * 8, "little") >> 64 - form.bits)
    def of_pair(pairing):
        first = before + numpy.arange(pairs) * (2 if pairing == "interleaved" else 1)
        return first, first + (1 if pairing == "interleaved" else pairs)
    for row in range(TOKENS * heads):
        token = row % TOKENS if case["heads_outermost"] else row // heads
        if token == 0:
            continue
        y[row] = x[row]
        x0, x1 = (form.float64(x[row, at]).astype(real) for at in of_pair(case["input"]))
        c, s = cos[token], sin[token]
        products = [rounded(product).astype(real) for product in (x0 * c, x1 * s, x1 * c, x0 * s)]
        for at, result in zip(of_pair(case["output"]), (products[0] - products[1], products[2] + products[3])):
            y[row, at] = form.rounded(result)
    gap = b"\x5a" if case["in_place"] else b"\xa5"
    return b"".join(row.tobytes() + gap * case["gap"] for row in y)


# distance_bias

def distance_bias(case):
    form, bias_form = Format(case["dtype"]), Format(case["bias_dtype"])
    i, j = case["offset"] + numpy.arange(case["queries"])[:, None], numpy.arange(case["keys"], dtype="<f8")
    distance = (case["step"] * j - case["step"] * i).astype("<f4")
    slope = numpy.where(distance > 0, numpy.float32(case["future"]), numpy.float32(case["past"]))
    value = bias_form.round(slope * distance + numpy.float32(0)).astype("<f4")  # plus 0: no bias is -0
    if case["scores"]:
        if case["rounding"] == "each":
            value = form.round(value).astype("<f4")
        scores = form.float64(elements(form, 4, distance.size)).astype("<f4")
        value = scores.reshape(distance.shape) + value

    visible = numpy.ones(distance.shape, bool)
    if case["mask"] != "none":
        key = (random(1, j) % numpy.uint64(100)).astype("<f8") if case["mask"] == "shuffled" else j
        visible &= (key >= i - case["left"]) & (key <= i + (0 if case["causal"] else case["right"]))
    if case["valid"] <= 4:
        visible &= random(2, j) % numpy.uint64(4) < numpy.uint64(case["valid"])
    value = numpy.where(visible, value, numpy.float32(case["fill"]))
    masked = case["valid"] <= 4 or case["mask"] != "none"
    if masked and case["zero_rows"]:
        value[~visible.any(-1)] = 0
    return form.rounded(value).tobytes()


# plans

def power(theta, i, dim):
    return mpmath.power(theta, mpmath.mpf(2 * i) / dim)


def real_plan(case):
    """Frequencies and attention scaling over the real numbers, from the methods' papers; factor 5, 10,000 tokens."""
    kind, dim, theta = case["rope_type"], case["rotary_dim"], mpmath.mpf(case["theta"])
    factor, length, tokens, scaling = 5, 4096, 10000, mpmath.mpf(1)
    if kind == "dynamic":
        theta *= (mpmath.mpf(factor) * tokens / length - (factor - 1)) ** (mpmath.mpf(dim) / (dim - 2))
    if kind == "ntk_alpha":
        theta *= mpmath.mpf(1000) ** (mpmath.mpf(dim) / (dim - 2))
    inv_freq = [1 / power(theta, i, dim) for i in range(dim // 2)]
    if kind == "linear":
        inv_freq = [f / factor for f in inv_freq]
    if kind == "longrope":
        # Its divisors are float64 numbers.
        inv_freq = [f / mpmath.mpf(1 + i / 3) for i, f in enumerate(inv_freq)]
        scaling = mpmath.sqrt(1 + mpmath.log(factor) / mpmath.log(length))
    if kind == "llama3":
        for i, f in enumerate(inv_freq):
            turns = length * f / (2 * mpmath.pi)
            blend = min(max((turns - 1) / (4 - 1), 0), 1)
            inv_freq[i] = (1 - blend) * f / factor + blend * f
    if kind == "yarn":
        def turning(times):
            return dim * mpmath.log(length / (times * 2 * mpmath.pi)) / (2 * mpmath.log(theta))
        low, high = max(mpmath.floor(turning(32)), 0), min(mpmath.ceil(turning(1)), dim - 1)
        for i, f in enumerate(inv_freq):
            ramp = min(max((i - low) / (high - low), 0), 1)
            inv_freq[i] = ramp * f / factor + (1 - ramp) * f
        scaling = mpmath.log(factor) / 10 + 1
    return [*inv_freq, scaling]


def stepwise_plan(case, step):
    """default and linear: transformers' operations, each rounded."""
    theta, dim = float(step.round(case["theta"])), case["rotary_dim"]
    for i in range(dim // 2):
        exponent = float(step.round(numpy.float64(2 * i) / dim))
        w = certain(lambda: mpmath.power(theta, exponent), step) if i else 1.0
        frequency = float(step.round(1 / numpy.float64(w)))
        yield float(step.round(numpy.float64(frequency) / 5)) if case["rope_type"] == "linear" else frequency
    yield 1.0


def plans(case):
    if case["frequencies"] == "exact":
        with mpmath.workprec(300):
            numbers = [round_real(value, Format("FP64")) for value in real_plan(case)]
    elif case["rope_type"] in ("default", "linear"):
        numbers = list(stepwise_plan(case, Format("FP" + case["frequencies"][-2:])))
    else:
        return None
    return numpy.array(numbers, "<f8").tobytes()


def parse(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


@pytest.mark.parametrize("primitive", (convert, sincos_rows, rotate_pairs, distance_bias, plans))
def test_digests_can_be_recomputed(primitive):
    path = pathlib.Path(__file__).parent / f"{primitive.__name__}.txt"
    wrong, recomputed = [], 0
    with numpy.errstate(all="ignore"):
        for line in path.read_text().splitlines():
            *words, digest = line.split()
            data = primitive({key: parse(value) for key, value in (word.split("=") for word in words)})
            if data is None:
                continue
            recomputed += 1
            if xxhash.xxh3_64_hexdigest(data) != digest:
                wrong.append(line)
    assert not wrong, f"{len(wrong)} of {recomputed} differ"
    assert recomputed >= 100

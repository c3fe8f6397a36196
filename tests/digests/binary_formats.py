"""Binary floating-point formats, the digests' inputs, and rounding to a format with integers and mpmath."""

import mpmath
import numpy

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
        """Returns the exact values of elements."""
        if self.name in ("FP64", "FP32"):
            return bits.view(f"<f{self.bits // 8}").astype("<f8")
        bits = bits.astype("<i8")
        fraction, exponent = bits % self.normal, bits // self.normal % (self.exponents + 1)
        significand = numpy.where(exponent == 0, fraction, fraction + self.normal)
        value = numpy.ldexp(significand.astype("<f8"), numpy.maximum(exponent, 1) - 1 + self.least)
        value = numpy.where(exponent == self.exponents, numpy.where(fraction == 0, numpy.inf, numpy.nan), value)
        return numpy.where(bits >> (self.bits - 1), -value, value)

    def rounded(self, values):
        """Rounds float64 values to elements, ties to even, with integers. All NaNs become the same one."""
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
        """Rounds float64 values to the format and returns them as float64."""
        return self.float64(self.rounded(values))


def random(stream, index):
    """splitmix64."""
    z = (numpy.uint64(stream) << numpy.uint64(32)) + numpy.asarray(index, "<u8") + numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
    return z ^ z >> numpy.uint64(31)


def random_reals(stream, index, low, span):
    """Returns numbers of any mantissa and either sign, with magnitudes from 2^low up to 2^(low + span)."""
    r, bits = random(stream, index), numpy.uint64
    exponent = bits(1023 + low) + r // bits(2) % bits(span)
    return (r % bits(2) << bits(63) | exponent << bits(52) | r >> bits(12)).view("<f8")


def elements(form, stream, count):
    """Returns the bits of a stream's first elements."""
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


def certain(function, form):
    """Rounds function(), which mpmath evaluates in its working precision, to the format. Returns it as float64."""
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
    """Rounds an mpmath number to the format, ties to even."""
    if value == 0:
        return 0.0
    quantum = max(mpmath.frexp(value)[1] - 1 - form.mantissa, form.least)
    multiple = int(mpmath.nint(mpmath.ldexp(value, -quantum)))
    if abs(multiple) * mpmath.ldexp(1, quantum) >= mpmath.ldexp(1, form.bias + 1):
        return numpy.copysign(numpy.inf, float(mpmath.sign(value)))
    return numpy.copysign(float(mpmath.ldexp(multiple, quantum)), float(mpmath.sign(value)))


def chain_format(frequencies):
    """Returns the format that each operation of a chain rounds to; None for real numbers."""
    return None if frequencies == "exact" else Format("FP" + frequencies[-2:])

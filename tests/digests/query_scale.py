"""Recomputes rows of queries that a factor of their position multiplies."""

from fractions import Fraction

import mpmath
import numpy

from binary_formats import Format, certain, chain_format, elements, random


def exact_factor(case, p):
    """Returns s(p), rounded once to float64."""
    def value():
        slope, length = mpmath.mpf(case["slope"]), mpmath.mpf(case["length"])
        if case["function"] == "beam":
            return mpmath.exp(mpmath.log1p(mpmath.mpf(p + 1) / 2048) / 10)
        if case["function"] == "logn":
            return mpmath.log(p + 1) / mpmath.log(length) if p + 1 > length else mpmath.mpf(1)
        step = Fraction(p + (case["function"] == "llama4")) // Fraction(case["length"])
        return 1 + slope * mpmath.log(1 + step)
    return certain(value, Format("FP64"))


def chained_factor(case, p, step):
    """Rounds each operation to `step`; what Python computes outside tensors is float64."""
    def rounded(value):
        return numpy.float64(step.round(value))

    def log(value, form):
        return numpy.float64(certain(lambda: mpmath.log(mpmath.mpf(float(value))), form))
    if case["function"] == "logn":
        length, double = case["length"], Format("FP64")
        return rounded(log(p + 1, double) / log(length, double)) if p + 1 > length else 1.0
    position, one = rounded(float(p)), 1.0
    if case["function"] == "beam":
        x = rounded(rounded(rounded(position + one) / 2048) + one)
        product = rounded(rounded(0.1) * log(x, step))
        return certain(lambda: mpmath.exp(mpmath.mpf(float(product))), step)
    if case["function"] == "llama4":
        position = rounded(position + one)
    whole = numpy.floor(rounded(position / rounded(case["length"])))
    return rounded(one + rounded(rounded(case["slope"]) * log(rounded(one + whole), step)))


def query_scale(case):
    form, step, single = Format(case["dtype"]), chain_format(case["frequencies"]), Format("FP32")
    index = numpy.arange(case["tokens"])
    positions = random(1, index) >> (40 + index % 24).astype("<u8")
    factors = [chained_factor(case, int(p), step) if step else exact_factor(case, int(p)) for p in positions]
    rows = form.float64(elements(form, 2, case["tokens"] * case["elements"])).reshape(len(index), -1)
    products = single.round(rows * single.round(numpy.array(factors))[:, None])  # exact in float64, then float32
    return form.rounded(products).tobytes()

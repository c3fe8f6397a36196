"""Recomputes Fourier features: sines and cosines of 2 pi B x."""

from fractions import Fraction

import mpmath
import numpy

from binary_formats import Format, certain, chain_format, random, random_reals
from kernels import stepwise_entry


def points_of(case):
    points, terms = case["points"], case["terms"]
    index = numpy.arange(points * terms)
    if case["inputs"] == "eighths":
        x = (random(1, index) % numpy.uint64(201)).astype("<f8") - 100
    elif case["inputs"] == "cancelling":
        x = numpy.repeat(random_reals(1, numpy.arange(points), -4, 10), terms)
    else:
        x = random_reals(1, index, *((30, 30) if case["inputs"] == "far" else (-4, 10)))
    return x.reshape(points, terms)


def factors_of(case):
    pairs, terms = case["pairs"], case["terms"]
    index = numpy.arange(pairs * terms)
    if case["inputs"] == "eighths":
        return (((random(2, index) % numpy.uint64(65)).astype("<f8") - 32) / 8).reshape(pairs, terms)
    if case["inputs"] != "cancelling":
        return random_reals(2, index, -8, 12).reshape(pairs, terms)
    # Signs alternate; the last factor is larger by up to two units in its last place.
    magnitudes = numpy.repeat(random_reals(2, numpy.arange(pairs), -8, 12), terms).reshape(pairs, terms)
    for step in range(2):
        grows = numpy.arange(pairs) % 3 > step
        magnitudes[grows, -1] = numpy.nextafter(magnitudes[grows, -1], numpy.copysign(numpy.inf, magnitudes[grows, -1]))
    return magnitudes * numpy.where(numpy.arange(terms) % 2, -1, 1)


def exact_turn(point, row, form):
    """Returns cosine and sine of the turns: those of the rest after the nearest quarter, exchanged and negated."""
    turns = sum(Fraction(x) * Fraction(b) for x, b in zip(point, row))
    quarters = round(4 * turns)
    rest = turns - Fraction(quarters, 4)
    if rest == 0:
        return ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))[quarters % 4]  # exact zeros are +0

    def angle():
        return 2 * mpmath.pi * rest.numerator / rest.denominator
    cos, sin = (certain(lambda: function(angle()), form) for function in (mpmath.cos, mpmath.sin))
    return ((cos, sin), (-sin, cos), (-cos, -sin), (sin, -cos))[quarters % 4]


def chained_turn(point, row, form, step):
    """Rounds each operation. For two float32 numbers, float64's result is exact, or rounding it again is harmless."""
    def rounded(value):
        return numpy.float64(step.round(value))
    two_pi, angle = rounded(6.283185307179586), None
    for x, b in zip(point, row):
        product = rounded(rounded(two_pi * rounded(x)) * rounded(b))
        angle = product if angle is None else rounded(angle + product)
    return tuple(stepwise_entry(f, 1.0, angle, 1.0, False, form, step) for f in (mpmath.cos, mpmath.sin))


def fourier(case):
    form, step = Format(case["dtype"]), chain_format(case["frequencies"])
    answer = []
    for point in points_of(case):
        turns = [chained_turn(point, row, form, step) if step else exact_turn(point, row, form)
                 for row in factors_of(case)]
        answer += [sin for _, sin in turns] + [cos for cos, _ in turns]
    return form.rounded(numpy.array(answer)).tobytes()

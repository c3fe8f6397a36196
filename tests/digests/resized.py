"""Recomputes resized tables in fractions."""

import math
from fractions import Fraction

import mpmath
import numpy

from binary_formats import Format, random_reals, round_real


def kernel(distance, cubic, a):
    x = abs(distance)
    if not cubic:
        return max(1 - x, Fraction(0))
    if x < 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else Fraction(0)


def weights_of(way, source, target, index):
    """Returns {cell of the table: weight} of an axis."""
    if "nearest" in way:
        return {index * source // target: Fraction(1)}
    cubic, corners = "bicubic" in way, "corners" in way
    step = Fraction(source - 1, target - 1) if corners and target > 1 else Fraction(0 if corners else source, target)
    if "antialias" in way:
        stretch, center = max(step, Fraction(1)), step * (index + Fraction(1, 2))
        weights = {n: kernel((n + Fraction(1, 2) - center) / stretch, cubic, Fraction(-1, 2)) for n in range(source)}
        total = sum(weights.values())
        return {n: weight / total for n, weight in weights.items()}
    x = step * index if corners else step * (index + Fraction(1, 2)) - Fraction(1, 2)
    weights = {}
    for n in range(math.floor(x) - 2, math.floor(x) + 4):
        if 0 <= n < source or "zeros" not in way:
            cell = min(max(n, 0), source - 1)
            weights[cell] = weights.get(cell, 0) + kernel(x - n, cubic, Fraction(-3, 4))
    return weights


def rounded(sum_of, form):
    """Rounds a fraction to the format: to odd in 2,200 bits first, which no rounding to it notices."""
    if sum_of == 0:
        return 0.0
    shift = 2200 - sum_of.numerator.bit_length() + sum_of.denominator.bit_length()
    scaled = abs(sum_of.numerator) << max(shift, 0)
    digits, rest = divmod(scaled, sum_of.denominator << max(-shift, 0))
    with mpmath.workprec(2300):
        value = mpmath.ldexp(mpmath.mpf(digits | (rest != 0)), -shift)
        return float(round_real(value if sum_of > 0 else -value, form))


def resized(case):
    if case["frequencies"] != "exact":
        return None
    table_form, form = Format(case["table"]), Format(case["dtype"])
    source, target, width = (case["rows"], case["columns"]), (case["to_rows"], case["to_columns"]), case["width"]
    table = table_form.round(random_reals(1, numpy.arange(source[0] * source[1] * width), -3, 5)).reshape(*source, width)
    answer = []
    for y in range(target[0]):
        rows = weights_of(case["way"], source[0], target[0], y)
        for x in range(target[1]):
            columns = weights_of(case["way"], source[1], target[1], x)
            answer += [rounded(sum(a * b * Fraction(table[i, j, n]) for i, a in rows.items() for j, b in columns.items()), form)
                       for n in range(width)]
    return form.rounded(numpy.array(answer)).tobytes()

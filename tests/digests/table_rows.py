"""Recomputes rotary tables for positions of several axes, with xPos's scale, with two angles in a pair, and of sums."""

from fractions import Fraction

import mpmath
import numpy

from binary_formats import Format, certain, chain_format, random, random_reals
from distance_values import Chain
from kernels import exact_entry, stepwise_entry

FP64 = Format("FP64")
ROWS = 5


def positions_of(axis):
    rows = numpy.arange(ROWS)
    if axis % 3 == 0:
        return rows.astype("<f8")
    return random_reals(axis, rows, -4, 14) if axis % 3 == 1 else (random(axis, rows) >> numpy.uint64(43)).astype("<f8")


def numbers(text, kind=float):
    return [kind(number) for number in str(text).split("+")]


def power_of_theta(theta, start, i, dim, step):
    """theta^(-2 (start + i) / dim)."""
    if step is None:
        return certain(lambda: mpmath.power(theta, -2 * (mpmath.mpf(start) + i) / dim), FP64)
    chain = Chain(step)
    exponent = chain.round(2 * chain.round(chain.round(start) + i) / dim)
    return float(chain.round(1 / chain.of(mpmath.power, chain.round(theta), exponent)))


def given(pairs, step):
    frequencies = random_reals(9, numpy.arange(pairs), -30, 30)
    return (step.round(frequencies) if step else frequencies).tolist()


def axial(case, step):
    """Returns frequencies and axes of one embedding per axis, side by side or alternating."""
    pairs = []
    settings = numbers(case["dim"], int), numbers(case["rope_theta"]), numbers(case["frequency_start"])
    for axis, (dim, theta, start) in enumerate(zip(*settings)):
        pairs += [(i, power_of_theta(theta, start, i, dim, step), axis) for i in range(dim // 2)]
    if case.get("alternating"):
        pairs.sort(key=lambda pair: (pair[0], pair[2]))
    return [inv_freq for _, inv_freq, _ in pairs], [axis for _, _, axis in pairs]


def mrope(case, step):
    """Returns frequencies and axes of one embedding whose pairs are divided among the axes (of three: t, h, w)."""
    sections, order = numbers(case["mrope_section"], int), case["mrope_order"]
    pairs = sum(sections)
    if order == "contiguous":
        axis_of = [axis for axis, pairs_of_axis in enumerate(sections) for _ in range(pairs_of_axis)]
    elif order == "interleaved":  # thwthw..., as long as h and w have pairs left; then all t
        axis_of = [0] * pairs
        for axis in (1, 2):
            for n in range(sections[axis]):
                axis_of[3 * n + axis] = axis
    elif order == "elements":  # see by_element()
        axis_of = [0] * pairs
    else:  # Ernie's: hwhw..., then t
        axis_of = [1, 2] * sections[0] + [0] * sections[2]
    return [power_of_theta(case["rope_theta"], 0, i, 2 * pairs, step) for i in range(pairs)], axis_of


def by_element(case, inv_freq, axis_of):
    """Returns frequencies and axes of the pairs' first elements, then of the second ones, where they differ."""
    pairs, elements = len(inv_freq), [(pair, which) for which in (0, 1) for pair in range(len(inv_freq))]
    if case.get("mrope_order") == "elements":  # sections of elements; half-split
        axes = [axis for axis, section in enumerate(numbers(case["mrope_section"], int)) for _ in range(2 * section)]
        return inv_freq * 2, axes
    if "table_pairing" not in case:
        return inv_freq, axis_of
    half = pairs // case["half_split_parts"]
    def element(pair, which, pairing):
        return 2 * pair + which if pairing == "interleaved" else pair // half * 2 * half + which * half + pair % half
    pair_of = {element(pair, which, case["table_pairing"]): pair for pair, which in elements}
    source = [pair_of[element(pair, which, case["input_pairing"])] for pair, which in elements]
    return [inv_freq[pair] for pair in source], [axis_of[pair] for pair in source]


def rows_of_sums(case, form, step):
    """Returns rows of cosines and sines of sums over the axes."""
    axes, count = case["axes"], case["heads"] * case["pairs"]
    inv_freq = numpy.reshape(given(count * axes, step), (count, axes))
    at = numpy.transpose([positions_of(axis) for axis in range(axes)])

    def entry(function, point, f):
        if not step:
            total = sum(Fraction(float(p)) * Fraction(float(g)) for p, g in zip(point, f))
            if total == 0:
                return 1.0 if function == mpmath.cos else 0.0
            return certain(lambda: function(mpmath.mpf(total.numerator) / total.denominator), form)
        angle = None
        for p, g in zip(point, f):
            product = float(step.round(numpy.float64(step.round(p)) * g))
            angle = product if angle is None else float(step.round(numpy.float64(angle) + product))
        return stepwise_entry(function, angle, 1.0, 1.0, False, form, step)
    return [[entry(function, point, f) for point in at for f in inv_freq] for function in (mpmath.cos, mpmath.sin)]


def rows_of_axes(case, form, step):
    """Returns rows of cosines, then of sines."""
    scaling, divide = case.get("attention_scaling", 1.0), case["direction"] == "inverse"
    if case["table"] == "given":
        axis_of = numbers(case["axis"], int)
        inv_freq = given(len(axis_of), step)
    else:
        inv_freq, axis_of = (axial if case["table"] == "axial" else mrope)(case, step)
    inv_freq, axis_of = by_element(case, inv_freq, axis_of)
    at = [positions_of(axis).tolist() for axis in range(max(axis_of) + 1)]
    entry = (lambda *of: stepwise_entry(*of, step)) if step else exact_entry
    return [[entry(function, at[axis][row], f, scaling, divide, form) for row in range(ROWS)
             for f, axis in zip(inv_freq, axis_of)] for function in (mpmath.cos, mpmath.sin)]


def xpos_entry(function, position, frequency, i, case, form):
    """cos(p f) * a * zeta^((p - centre) / scale_base) for q; for k, zeta has -1 times that exponent. The inverse
    divides by a and the power."""
    angle = mpmath.fmul(position, frequency, exact=True)
    divide, d = case["direction"] == "inverse", 2 * case["pairs"]

    def value():
        with mpmath.extraprec(64):  # for exponents up to 2^20
            zeta = (2 * i + mpmath.mpf(2) / 5 * d) / (mpmath.mpf(7) / 5 * d)
            exponent = (mpmath.mpf(position) - mpmath.mpf(case["centre"])) / mpmath.mpf(case["scale_base"])
            scale = mpmath.power(zeta, -exponent if case["operand"] == "k" else exponent) * case["attention_scaling"]
            return function(angle) / scale if divide else function(angle) * scale
    return certain(value, form)


def chained_xpos_entry(function, position, frequency, i, case, form, step):
    chain, d = Chain(step), 2 * case["pairs"]
    divide = case["direction"] == "inverse"
    value = numpy.float64(stepwise_entry(function, position, frequency, case["attention_scaling"], divide, step, step))
    # Python computes 0.4 d and 1.4 d in float64; then they are rounded to the tensor's type.
    zeta = chain.round(chain.round(2 * i + chain.round(0.4 * d)) / chain.round(1.4 * d))
    exponent = chain.round(chain.round(chain.round(position) - chain.round(case["centre"])) /
                           chain.round(case["scale_base"]))
    scale = chain.of(mpmath.power, zeta, exponent)
    if case["operand"] == "k":
        scale = chain.round(1 / scale)
    if value != 0:
        value = chain.round(value / scale if divide else value * scale)
    return float(form.round(value))


def rows_of_xpos(case, form, step):
    at = [case["centre"], *positions_of(1)[1:].tolist()]
    inv_freq = given(case["pairs"], step)
    entry = (lambda *of: chained_xpos_entry(*of, step)) if step else xpos_entry
    return [[entry(function, p, f, i, case, form) for p in at for i, f in enumerate(inv_freq)]
            for function in (mpmath.cos, mpmath.sin)]


def table_rows(case):
    form, step = Format(case["dtype"]), chain_format(case["frequencies"])
    rows_of = {"xpos": rows_of_xpos, "sums": rows_of_sums}.get(case["table"], rows_of_axes)
    cos, sin = map(numpy.array, rows_of(case, form, step))
    # Rotating back, by the transpose or by the inverse, negates the angle. Two angles in a pair change places, too.
    two_angles = "table_pairing" in case or case.get("mrope_order") == "elements"
    if two_angles and case["direction"] != "forward":
        sin = numpy.flip(sin.reshape(ROWS, 2, -1), axis=1).ravel()
    return form.rounded(numpy.concatenate([cos, sin if case["direction"] == "forward" else -sin])).tobytes()

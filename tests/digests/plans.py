"""Recomputes frequencies and attention scalings."""

import mpmath
import numpy

from binary_formats import Format, certain, chain_format, round_real


def power(theta, i, dim):
    return mpmath.power(theta, mpmath.mpf(2 * i) / dim)


def real_plan(case):
    """Returns frequencies and attention scaling as real numbers, from the methods' papers: factor 5, 10,000 tokens."""
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
        # longrope's divisors are float64 numbers.
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
    """Yields the plan of default or linear by transformers' operations, each rounded."""
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
        numbers = list(stepwise_plan(case, chain_format(case["frequencies"])))
    else:
        return None
    return numpy.array(numbers, "<f8").tobytes()

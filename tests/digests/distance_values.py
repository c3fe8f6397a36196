"""Recomputes biases that have one value per distance: T5's buckets, KERPLE, Sandwich."""

import mpmath
import numpy

from binary_formats import Format, certain, chain_format, random_reals

FP64, FP32 = Format("FP64"), Format("FP32")


class Chain:
    """A framework's arithmetic on tensors: each operation rounded to one format.

    For two float32 numbers, float64's result is exact, or rounding it again gives the correctly rounded float32.
    """

    def __init__(self, step):
        self.step = step

    def round(self, value):
        return numpy.float64(self.step.round(numpy.float64(value)))

    def of(self, function, *arguments):
        """An elementary function, correctly rounded."""
        return numpy.float64(certain(lambda: function(*map(mpmath.mpf, arguments)), self.step))


# T5: each direction has `buckets`. The nearer half of them have one distance each, the others logarithmic ranges.

def shared_bucket_exact(n, nearest, shared, farthest):
    """Returns the largest k with ln(n/nearest) / ln(farthest/nearest) * shared >= k, using integers only."""
    k = 0
    while k + 1 < shared and n**shared * nearest ** (k + 1) >= farthest ** (k + 1) * nearest**shared:
        k += 1
    return k


def shared_bucket_chain(n, nearest, shared, farthest, chain):
    # Python computes this logarithm in float64; then it is rounded to the tensor's type.
    log_of_all = chain.round(Chain(FP64).of(mpmath.log, numpy.float64(farthest) / nearest))
    ratio = chain.round(chain.round(n) / nearest)
    return min(int(chain.round(chain.round(chain.of(mpmath.log, ratio) / log_of_all) * shared)), shared - 1)


def t5(case):
    step = chain_format(case["frequencies"])
    buckets = case["num_buckets"] // (2 if case["bidirectional"] else 1)
    nearest = buckets // 2
    arguments = nearest, buckets - nearest, case["max_distance"]
    known, answer = {}, []
    for distance in range(case["first"], case["first"] + case["count"]):
        n = abs(distance) if case["bidirectional"] else max(-distance, 0)
        if n < nearest:
            known[n] = n
        elif n not in known:
            known[n] = nearest + (shared_bucket_chain(n, *arguments, Chain(step)) if step else
                                  shared_bucket_exact(n, *arguments))
        answer.append(known[n] + (buckets if case["bidirectional"] and distance > 0 else 0))
    return numpy.array(answer, "<i4").tobytes()


# KERPLE and Sandwich: for each magnitude of a distance, a list with one value per head.

def kerple(case, step):
    heads, log = case["heads"], case["kernel"] == "log"
    a, p = abs(random_reals(1, numpy.arange(heads), -6, 9)), abs(random_reals(2, numpy.arange(heads), -6, 7))

    def real(a, p, n):
        return -p * mpmath.log1p(a * n) if log else -a * mpmath.power(n, p)

    def chained(a, p, n, chain):
        a, p, n = map(chain.round, (a, p, n))
        if log:
            return chain.round(p * chain.of(mpmath.log, chain.round(1 + chain.round(a * n))))
        return chain.round(a * chain.of(mpmath.power, n, p)) if n else 0

    def values(n):
        if step:
            return [-chained(a[h], p[h], n, Chain(step)) for h in range(heads)]
        return [certain(lambda: real(mpmath.mpf(float(a[h])), mpmath.mpf(float(p[h])), n), FP32) if n else 0
                for h in range(heads)]
    return values


def sandwich(case, step):
    heads, pairs, paper = case["heads"], case["dim"] // 2, case["convention"] == "paper"
    first = 1 if paper else 0

    def real(n):
        with mpmath.extraprec(64):  # enough for distances up to 2^20 and for cancellation of cosines
            scales = (mpmath.power(case["base"], mpmath.mpf(k) / pairs) for k in range(first, first + pairs))
            return sum(mpmath.cos(n / scale) for scale in scales) - (pairs if paper else 0)

    def real_values(n):
        return [certain(lambda: real(n) * heads / (8 * h), FP32) for h in range(1, heads + 1)]

    if step is None:
        return real_values
    chain = Chain(step)
    # Python computes the exponents and ratios in float64; then they are rounded to the tensor's type.
    scales = [chain.of(mpmath.power, chain.round(case["base"]), chain.round(2.0 * k / case["dim"]))
              for k in range(first, first + pairs)]
    ratios = [chain.round(8.0 * h / heads) for h in range(1, heads + 1)]

    def chained_values(n):
        total = numpy.float64(0)
        for scale in scales:
            total = chain.round(total + chain.of(mpmath.cos, chain.round(chain.round(n) / scale)))
        if paper:
            total = chain.round(total - pairs)
        return [chain.round(total / ratio) for ratio in ratios]
    return chained_values


def distance_values(case):
    if case["method"] == "t5":
        return t5(case)
    values = {"kerple": kerple, "sandwich": sandwich}[case["method"]](case, chain_format(case["frequencies"]))
    distances = [abs(distance) for distance in range(case["first"], case["first"] + case["count"])]
    lists = {n: values(n) for n in set(distances)}
    table = numpy.array([lists[n] for n in distances], "<f8").T  # [heads, distances]
    return FP32.rounded(table + 0.0).tobytes()  # + 0.0 makes -0 positive

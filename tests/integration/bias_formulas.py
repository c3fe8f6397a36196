"""The formulas of relative biases, from their papers, in float64. They share no code with posenc."""

import math

import numpy


def t5_bucket(distance, buckets, max_distance, bidirectional):
    """Returns the bucket of key - query. Asserts that a logarithm close to a whole number is exactly that number."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
    n = abs(distance) if bidirectional else max(-distance, 0)
    exact = buckets // 2
    if n < exact:
        return first + n
    beyond = math.log(n / exact) / math.log(max_distance / exact) * (buckets - exact)
    nearest = round(beyond)
    if abs(beyond - nearest) < 1e-9:
        ties = n ** (buckets - exact) * exact ** nearest == max_distance ** nearest * exact ** (buckets - exact)
        assert ties, "float64 does not decide this"
        beyond = nearest
    return first + min(buckets - 1, exact + int(beyond))


def kerple(kernel, a, p, distance):
    distance = numpy.abs(distance).astype(float)
    a, p = (numpy.asarray(x, float)[:, None, None] for x in (a, p))
    return -p * numpy.log1p(a * distance) if kernel == "log" else -a * distance ** p


def sandwich(paper, heads, dim, distance):
    k = numpy.arange(dim // 2) + (1 if paper else 0)
    total = numpy.cos(distance[..., None] / 10000 ** (2 * k / dim)).sum(-1) - (dim / 2 if paper else 0)
    return total / (8 * numpy.arange(1, heads + 1) / heads)[:, None, None]


def swin_index(height, width):
    y, x = numpy.divmod(numpy.arange(height * width), width)
    return ((y[:, None] - y) + height - 1) * (2 * width - 1) + (x[:, None] - x) + width - 1


def beit_index(height, width):
    rows = (2 * height - 1) * (2 * width - 1)
    index = numpy.full((height * width + 1,) * 2, rows + 1)
    index[0, :] = rows
    index[0, 0] = rows + 2
    index[1:, 1:] = swin_index(height, width)
    return index


def swin_v2(height, width, hidden_weight, hidden_bias, output_weight):
    """Returns [H, tokens, tokens]."""
    def coordinate(displacement, size):
        return numpy.sign(displacement) * numpy.log2(8 * numpy.abs(displacement) / (size - 1) + 1) / 3
    y, x = numpy.divmod(numpy.arange(height * width), width)
    coordinates = numpy.stack([coordinate(y[:, None] - y, height), coordinate(x[:, None] - x, width)], -1)
    hidden = numpy.maximum(coordinates @ numpy.asarray(hidden_weight, float).T + hidden_bias, 0)
    return 16 / (1 + numpy.exp(-(hidden @ numpy.asarray(output_weight, float).T))).transpose(2, 0, 1)

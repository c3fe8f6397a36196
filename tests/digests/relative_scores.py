"""Recomputes relative scores: the tables of each method, and products added in float64 in the order of their index."""

import math

import mpmath
import numpy

from binary_formats import Format, certain, random_reals
from distance_values import shared_bucket_exact
from kernels import exact_entry
from table_rows import power_of_theta

FP32 = Format("FP32")
WIDTH = 6
BIAS_BUCKETS, FARTHEST = 8, 5  # T5's, in TUPE
SPAN_BUCKETS, POSITIONS = 8, 16  # DeBERTa's


def table(stream, *shape):
    numbers = FP32.round(random_reals(stream, numpy.arange(math.prod(shape)), -4, 5))
    return numbers.reshape(shape)


def dot(x, y):
    """Returns the dot product along the last axis, added in the order of its index."""
    total = numpy.zeros(numpy.broadcast_shapes(x.shape, y.shape)[:-1])
    for c in range(x.shape[-1]):
        total = total + x[..., c] * y[..., c]
    return total


def summed(values):
    total = numpy.float64(0)
    for value in values:
        total = total + value
    return total


def project(x, weight, bias, heads):
    """Returns the projection [heads, rows, d]."""
    y = FP32.round(dot(x[:, None, :], weight[None]) + bias)
    return y.reshape(len(x), heads, -1).transpose(1, 0, 2)


def normalised(x):
    weight, bias = table(8, WIDTH), table(9, WIDTH)
    rows = []
    for row in x:
        mean = summed(row) / WIDTH
        deviation = numpy.sqrt(summed((row - mean) * (row - mean)) / WIDTH + 1e-5)
        rows.append(FP32.round((row - mean) / deviation * weight + bias))
    return numpy.array(rows)


def shaw(case, distance):
    sign = 1 if case["variant"] % 2 == 0 else -1
    rows = table(3, 9, case["dim"])[numpy.clip(sign * distance, -4, 4) + 4][None]
    return {"of_query": rows, "of_key": rows if case["variant"] < 2 else None}


def transformer_xl(case, distance):
    heads, bound = case["heads"], 3 if case["variant"] > 1 else numpy.abs(distance).max()
    clamped = numpy.clip(-distance, -bound, bound)
    needed = numpy.arange(clamped.min(), clamped.max() + 1)
    frequencies = [power_of_theta(10000, 0, k, WIDTH, None) for k in range(WIDTH // 2)]
    r = numpy.array([[exact_entry(function, float(n), w, 1.0, False, FP32)
                      for function in (mpmath.sin, mpmath.cos) for w in frequencies] for n in needed])
    rows = project(r, table(3, heads * case["dim"], WIDTH), 0, heads)[:, clamped - needed[0]]
    bias = table(4, heads, case["dim"]) if case["variant"] % 2 == 0 else None
    content = table(5, heads, case["dim"]) if case["content"] else None
    return {"of_query": rows, "query_bias": bias, "content_bias": content}


def t5_bucket(distance):
    half, n = BIAS_BUCKETS // 2, abs(distance)
    nearest = half // 2
    bucket = n if n < nearest else nearest + shared_bucket_exact(n, nearest, half - nearest, FARTHEST)
    return bucket + (half if distance > 0 else 0)


def tupe(case, distance):
    heads, outputs = case["heads"], case["heads"] * case["dim"]
    embeddings = table(3, case["offset"] + case["queries"] + case["keys"] + 1, WIDTH)
    if case["variant"] != 1:
        embeddings = normalised(embeddings)
    queries = project(embeddings, table(4, outputs, WIDTH), table(5, outputs), heads)
    keys = project(embeddings, table(6, outputs, WIDTH), 0, heads)
    untied = case["variant"] > 0
    i, j = case["offset"] + numpy.arange(case["queries"]), numpy.arange(case["keys"])
    first = 1 if untied else 0
    term = dot(queries[:, i + first][:, :, None], keys[:, j + first][:, None])
    bias = table(7, heads, BIAS_BUCKETS)[:, numpy.vectorize(t5_bucket)(distance)]
    if untied:
        from_cls, to_cls = (i == 0)[:, None] & (j >= 0), (i > 0)[:, None] & (j == 0)
        for row, cells in ((0, from_cls), (1, to_cls)):
            term = numpy.where(cells, dot(queries[:, row], keys[:, row])[:, None, None], term)
        if case["variant"] == 2:
            bias = numpy.where(from_cls | to_cls, 0, bias)
    return {"term": term, "bias": bias, "terms": 2}


def deberta_bucket(distance):
    """Returns the bucket of query - key. Finds the least k with ln(n/m) / ln((M-1)/m) * (m-1) <= k by integers."""
    m, n, k = SPAN_BUCKETS // 2, abs(distance), 0
    if n <= m:
        return distance
    while n ** (m - 1) * m ** k > (POSITIONS - 1) ** k * m ** (m - 1):
        k += 1
    return (m + k) * (1 if distance > 0 else -1)


def deberta(case, distance):
    heads, outputs, variant = case["heads"], case["heads"] * case["dim"], case["variant"]
    span = POSITIONS if variant == 0 else SPAN_BUCKETS
    embeddings = table(3, 2 * POSITIONS, WIDTH)[:2 * span]
    if variant != 1:
        embeddings = normalised(embeddings)
    apart = -distance
    if variant == 1:
        apart = numpy.clip(apart, 1 - POSITIONS, POSITIONS - 1)
    if variant != 0:
        apart = numpy.vectorize(deberta_bucket)(apart)
    row = numpy.clip(apart + span, 0, 2 * span - 1)
    key = project(embeddings, table(4, outputs, WIDTH), table(5, outputs), heads)[:, row] if variant != 2 else None
    query = project(embeddings, table(6, outputs, WIDTH), 0, heads)[:, row] if variant != 3 else None
    return {"of_query": key, "of_key": query, "terms": 1 + (variant != 2) + (variant != 3)}


def wavelet(variant, u):
    if variant == 3:
        return 0.0 if u < 0 or u >= 1 else 1.0 if u < 0.5 else -1.0
    u = mpmath.mpf(u)
    if variant == 0:
        return certain(lambda: (1 - u * u) * mpmath.exp(-u * u / 2), FP32)
    return certain(lambda: mpmath.exp(-u * u) * (mpmath.cos(1.5 * u) if variant == 2 else 1), FP32)


def wpr(case, distance):
    variant, dim = case["variant"], case["dim"]
    n = distance if variant >= 2 else -distance
    rows = {}
    for value in set(n.flat):
        row = rows[value] = []
        for c in range(dim):
            scale, shift = (c // (dim // 2), c % (dim // 2)) if variant % 2 == 0 else (c % 2, c // 2)
            row.append(wavelet(variant, (float(value) - shift) / 2.0 ** (variant - 1 + scale)))
    return {"of_query": numpy.array([[rows[value] for value in line] for line in n])[None]}


def sigmoid(x):
    """1 / (1 + exp(-x)) by the steps of posenc/kernels/sigmoid.cc and exp-inl.h, which does not round correctly."""
    size = numpy.where(numpy.isfinite(x), numpy.abs(x), 0)
    n = numpy.rint(size * float.fromhex("0x1.71547652b82fep+0"))
    r = (n * float.fromhex("0x1.62e42fefa0000p-1") - size) + n * float.fromhex("0x1.cf79abc9e3b3ap-40")
    series = numpy.full_like(r, 1 / math.factorial(13))
    for k in range(12, -1, -1):
        series = series * r + 1 / math.factorial(k)
    power = numpy.where(numpy.isfinite(x), numpy.ldexp(series, -n.astype(int)), 0)
    return numpy.where(x < 0, power, 1) / (1 + power)


def hidden(case, distance):
    """Returns what the mask hides: nothing without a mask."""
    if "left" not in case:
        return numpy.zeros(distance.shape, bool)
    return (distance < -case["left"]) | (distance > 0) & bool(case["causal"])


def cope(case, distance, q, products):
    rows = table(3, (1, 2, 4, 50)[case["variant"]], case["dim"])
    logits = FP32.round(1 / math.sqrt(case["dim"]) * products)
    gates = sigmoid(numpy.where((distance > 0) | hidden(case, distance), -numpy.inf, logits))
    of_row = dot(q[:, :, None], rows)
    term, position = numpy.zeros_like(products), numpy.zeros(products.shape[:-1])
    for j in reversed(range(case["keys"])):
        position = position + gates[..., j]
        at = numpy.minimum(position, len(rows) - 1)
        weight = at - numpy.floor(at)
        below, above = (numpy.take_along_axis(of_row, edge(at).astype(int)[..., None], -1)[..., 0]
                        for edge in (numpy.floor, numpy.ceil))
        term[..., j] = (1 - weight) * below + weight * above
    return {"term": term}


def inkling(case, distance):
    extent = (1, 6, 20)[case["variant"]]
    columns = table(3, case["dim"], extent).T
    away = -distance
    rows = numpy.where(((away >= 0) & (away < extent))[..., None], columns[numpy.clip(away, 0, extent - 1)], 0)
    taus = [certain(lambda p=p: 1 + mpmath.log(mpmath.mpf(p + 1) / 3) / 2 if p + 1 > 3 else mpmath.mpf(1), Format("FP64"))
            for p in range(case["offset"], case["offset"] + case["queries"])]
    return {"of_query": rows[None], "scale": 1, "factor": numpy.array(taus)[:, None] if case["variant"] else 1}


def relative_scores(case):
    form = Format(case["dtype"])
    heads, key_heads, dim = case["heads"], case["key_heads"], case["dim"]
    q = form.round(table(1, heads, case["queries"], dim))
    k = numpy.repeat(form.round(table(2, key_heads, case["keys"], dim)), heads // key_heads, 0)
    distance = numpy.arange(case["keys"]) - (case["offset"] + numpy.arange(case["queries"])[:, None])

    def with_bias(bias):
        return q if bias is None else FP32.round(q + bias[:, None])
    if case["method"] == "cope":
        made = cope(case, distance, q, dot(q[:, :, None], k[:, None]))
    else:
        made = globals()[case["method"]](case, distance)
    total = numpy.zeros((heads, *distance.shape))
    if case["content"]:
        total = total + dot(with_bias(made.get("content_bias"))[:, :, None], k[:, None])
    total = total + made.get("term", 0)
    if made.get("of_query") is not None:
        total = total + dot(with_bias(made.get("query_bias"))[:, :, None], made["of_query"])
    if made.get("of_key") is not None:
        total = total + dot(k[:, None], made["of_key"])
    scale = made.get("scale", 1 / math.sqrt(dim * made.get("terms", 1)))
    value = scale * total * made.get("factor", 1) + made.get("bias", 0)
    value = FP32.round(value)
    if "added" in case:
        if case["added"] == "each":
            value = form.round(value)
        value = FP32.round(form.round(table(10, *value.shape)) + value)
    invisible = hidden(case, distance)
    value = numpy.where(invisible, case.get("fill"), value) if invisible.any() else value
    if case.get("zero_rows"):
        value[:, invisible.all(-1)] = 0
    return form.rounded(value).tobytes()

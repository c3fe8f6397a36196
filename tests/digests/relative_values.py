"""Recomputes relative values: each distance's probabilities, added in the keys' order, times the distance's row."""

import numpy

from binary_formats import Format
from relative_scores import FP32, dot, table


def relative_values(case):
    form = Format(case["dtype"])
    heads, queries, keys, dim = (case[key] for key in ("heads", "queries", "keys", "dim"))
    probabilities = form.round(table(1, heads, queries, keys))
    rows = table(3, 9, dim)
    distance = numpy.arange(keys) - (case["offset"] + numpy.arange(queries)[:, None])
    row_of = numpy.clip(distance if case["key_minus_query"] else -distance, -4, 4) + 4
    sums = numpy.zeros((heads, queries, 9))
    for i in range(queries):
        for j in range(keys):
            sums[:, i, row_of[i, j]] += probabilities[:, i, j]
    term = FP32.round(dot(FP32.round(sums)[:, :, None], rows.T))
    if case["round_term"]:
        term = form.round(term)
    if case["add"]:
        term = FP32.round(term + form.round(table(2, heads, queries, dim)))
    return form.rounded(term).tobytes()

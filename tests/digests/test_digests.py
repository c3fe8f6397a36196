"""Recomputes the digests from the cases in their lines, with mpmath, numpy and integers.

This fails if the files were regenerated with a wrong kernel. These modules share no code with posenc; only
relative_scores.sigmoid follows the steps of a kernel, because that kernel does not round correctly.
"""

import pathlib

import numpy
import pytest
import xxhash

from case_lines import read
from distance_values import distance_values
from fourier import fourier
from kernels import convert, distance_bias, rotate_pairs, sincos_rows
from plans import plans
from query_scale import query_scale
from relative_scores import relative_scores
from relative_values import relative_values
from resized import resized
from table_rows import table_rows

PRIMITIVES = (convert, sincos_rows, fourier, rotate_pairs, distance_bias, plans, distance_values, table_rows,
              relative_scores, relative_values, query_scale, resized)


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_digests_can_be_recomputed(primitive):
    path = pathlib.Path(__file__).parent / f"{primitive.__name__}.txt"
    lines, wrong, recomputed = list(read(path)), [], 0
    with numpy.errstate(all="ignore"):
        for line, case, digest in lines:
            data = primitive(case)
            if data is None:
                continue
            recomputed += 1
            if xxhash.xxh3_64_hexdigest(data) != digest:
                wrong.append(line)
    assert not wrong, f"{len(wrong)} of {recomputed} differ"
    assert 2 * recomputed >= len(lines)

"""Rotates a query by the RoPE of a model, on a posenc-server, by the package posenc: rotate.py ADDRESS CONFIG_JSON"""

import sys

import numpy
import posenc

address, config = sys.argv[1:]
q = numpy.ones((1, 3, 32, 128), "f4")  # one sequence, three tokens, 32 heads of 128 elements

with posenc.connect(address) as client:
    rotated = client.rope(q, model=config, positions=100_000, layout="BSHD").q
print(rotated[0, 0, 0, :4])

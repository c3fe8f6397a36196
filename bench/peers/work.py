"""The input of every peer for one case, and the check of its answer."""

import numpy

THETA = 10000.0


class Unsupported(Exception):
    """A peer does not support a case; the message gives the reason."""


class Rotation:
    """A float32 tensor [tokens, heads, head_dim], which the peer converts, and half-width float32 tables."""

    def __init__(self, case):
        self.dtype, self.pairing = case["dtype"], case["pairing"]
        self.heads, self.head_dim = case["heads"], case["head_dim"]
        row = self.heads * self.head_dim * (4 if self.dtype == "f32" else 2)
        self.tokens = case["bytes"] // row
        frequencies = THETA ** (-numpy.arange(0, self.head_dim, 2) / self.head_dim)
        angles = numpy.outer(numpy.arange(self.tokens), frequencies)
        self.cos, self.sin = numpy.cos(angles).astype("f4"), numpy.sin(angles).astype("f4")
        some = numpy.random.default_rng(1).uniform(-1, 1, 1 << 18).astype("f4")
        self.x = numpy.resize(some, (self.tokens, self.heads, self.head_dim))

    def check(self, last):
        """Raises unless the last token's rows are as expected, within the errors of BF16 and of float32 angles."""
        x, cos, sin = self.x[-1], self.cos[-1], self.sin[-1]
        expected = numpy.empty_like(x)
        if self.pairing == "interleaved":
            first, second = slice(0, None, 2), slice(1, None, 2)
        else:
            first, second = slice(0, self.head_dim // 2), slice(self.head_dim // 2, None)
        expected[:, first] = x[:, first] * cos - x[:, second] * sin
        expected[:, second] = x[:, second] * cos + x[:, first] * sin
        worst = numpy.abs(expected - last).max()
        if not worst < 0.03:
            raise AssertionError(f"this is another rotation: off by {worst}")


def prepare_work(case):
    return Rotation(case) if case["work"] == "rotate" else case

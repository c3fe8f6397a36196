"""Measures the rotary model types of transformers; check_model_types.py compares them and decides."""

import check_model_types
import original
import ours
import release
import torch
from table import Row

# WITHIN is check_model_types' tolerance, for queries of about 4, in units of 2^-24 LARGEST_ANGLE.
LARGEST_ANGLE = 1 + max(map(max, check_model_types.POSITIONS))
WITHIN = check_model_types.FLOAT32_TOLERANCE * 2**24 / LARGEST_ANGLE
WHY = (f"float32; of bfloat16 at least {check_model_types.BFLOAT16_EQUAL:.0%} are equal. torch's frequencies may be two"
       " places off, which the position and a query of some 4 multiply")


class Remembering(ours.Posenc):
    """Keeps its last rotation."""

    by_length = False  # whether the frequencies depend on the sequence's length

    def rotate(self, *arguments, **choice):
        if self.by_length:
            choice["scaling_length_rule"] = "whole-batch"
        self.last = super().rotate(*arguments, **choice)
        return self.last


class Measuring:
    """Within this context, everything that check_model_types compares is added to `row`."""

    def __init__(self, program):
        self.posenc, self.row = Remembering(program), None

    def __enter__(self):
        self.plain, measuring = original.Original, self

        class Measured(original.Original):
            """The original; check_model_types calls it after posenc."""

            def rotate(self, x, positions):
                theirs = super().rotate(x, positions)
                if theirs.shape == measuring.posenc.last.shape:
                    measuring.add(theirs)
                return theirs

        original.Original = Measured
        return self

    def __exit__(self, *_):
        original.Original = self.plain

    def add(self, theirs):
        mine, row = self.posenc.last, self.row
        row.elements += mine.numel()
        row.equal += int((mine == theirs).sum())
        if theirs.dtype == torch.float32:
            row.worst = max(row.worst, float((mine - theirs).abs().max()) * 2**24 / LARGEST_ANGLE)


def rows(program):
    """`program` is the path of the posenc command."""
    others = {"not compared": [], "without settings": [], "unknown": []}
    with Measuring(program) as measuring:
        for name, config_class in release.config_classes().items():
            measuring.row = row = Row(name, "transformers", within=WITHIN, of="1 + the largest angle", why=WHY)
            kind, text = check_model_types.check(measuring.posenc, name, config_class)
            if kind in others:
                others[kind].append(name)
                continue
            row.check(kind == "passed", text)
            yield row
    for kind, names in others.items():
        if names:
            known = kind == "without settings"
            yield Row(f"({len(names)} types {kind})", "transformers", why="" if known else " ".join(names),
                      see="docs/model-types.md" if known else "")

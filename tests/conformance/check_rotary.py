"""The rotary model types of transformers: check_model_types.py decides, this measures what it compares."""

import check_model_types
import original
import ours
import release
import torch
from table import Row

# What check_model_types tolerates of queries of some 4.
LARGEST_ANGLE = 1 + max(map(max, check_model_types.POSITIONS))
WITHIN = check_model_types.FLOAT32_TOLERANCE * 2**24 / LARGEST_ANGLE
WHY = (f"float32; of bfloat16 at least {check_model_types.BFLOAT16_EQUAL:.0%} are equal. torch's frequencies may be two"
       " places off, which the position and a query of some 4 multiply")


class Remembering(ours.Posenc):
    """Keeps the last answer."""

    def rotate(self, *arguments, **choice):
        self.last = super().rotate(*arguments, **choice)
        return self.last


def rows(program):
    """`program`: the posenc command."""
    posenc, row = Remembering(program), None

    class Measured(original.Original):
        """The original, which check_model_types asks after posenc."""

        def rotate(self, x, positions):
            theirs = super().rotate(x, positions)
            if theirs.shape == posenc.last.shape:
                measure(row, posenc.last, theirs)
            return theirs

    plain, original.Original = original.Original, Measured
    others = {"not compared": [], "without settings": [], "unknown": []}
    try:
        for name, config_class in release.config_classes().items():
            row = Row(name, "transformers", within=WITHIN, of="1 + the largest angle", why=WHY)
            kind, text = check_model_types.check(posenc, name, config_class)
            if kind in others:
                others[kind].append(name)
                continue
            row.check(kind == "passed", text)
            yield row
    finally:
        original.Original = plain
    for kind, names in others.items():
        if names:
            yield Row(f"({len(names)} types {kind})", "transformers", see="docs/model-types.md" if kind == "without settings"
                      else "", why="" if kind == "without settings" else " ".join(names))


def measure(row, mine, theirs):
    row.elements += mine.numel()
    row.equal += int((mine == theirs).sum())
    if theirs.dtype == torch.float32:
        row.worst = max(row.worst, float((mine - theirs).abs().max()) * 2**24 / LARGEST_ANGLE)

"""The table that scripts/conformance prints: one row per method, with the expected and the measured differences."""

import dataclasses

import numpy


def places(a, b):
    """Returns the largest distance between two elements, counted in numbers of their type (ulps)."""
    a, b = numpy.asarray(a), numpy.asarray(b)
    if a.dtype.kind in "iub":
        return float(numpy.abs(a.astype("i8") - b.astype("i8")).max(initial=0))
    integer = {2: "i2", 4: "i4", 8: "i8"}[a.dtype.itemsize]
    order = []
    for x in (a, b):
        bits = numpy.ascontiguousarray(x).view(integer).astype("i8")
        order.append(numpy.where(bits < 0, numpy.iinfo(integer).min - bits, bits))
    same_sign = (order[0] < 0) == (order[1] < 0)  # otherwise int64 might overflow
    between = numpy.where(same_sign, order[0] - order[1], order[0].astype("f8") - order[1].astype("f8"))
    return float(numpy.abs(between).max(initial=0))


def place_of(number):
    """Returns one unit in the last place of a float32 of that size."""
    return float(numpy.spacing(numpy.float32(abs(number))))


@dataclasses.dataclass
class Row:
    """Cases of one method and one original. A case passes if no element is further than `within` from the original."""
    method: str
    original: str
    within: float = 0
    of: str = ""  # the number whose ulp is the unit, if it is not the element itself
    why: str = ""  # the reason for `within`, or a note on the original
    see: str = ""
    passed: int = 0
    failed: int = 0
    elements: int = 0
    equal: int = 0
    worst: float = 0
    errors: list = dataclasses.field(default_factory=list)

    def compare(self, ours, theirs, unit=None):
        """Adds one case. The distance is counted in units of `unit`, by default in ulps of the arrays' type."""
        ours, theirs = numpy.asarray(ours), numpy.asarray(theirs)
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            self.fail(f"{ours.dtype} {ours.shape}, the original has {theirs.dtype} {theirs.shape}")
            return
        distance = places(ours, theirs)
        if unit and distance:
            distance = float(numpy.abs(ours.astype("f8") - theirs.astype("f8")).max() / unit)
        self.elements += ours.size
        self.equal += int((ours == theirs).sum())
        self.worst = max(self.worst, distance)
        if distance <= self.within:  # false for NaN
            self.passed += 1
        else:
            self.fail(f"{distance:.3g} ulp, expected {self.within:g} at most")

    def check(self, holds, otherwise):
        """Adds one case that does not compare elements."""
        if holds:
            self.passed += 1
        else:
            self.fail(otherwise)

    def fail(self, error):
        self.failed += 1
        self.errors.append(error)


HEADINGS = ("method", "beside", "cases", "equal", "worst", "expected", "note")


def lines(title, rows):
    """Yields the lines of one section's table and of the notes below it."""
    notes = list(dict.fromkeys(filter(None, map(note_of, rows))))
    cells = [HEADINGS] + [cells_of(row, notes) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    yield title
    for line, row in zip(cells, [None, *rows]):
        columns = (text.rjust(width) if n in (2, 3, 4) else text.ljust(width)
                   for n, (text, width) in enumerate(zip(line, widths)))
        yield ("  " + "  ".join(columns)).rstrip()
        for error in dict.fromkeys(row.errors if row else ()):
            yield f"    FAILED: {error}"
    for number, note in enumerate(notes, 1):
        yield f"  [{number}] {note}"


def note_of(row):
    return "; ".join(filter(None, (row.why, row.see and f"see {row.see}")))


def cells_of(row, notes):
    equal = f"{100 * row.equal / row.elements:.4g} %" if row.elements else ""
    worst = f"{row.worst:.3g}" if row.elements else ""
    expected = f"within {row.within:.3g} ulp{row.of and ' of ' + row.of}" if row.within else "equal"
    note = note_of(row)
    number = f"[{notes.index(note) + 1}]" if note else ""
    return row.method, row.original, str(row.passed + row.failed), equal, worst, expected if row.elements else "", number

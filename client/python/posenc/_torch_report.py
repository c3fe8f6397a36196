"""What posenc.torch.check found: a finding for each module, and the report of all."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from typing import Any, Literal

import numpy as np

Status = Literal["ok", "differs", "not understood"]


class CheckError(AssertionError):
    """A model's positional encoding is not as its config says. The message is the printed report."""


@dataclasses.dataclass
class Finding:
    """What one module computes, beside what its config says.

    `inv_freq` and `table` are what the module has and returns, as the methods of a client take them:

        client.diagnose(model=model.config, inv_freq=finding.inv_freq)
        client.diagnose(model=model.config, table=finding.table, positions=finding.positions)
    """
    name: str  # of the module in the model; empty: the model itself
    class_name: str
    kind: str  # "rotary", "alibi", "t5", "table" (learned or sinusoidal)
    status: Status
    expected: str  # what the config says
    details: list[str]  # differs: in which way. not understood: why
    layer_type: str | None = None  # the argument of a module that serves several types of layers
    inv_freq: np.ndarray[Any, Any] | None = dataclasses.field(default=None, repr=False)  # float32
    table: dict[str, Any] | None = dataclasses.field(default=None, repr=False)  # cos, sin: [positions, width]; form
    positions: np.ndarray[Any, Any] | None = dataclasses.field(default=None, repr=False)  # of the table's rows

    def __str__(self) -> str:
        name = (self.name or "(model)") + (f" [{self.layer_type}]" if self.layer_type else "")
        lines = [f"{self.status:<14} {name:<32} {self.class_name:<28} {self.expected}".rstrip()]
        lines += [textwrap.fill(line, 118, initial_indent=" " * 15, subsequent_indent=" " * 17) for line in self.details]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold: all but the table."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)
                  if field.name not in ("inv_freq", "table", "positions")}
        if self.inv_freq is not None:
            # JSON has no NaN.
            fields["inv_freq"] = [float(one) if np.isfinite(one) else None for one in self.inv_freq]
        return fields


@dataclasses.dataclass
class Report:
    """The findings of posenc.torch.check, in the order of the model's modules. print() shows a line for each."""
    findings: list[Finding]
    notes: list[str]  # what was not looked at

    @property
    def ok(self) -> bool:
        """True if no module differs from its config. A module that is not understood does not count as differing."""
        return not self.of("differs")

    def of(self, status: Status) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == status]

    def raise_for_status(self) -> None:
        """Raises CheckError if a module differs from its config."""
        if not self.ok:
            raise CheckError(str(self))

    def __str__(self) -> str:
        counts = ", ".join(f"{len(self.of(status))} {status}" for status in ("ok", "differs", "not understood"))
        return "\n".join([*map(str, self.findings), *self.notes, counts])

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, "findings": [finding.to_dict() for finding in self.findings], "notes": self.notes}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

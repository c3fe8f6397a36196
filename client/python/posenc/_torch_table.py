"""The operator posenc::rotary_table: cosines and sines for posenc.torch.

As an operator of torch it is a node of exported, compiled and traced graphs. Its settings are a text, so that graphs and
modules can be copied and saved; the client that computes belongs to the process.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from typing import Any

import torch

from posenc._descriptors import api
from posenc._wire import Encoded, Encoder, join
from posenc.client import Client, local

_DTYPES: dict[torch.dtype, Any] = {torch.float32: "FP32", torch.float16: "FP16", torch.bfloat16: "BF16", torch.float64: "FP64"}
_COLUMNS = {"DUPLICATED": 2, "REPEAT_INTERLEAVED": 2, "HALF_WIDTH": 1}  # per pair


@functools.cache
def client() -> Client:
    return local()


@dataclasses.dataclass(frozen=True)
class Table:
    """The settings of a table. as_text() is the operator's argument."""
    rotary: dict[str, Any]  # RotarySettings with every default filled in
    form: str
    axes: int = 1
    axis_dimension: str = "NONE"  # position of the axes in position_ids: FIRST, which may be absent, or LAST
    reverses_axes: bool = False  # position_ids have the last axis first
    has_batch: bool = False  # the answer has a first dimension of 1, which position_ids do not have
    needs_length: bool = False  # the frequencies depend on the sequence's length

    def as_text(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @functools.cached_property
    def encoded(self) -> Encoded:
        return Encoded(join(Encoder({}, True).message(api().messages["posenc.v1.RotarySettings"], self.rotary, "settings")[0]))

    @property
    def width(self) -> int:
        return self.rotary["rotary_dim"] // 2 * _COLUMNS[self.form]

    def has_axes(self, ids: torch.Tensor) -> bool:
        """True if the ids differ by axis. Raises ValueError for a shape that they cannot have."""
        if self.axes == 1 or self.axis_dimension == "NONE" or (self.axis_dimension == "FIRST" and ids.dim() < 3):
            return False
        found = ids.shape[0 if self.axis_dimension == "FIRST" else -1] if ids.dim() else 0
        if found != self.axes:
            raise ValueError(f"position_ids: is of shape {list(ids.shape)}; must have {self.axes} axes in its "
                             f"{self.axis_dimension.lower()} dimension")
        return True

    def shape(self, ids: torch.Tensor) -> list[int]:
        """Returns the shape of the cosines and sines."""
        rows = list(ids.shape)
        if self.has_axes(ids):
            rows.pop(0 if self.axis_dimension == "FIRST" else -1)
        return [*([1] if self.has_batch else []), *rows, self.width]


@functools.lru_cache(maxsize=1024)
def _read(settings: str) -> Table:
    return Table(**json.loads(settings))


def _answer(table: Table, position_ids: torch.Tensor, dtype: torch.dtype, **fields: Any) -> Any:
    if dtype not in _DTYPES:
        raise ValueError(f"dtype: is {dtype}; must be one of {[str(one) for one in _DTYPES]}")
    ids = position_ids.detach()
    if not ids.is_floating_point():
        ids = ids.to("cpu", torch.int64)
    else:
        ids = ids.to("cpu", torch.float64 if ids.dtype == torch.float64 else torch.float32)
    positions: dict[str, Any] = {}
    if table.has_axes(ids):
        positions["axis_dimension"] = table.axis_dimension
        ids = ids.reshape(table.axes, -1) if table.axis_dimension == "FIRST" else ids.reshape(-1, table.axes)
        if table.reverses_axes:
            ids = ids.flip(0 if table.axis_dimension == "FIRST" else -1)
    else:
        ids = ids.reshape(-1)
        if table.axes > 1:
            positions["axis_dimension"] = "NONE"
    if table.needs_length:
        # transformers compares its maximum of fractional positions + 1 with a whole length.
        length = math.ceil(float(ids.max())) + 1 if ids.numel() else 1
        positions |= {"scaling_length_rule": "GIVEN", "seq_len": [max(length, 1)]}
    source: Any = table.encoded
    form: Any = table.form
    return client().table(like=ids, settings=source, positions={"ids": ids.contiguous().numpy(), **positions},
                          dtype=_DTYPES[dtype], form=form, **fields)


@torch.library.custom_op("posenc::rotary_table", mutates_args=(),
                         schema="(Tensor position_ids, str settings, ScalarType dtype) -> (Tensor, Tensor)")
def rotary_table(position_ids: torch.Tensor, settings: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns cosines and sines on the device of position_ids, whose fractions count."""
    table = _read(settings)
    shape, device = table.shape(position_ids), position_ids.device
    cos, sin = _answer(table, position_ids, dtype)
    return cos.reshape(shape).to(device), sin.reshape(shape).to(device)


@rotary_table.register_fake
def _fake(position_ids: torch.Tensor, settings: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    shape = _read(settings).shape(position_ids)
    return position_ids.new_empty(shape, dtype=dtype), position_ids.new_empty(shape, dtype=dtype)


def _keep(context: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    position_ids, context.settings, _ = inputs
    context.save_for_backward(position_ids, *output)


def _backward(context: Any, cos_gradient: torch.Tensor, sin_gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    """An angle is the sum of its axis' position times a frequency."""
    position_ids, cos, sin = context.saved_tensors
    table = _read(context.settings)
    rates = _rates(table, position_ids).to(cos.device, cos.dtype)
    gradient = (sin_gradient * cos - cos_gradient * sin) @ rates
    if not table.has_axes(position_ids):
        gradient = gradient.sum(-1)
    elif table.axis_dimension == "FIRST":
        gradient = gradient.movedim(-1, 0)
    return gradient.reshape(position_ids.shape).to(position_ids.dtype), None, None


def _rates(table: Table, position_ids: torch.Tensor) -> torch.Tensor:
    """Returns the derivatives of the angles by the positions, [width, axes]."""
    plan = _answer(table, position_ids, torch.float32, hints={"return_plan": True}).info.plan.frequencies[0]
    frequencies = torch.zeros(len(plan.inv_freq), table.axes, dtype=torch.float64)
    for pair, frequency in enumerate(plan.inv_freq):
        frequencies[pair, plan.axis[pair] if plan.axis else 0] = frequency
    if table.reverses_axes:
        frequencies = frequencies.flip(1)
    if table.form == "REPEAT_INTERLEAVED":
        return frequencies.repeat_interleave(2, 0)
    parts = frequencies.chunk(table.rotary.get("half_split_parts") or 1)
    return torch.cat([part for part in parts for _ in range(_COLUMNS[table.form])])


rotary_table.register_autograd(_backward, setup_context=_keep)

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
    axis_order: tuple[int, ...] = ()  # axes of the settings that position_ids have, in order
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

    def by_axis(self, ids: torch.Tensor) -> torch.Tensor | None:
        """Returns the ids with the axes first, or None if they do not differ by axis."""
        if self.axis_dimension == "NONE" or (self.axis_dimension == "FIRST" and ids.dim() < 3):
            return None
        first = ids.movedim(-1, 0) if self.axis_dimension == "LAST" and ids.dim() else ids
        axes = len(self.axis_order)
        if first.dim() == 0 or first.shape[0] not in (1, axes):
            raise ValueError(f"position_ids: is of shape {list(ids.shape)}; must have {axes} axes in its "
                             f"{self.axis_dimension.lower()} dimension")
        return first.expand(axes, *first.shape[1:])

    def shape(self, ids: torch.Tensor) -> list[int]:
        """Returns the shape of the cosines and sines."""
        by_axis = self.by_axis(ids)
        return [*([1] if self.has_batch else []), *(ids.shape if by_axis is None else by_axis.shape[1:]), self.width]


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
    more: dict[str, Any] = {}
    by_axis = table.by_axis(ids)
    if by_axis is not None:
        more["axis_dimension"] = "FIRST"
        ids = ids.new_zeros(table.axes, by_axis[0].numel())
        ids[list(table.axis_order)] = by_axis.flatten(1)
    else:
        ids = ids.reshape(-1)
        if table.axes > 1:
            more["axis_dimension"] = "NONE"
    if table.needs_length:
        # transformers compares the largest position, which may be fractional, plus 1 with a whole length.
        largest = ids.max().item() if ids.numel() else 0
        length = math.ceil(largest) + 1 if math.isfinite(largest) else 1
        more |= {"scaling_length_rule": "GIVEN", "seq_len": [max(length, 1)]}
    array = ids.contiguous().numpy()
    positions: Any = {"ids": array, **more} if more else array
    source: Any = table.encoded
    form: Any = table.form
    return client().table(like=ids, settings=source, positions=positions, dtype=_DTYPES[dtype], form=form, **fields)


@torch.library.custom_op("posenc::rotary_table", mutates_args=(),
                         schema="(Tensor position_ids, str settings, ScalarType dtype) -> (Tensor, Tensor)")
def rotary_table(position_ids: torch.Tensor, settings: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns cosines and sines on the device of position_ids, whose fractions count."""
    table = _read(settings)
    shape, device = table.shape(position_ids), position_ids.device
    cos, sin = _answer(table, position_ids, dtype)
    return cos.reshape(shape).to(device), sin.reshape(shape).to(device)


@rotary_table.register_fake  # pyright: ignore[reportUnknownMemberType]
def _fake(position_ids: torch.Tensor, settings: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    shape = _read(settings).shape(position_ids)
    return position_ids.new_empty(shape, dtype=dtype), position_ids.new_empty(shape, dtype=dtype)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    position_ids, ctx.settings, _ = inputs
    ctx.save_for_backward(position_ids, *output)


def _backward(ctx: Any, cos_gradient: torch.Tensor, sin_gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    """An angle is the sum of its axis' position times a frequency."""
    position_ids, cos, sin = ctx.saved_tensors
    table = _read(ctx.settings)
    gradient = (sin_gradient * cos - cos_gradient * sin) @ rates(position_ids, ctx.settings).to(cos.dtype)
    if table.by_axis(position_ids) is None:
        gradient = gradient.sum(-1)
    elif table.axis_dimension == "FIRST":
        gradient = gradient[..., list(table.axis_order)].movedim(-1, 0)
    else:
        gradient = gradient[..., list(table.axis_order)]
    return gradient.sum_to_size(position_ids.shape).to(position_ids.dtype), None, None


@torch.library.custom_op("posenc::rotary_rates", mutates_args=(), schema="(Tensor position_ids, str settings) -> Tensor")
def rates(position_ids: torch.Tensor, settings: str) -> torch.Tensor:
    """Returns the derivatives of the angles by the positions, [width, axes]: frequencies, which may depend on the length."""
    table = _read(settings)
    plan = _answer(table, position_ids, torch.float32, hints={"return_plan": True}).info.plan.frequencies[0]
    frequencies = torch.zeros(len(plan.inv_freq), table.axes, dtype=torch.float64)
    for pair, frequency in enumerate(plan.inv_freq):
        frequencies[pair, plan.axis[pair] if plan.axis else 0] = frequency
    if table.form == "REPEAT_INTERLEAVED":
        return frequencies.repeat_interleave(2, 0).to(position_ids.device)
    parts = frequencies.chunk(table.rotary.get("half_split_parts") or 1)
    return torch.cat([part for part in parts for _ in range(_COLUMNS[table.form])]).to(position_ids.device)


@rates.register_fake  # pyright: ignore[reportUnknownMemberType]
def _fake_rates(position_ids: torch.Tensor, settings: str) -> torch.Tensor:
    table = _read(settings)
    return position_ids.new_empty((table.width, table.axes), dtype=torch.float64)


rotary_table.register_autograd(_backward, setup_context=_keep)  # pyright: ignore[reportUnknownMemberType]

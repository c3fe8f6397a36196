"""Compares the table of one of vLLM's rotary modules with its model's config."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from posenc._torch_check_rotary import described, known_rotations, sentence
from posenc._torch_modules import TOLERANCE, no_numbers
from posenc._torch_report import Finding

Say = Callable[..., Finding]

_ROWS = 131072  # float32's angles beyond are evidence of little
_DIAGNOSED = 512  # rows that Diagnose gets


def is_vllm(module: torch.nn.Module) -> bool:
    return type(module).__module__.startswith("vllm.")


def vllm_notes() -> list[str]:
    return [] if importlib.util.find_spec("vllm") else ["vLLM cannot be imported here, so no module of it was looked at"]


def check_vllm(module: torch.nn.Module, config: Any, say: Say) -> Finding:
    """vLLM makes a table of cosines and sines at its start; it is of the model's type, so its entries are rounded to that."""
    found = say("ok", "", [])
    cache: Any = getattr(module, "cos_sin_cache", None)
    if not isinstance(cache, torch.Tensor) or cache.dim() != 2:
        found.status, found.details = "not understood", ["it has no table cos_sin_cache"]
        return found
    lost = no_numbers(cache)
    if lost:
        found.status, found.details = "differs", [f"cos_sin_cache {lost}"]
        return found
    rows = cache[:_ROWS].detach().cpu()
    same_width = [one for one in known_rotations(config) if 2 * len(one.inv_freq) == rows.shape[1]]
    for rotation in same_width:
        if bool(((rows.double() - _table(rotation, len(rows))).abs() <= _bound(rotation, rows)).all()):
            found.expected = described(rotation.rotary, len(rotation.inv_freq))
            break
    else:
        if not same_width:
            found.status, found.details = "not understood", ["its config has no rotary embedding of this width"]
            return found
        nearest = min(same_width, key=lambda one: float((rows.double() - _table(one, len(rows))).abs().max()))
        found.status, found.expected = "differs", described(nearest.rotary, len(nearest.inv_freq))
        cos, sin = (one.float().contiguous().numpy() for one in rows[:_DIAGNOSED].chunk(2, dim=-1))
        found.table = {"cos": cos, "sin": sin, "form": "HALF_WIDTH"}
        found.positions = torch.arange(len(cos)).numpy()
        found.details = [sentence(len(cos), settings=nearest.rotary, table=found.table, positions=found.positions)]
    return found


def _table(rotation: Any, rows: int) -> torch.Tensor:
    angles = torch.arange(rows, dtype=torch.float64)[:, None] * torch.tensor(rotation.inv_freq, dtype=torch.float64)
    return rotation.attention_scaling * torch.cat([angles.cos(), angles.sin()], dim=-1)


def _bound(rotation: Any, rows: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(len(rows), dtype=torch.float64)[:, None]
    return rotation.attention_scaling * (torch.finfo(rows.dtype).eps + TOLERANCE * (1 + positions))

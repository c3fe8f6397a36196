"""Asks rotary modules of diffusers, whose forwards take ids by axis, latents or sizes, for tables of their config."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from posenc._torch_modules import TOLERANCE, tensor_of
from posenc._torch_table import client
from posenc.errors import Error

_GRID = (2, 3, 4)  # frames, rows and columns of tokens
_FORMS = ("REPEAT_INTERLEAVED", "DUPLICATED", "HALF_WIDTH")
_FARTHEST = 48  # position in ids
BOUND = TOLERANCE * (1 + _FARTHEST)  # of cosines and sines

Ask = Callable[[torch.nn.Module], Any]


def form_of(module: torch.nn.Module, config: Any) -> tuple[Any, str, Ask] | None:
    """Returns the exact tables that a module returns, in which form, and how to ask for them; or None if none matches."""
    for ask, positions in _questions(module):
        try:
            answers = tables_of(ask(module))
        except Exception:  # whatever the forward raises that takes other arguments
            continue
        for form in _FORMS:
            try:
                fields: Any = {"form": form, "positions": positions}
                exact = client().table(model=config, dtype="FP64", **fields)
            except Error:
                continue
            expected = torch.stack([tensor_of(one).reshape(-1, one.shape[-1]) for one in exact])
            if expected.shape == answers.shape and float((expected - answers).abs().max()) <= BOUND:
                return expected, form, ask
    return None


def tables_of(answer: Any) -> torch.Tensor:
    """Returns cosines and sines, [2, tokens, width]."""
    parts = [answer.real, answer.imag] if isinstance(answer, torch.Tensor) else list(answer)
    return torch.stack([part.detach().cpu().double().reshape(-1, part.shape[-1]) for part in parts])


def _questions(module: torch.nn.Module) -> Iterator[tuple[Ask, Any]]:
    """Yields ways to call the module, each with the positions that it is asked for."""
    parameters = list(inspect.signature(module.forward).parameters)
    frames, rows, columns = _GRID
    latents = {"latents": {"grid_thw": torch.tensor([_GRID]).numpy()}}
    if parameters[:1] == ["ids"]:
        axes = len(cast(Any, getattr(module, "axes_dim", ())))
        ids = torch.stack([torch.arange(_FARTHEST).roll(7 * axis) for axis in range(axes)]).float()
        yield (lambda one: one(ids.T)), {"ids": ids.numpy(), "axis_dimension": "FIRST"}
        yield (lambda one: one(ids.T[None])), {"ids": ids.numpy(), "axis_dimension": "FIRST"}
    elif parameters[:1] == ["hidden_states"]:
        deep, high, wide = _patch(module)
        for shape in ((1, 1, frames * deep, rows * high, columns * wide), (1, 1, rows * high, columns * wide)):
            grid = latents if len(shape) == 5 else {"latents": {"grid_thw": torch.tensor([(1, rows, columns)]).numpy()}}
            yield (lambda one, shape=shape: one(torch.zeros(shape))), grid
    elif parameters[:1] == ["video_fhw"] and "max_txt_seq_len" in parameters:
        more = {"latents": latents["latents"] | {"text_length": 5}}
        cpu = torch.device("cpu")
        yield (lambda one: torch.cat(one([[_GRID]], device=cpu, max_txt_seq_len=5)[::-1])), more


def _patch(module: torch.nn.Module) -> tuple[int, int, int]:
    size: Any = getattr(module, "patch_size", 1)
    if isinstance(size, (list, tuple)):
        sizes = cast("tuple[int, ...]", tuple(cast(Any, size)))
        return sizes if len(sizes) == 3 else (1, sizes[0], sizes[-1])
    return int(cast(Any, getattr(module, "patch_size_t", 1)) or 1), int(size), int(size)


__all__ = ["BOUND", "form_of", "tables_of"]

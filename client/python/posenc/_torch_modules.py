"""Reads modules of a live model without changing them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Generator
from typing import Any

import torch

# Relative error of a frequency or an angle that float32's own arithmetic may have. It is the bound of Diagnose for
# frequencies. transformers' chains are off by 4 * 2^-24 = 2.4e-7 at most (docs/accuracy.md); frequencies rounded to float16
# are off by up to 4.9e-4, to bfloat16 by up to 3.9e-3.
TOLERANCE = 1e-6
ZEROS = "has only zeros"


def submodules(module: Any) -> list[tuple[str, torch.nn.Module]]:
    """Returns a module and all within it, with their names."""
    return list(module.named_modules())


def own_tensors(module: Any) -> list[tuple[str, torch.Tensor]]:
    """Returns the parameters, buffers and plain tensors that a module holds itself."""
    attributes: dict[str, Any] = module.__dict__
    plain = [(name, value) for name, value in attributes.items() if isinstance(value, torch.Tensor)]
    return [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False), *plain]


def is_computed(module: Any, name: str) -> bool:
    """Tells whether a class computes a tensor: a buffer outside checkpoints, or a plain attribute."""
    return name in module.__dict__ or (name in module._buffers and name in module._non_persistent_buffers_set)


def computed_tensors(module: Any) -> dict[str, torch.Tensor]:
    """Returns the tensors that a class computes for itself, and all frequencies."""
    return {name: tensor for name, tensor in own_tensors(module) if is_computed(module, name) or (
        "inv_freq" in name and not isinstance(tensor, torch.nn.Parameter))}


def copied(module: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy on the CPU, whose forward may change its state."""
    config: Any = getattr(module, "config", None)
    return copy.deepcopy(module, {id(config): config}).cpu().eval()


def with_embedding(module: Any, name: str, weight: torch.Tensor) -> Any:
    """Returns a module that has another embedding, and shares the rest."""
    other = copy.copy(module)
    other._modules = dict(module._modules)
    other._modules[name] = torch.nn.Embedding(weight.shape[0], weight.shape[1], _weight=weight)
    return other


def tensor_of(array: Any) -> torch.Tensor:
    return torch.tensor(array, dtype=torch.float64)


@contextlib.contextmanager
def kept_random_state() -> Generator[None]:
    """What runs inside draws no numbers of torch's generator, as it seems from outside."""
    state: torch.Tensor = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def no_numbers(tensor: torch.Tensor) -> str:
    """Returns what is wrong with a tensor that has no usable numbers at all; empty: nothing is."""
    if tensor.is_meta:
        return "is still on the meta device: it was never given values"
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return ""
    bad = int((~torch.isfinite(tensor.detach())).sum())
    if bad:
        return f"has {bad} of {tensor.numel()} values that are NaN or infinite, as memory that was never initialised"
    return "" if bool(tensor.detach().any()) else ZEROS


def far(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Returns where values differ by more than float32's arithmetic does."""
    got, expected = (one.detach().cpu().to(torch.complex128 if one.is_complex() else torch.float64) for one in (got, expected))
    return (got - expected).abs() > TOLERANCE * torch.clamp(expected.abs(), min=2.0**-100)


def rounded(got: torch.Tensor, expected: torch.Tensor) -> str:
    """Returns the type to which values were rounded, in words, if that explains them."""
    for dtype in (torch.bfloat16, torch.float16):
        if not got.is_complex() and torch.equal(got.detach().cpu().to(dtype), expected.cpu().to(dtype)) and not bool(
                far(got, got.to(dtype)).any()):
            return f": they were rounded to {str(dtype).removeprefix('torch.')}"
    return ""

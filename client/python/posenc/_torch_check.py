"""Finds the modules of a live model that encode positions, and compares each with what its config says.

The control is the same class made anew from the same config: its large parameters have no memory, its buffers have values.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode

from posenc._torch_check_rotary import check_rotary
from posenc._torch_check_tables import check_alibi, check_t5, check_tables, fixed_tables, has_alibi, t5_table
from posenc._torch_check_vllm import check_vllm, is_vllm, vllm_notes
from posenc._torch_report import Finding, Report

# Classes of modules that make rotary tables, by their names; attentions and blocks that contain one are no such module.
_ROTARY = re.compile(r"^(?!Apply).*(Rotary|RoPE|Rope|PosEmbed$)")
_CONTAINER = re.compile(r"(Attention|Layer|Block|Model|Encoder|Decoder|Processor|Head|MLP)\w*$")


def check_model(model: torch.nn.Module, component: str | None) -> Report:
    findings: list[Finding] = []
    notes: list[str] = []
    part = _part(model, component)
    every = cast("list[tuple[str, torch.nn.Module]]", list(model.named_modules()))  # pyright: ignore[reportUnknownMemberType]
    roots = {name: module for name, module in every if _is_root(module) and not any(
        _is_root(parent) for parent in _parents(model, name))}
    controls: dict[str, torch.nn.Module | None] = {}
    fixed: dict[str, dict[tuple[int, str], torch.Tensor]] = {}
    for name, root in roots.items():
        try:
            controls[name] = _made_anew(root)
            fixed[name] = fixed_tables(controls[name])
        except Exception as error:  # whatever the constructor of another package raises
            controls[name], fixed[name] = None, {}
            notes.append(f"{type(root).__name__} was not made anew from its config, so its modules were looked at one by one: "
                         f"{type(error).__name__}: {error}")
    for name, module in every:
        root = next((one for one in roots if name == one or one == "" or name.startswith(f"{one}.")), None)
        control = None if root is None else controls[root]
        fresh = _submodule(control, name[len(root):].lstrip(".") if root else name)
        # A module may have been given another config than the model's.
        config = _config([*_parents(model, name), module, *([] if fresh is None else [fresh])])
        if part is not None and getattr(config, "model_type", None) != part.model_type:
            continue
        say = functools.partial(_finding, name, type(module).__name__)
        with torch.no_grad(), _no_autocast():
            findings += _of_module(module, fresh, {} if root is None else fixed[root], config, say)
    if not findings:
        raise ValueError("the model has no module that encodes positions" if part is None else
                         f"the {component} part of the model has no module that encodes positions")
    return Report(findings, notes + vllm_notes())


def _of_module(module: torch.nn.Module, fresh: torch.nn.Module | None, fixed: dict[tuple[int, str], torch.Tensor],
               config: Any, say: Any) -> Iterator[Finding]:
    if has_alibi(module):
        yield check_alibi(module, config, functools.partial(say, "alibi"))
    if t5_table(module):
        yield check_t5(module, fresh, config, functools.partial(say, "t5"))
    elif is_rotary(module) and is_vllm(module):
        yield check_vllm(module, config, functools.partial(say, "rotary"))
        return
    elif is_rotary(module):
        yield from check_rotary(module, fresh, config, functools.partial(say, "rotary"))
        return
    yield from check_tables(module, fresh, fixed, config, functools.partial(say, "table"))


def is_rotary(module: torch.nn.Module) -> bool:
    kind = type(module).__name__
    return bool(_ROTARY.search(kind)) and not _CONTAINER.search(kind) and not any(True for _ in module.parameters())


def _finding(name: str, class_name: str, kind: str, status: Any, expected: str, details: list[str], suffix: str = "") -> Finding:
    return Finding(".".join(filter(None, (name, suffix))), class_name, kind, status, expected, details)


def _part(model: torch.nn.Module, component: str | None) -> Any:
    if component is None:
        return None
    part = getattr(getattr(model, "config", None), f"{component}_config", None)
    if part is None:
        raise ValueError(f"component: is {component!r}; must be a part of the model, with a configuration of its own")
    return part


def _is_root(module: torch.nn.Module) -> bool:
    """A model of a library, with its config."""
    return hasattr(module, "config") and any(hasattr(module, method) for method in ("from_pretrained", "from_config"))


def _parents(model: torch.nn.Module, name: str) -> Iterator[torch.nn.Module]:
    """Yields the modules that contain this one, from the model down."""
    parts = name.split(".") if name else []
    for length in range(len(parts)):
        yield model.get_submodule(".".join(parts[:length]))


def _config(modules: list[torch.nn.Module]) -> Any:
    """Returns the config of the last module that has one."""
    for module in reversed(modules):
        config = getattr(module, "config", None)
        if isinstance(config, dict):  # diffusers
            return {"_class_name": type(module).__name__, **cast("dict[str, Any]", config)}
        if hasattr(config, "to_json_string"):
            return cast(Any, config)
    return None


def _submodule(control: torch.nn.Module | None, name: str) -> torch.nn.Module | None:
    try:
        return None if control is None else control.get_submodule(name)
    except AttributeError:  # a module that was added to the model, as by PEFT
        return None


def _made_anew(root: torch.nn.Module) -> torch.nn.Module:
    """Makes the model of root's config, whose large parameters are on the meta device."""
    made: Any = type(root)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.no_grad(), _EmptyOnMeta():
        if isinstance(root.config, dict):  # diffusers
            control = made.from_config(dict(cast("dict[str, Any]", root.config)))
        else:
            config: Any = copy.deepcopy(root.config)
            config._attn_implementation = "eager"
            control = made(config)
    return cast(torch.nn.Module, control.eval())


class _EmptyOnMeta(TorchFunctionMode):
    """Tensors without values, as parameters of layers are before their initialisation, have no memory either."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **((kwargs or {}) | ({"device": "meta"} if func is torch.empty else {})))


@contextlib.contextmanager
def _no_autocast() -> Iterator[None]:
    with torch.autocast("cpu", enabled=False):
        yield


__all__ = ["check_model"]

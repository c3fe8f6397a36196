"""Finds the modules of a live model that encode positions, and compares each with what its config says.

The control is the same class made anew from the same config: its large parameters have no memory, its buffers have values.
"""

from __future__ import annotations

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
from posenc._torch_modules import kept_random_state, submodules
from posenc._torch_report import Finding, Report

# Classes of modules that make rotary tables, by their names; attentions and blocks that contain one are no such module.
_ROTARY = re.compile(r"^(?!Apply).*(Rotary|RoPE|Rope|PosEmbed$)")
_MODELS = {("transformers", "PreTrainedModel"), ("diffusers", "ModelMixin")}
_CONTAINER = re.compile(r"(Attention|Layer|Block|Model|Encoder|Decoder|Processor|Head|MLP)$")


def check_model(model: torch.nn.Module, component: str | None) -> Report:
    findings: list[Finding] = []
    notes: list[str] = []
    part = _part(model, component)
    every = submodules(model)
    roots: dict[str, _Root] = {}
    for name, module in every:
        if _is_root(module) and not any(_is_root(parent) for parent in _parents(model, name)):
            roots[name] = _Root(module, notes)
    for name, module in every:
        root = next((one for one in roots if one in ("", name) or name.startswith(f"{one}.")), None)
        control, fixed = (None, {}) if root is None else (roots[root].control, roots[root].fixed)
        fresh = _submodule(control, name[len(root or ""):].lstrip("."))
        # A module may have been given another config than the model's.
        config = _config([*_parents(model, name), module, *([] if fresh is None else [fresh])])
        if part is None or getattr(config, "model_type", None) == part.model_type:
            say = functools.partial(_finding, name, type(module).__name__)
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                findings += [_unless_offloaded(one, module) for one in _of_module(module, fresh, fixed, config, say)]
    if not any(one.kind == "rotary" for one in findings):
        findings += [_finding(name, type(module).__name__, "rotary", "not understood", "", ["no module makes its tables"])
                     for name, module in every if part is None and _ROTARY.search(type(module).__name__)]
    if not findings:
        raise ValueError("the model has no module that encodes positions" if part is None else
                         f"the {component} part of the model has no module that encodes positions")
    return Report(findings, notes + vllm_notes())


class _Root:
    """A model of a library, made anew: `control`, None if that failed, and the tables that its initialisation fixes."""

    def __init__(self, module: torch.nn.Module, notes: list[str]):
        self.control: torch.nn.Module | None = None
        self.fixed: dict[tuple[int, str], torch.Tensor] = {}
        try:
            self.control = _made_anew(module)
            self.fixed = fixed_tables(self.control)
        except Exception as error:  # whatever the constructor of another package raises
            notes.append(f"{type(module).__name__} was not made anew from its config, so its modules were looked at one by "
                         f"one: {type(error).__name__}: {error}")


def _of_module(module: torch.nn.Module, fresh: torch.nn.Module | None, fixed: dict[tuple[int, str], torch.Tensor],
               config: Any, say: Any) -> Iterator[Finding]:
    if has_alibi(module):
        yield check_alibi(module, config, functools.partial(say, "alibi"))
    if t5_table(module):
        yield check_t5(module, fresh, config, functools.partial(say, "t5"))
    if not is_rotary(module) and (fresh is None or not is_rotary(fresh)):
        yield from check_tables(module, fresh, fixed, config, functools.partial(say, "table"))
    elif is_vllm(module):
        yield check_vllm(module, config, functools.partial(say, "rotary"))
    elif any(True for _ in module.parameters()):
        tables = list(check_tables(module, fresh, fixed, config, functools.partial(say, "table")))
        yield from tables or [say("rotary", "not understood", "", ["it has trained parameters"])]
    else:
        yield from check_rotary(module, fresh, config, functools.partial(say, "rotary"))


def _unless_offloaded(finding: Finding, module: torch.nn.Module) -> Finding:
    """accelerate keeps the values of offloaded modules outside, until a forward."""
    on_meta = any("meta device" in line for line in finding.details)
    if on_meta and any(hasattr(one, "_hf_hook") for _, one in submodules(module)):
        finding.status, finding.details = "not understood", ["its values are offloaded, and were not looked at"]
    return finding


def is_rotary(module: torch.nn.Module) -> bool:
    kind = type(module).__name__
    return bool(_ROTARY.search(kind)) and not _CONTAINER.search(kind)


def _finding(name: str, class_name: str, kind: str, status: Any, expected: str, details: list[str],
             suffix: str = "") -> Finding:
    return Finding(".".join(filter(None, (name, suffix))), class_name, kind, status, expected, details)


def _part(model: torch.nn.Module, component: str | None) -> Any:
    if component is None:
        return None
    part = getattr(getattr(model, "config", None), f"{component}_config", None)
    if part is None:
        raise ValueError(f"component: is {component!r}; must be a part of the model, with a configuration of its own")
    return part


def _is_root(module: torch.nn.Module) -> bool:
    """Tells whether a module is a model of transformers or diffusers, with its config; a wrapper of one is not."""
    bases = {(base.__module__.partition(".")[0], base.__name__) for base in type(module).__mro__}
    return hasattr(module, "config") and not bases.isdisjoint(_MODELS)


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
    with kept_random_state(), torch.device("cpu"), torch.no_grad(), EmptyOnMeta():
        if isinstance(root.config, dict):  # diffusers
            control = made.from_config(dict(cast("dict[str, Any]", root.config)))
        else:
            config: Any = copy.deepcopy(root.config)
            config._attn_implementation = "eager"
            control = made(config)
    return cast(torch.nn.Module, control.eval())


class EmptyOnMeta(TorchFunctionMode):
    """Tensors without values, as parameters of layers are before their initialisation, have no memory either."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **((kwargs or {}) | ({"device": "meta"} if func is torch.empty else {})))


__all__ = ["EmptyOnMeta", "check_model"]

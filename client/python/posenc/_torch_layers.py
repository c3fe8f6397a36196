"""Finds which table of a model's settings one of transformers' rotary modules returns, by comparing their answers."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from posenc._model import Model
from posenc._torch_table import Table, client, rotary_table
from posenc.errors import Error

_FORMS = ("DUPLICATED", "REPEAT_INTERLEAVED", "HALF_WIDTH")
_PROBED = (0, 1, 5, 31)  # positions at which an original module is compared with the tables
_PROBE_TOLERANCE = 1e-4  # float32's error of an angle of 31 is below 1e-5


@dataclasses.dataclass
class Layers:
    """What the layers of one type use."""
    table: Table
    probed: torch.Tensor  # position_ids
    inv_freq: list[float]
    attention_scaling: float


@dataclasses.dataclass
class Learned:
    """What a module returns."""
    layers: dict[str | None, Layers]  # by the forward's layer_type
    keeps_dtype: bool  # of the hidden states; otherwise float32
    is_complex: bool
    attributes: dict[str, Any]  # of the module, for its model


@dataclasses.dataclass
class _Rotation:
    """An encoding of the model's file."""
    layer_type: str
    rotary: dict[str, Any]
    axis: list[int]  # of each pair; empty: there is one
    needs_length: bool
    inv_freq: list[float]
    attention_scaling: float


def learn(config: Any, original: torch.nn.Module, component: str | None) -> Learned:
    """Raises ValueError if the module's answers are in none of the model's tables."""
    parameters = inspect.signature(original.forward).parameters
    if "position_ids" not in parameters:
        raise ValueError("its forward takes no position_ids")
    rotations = rotations_of(config, component)
    with torch.device("cpu"), torch.no_grad(), unset_fake_temporarily():
        module = _comparable(original, config)
        types: Any = getattr(module, "rope_type", None)  # a dict by layer_type, if the module has several
        labels: list[str | None] = [*types] if isinstance(types, dict) and "layer_type" in parameters else [None]
        if not labels:
            raise ValueError("none of its layer types rotates")
        layers = {label: _matching(module, label, config, rotations) for label in labels}
        narrow = ask(module, layers[labels[0]].probed, labels[0], torch.bfloat16)
    return Learned(layers, narrow[0].dtype == torch.bfloat16, narrow[0].is_complex(),
                   {name: value for name, value in vars(module).items() if _is_plain(name, value)})


def originals(config: Any) -> Iterator[torch.nn.Module]:
    """Makes the rotary modules that transformers has for a configuration."""
    name = type(config).__module__.replace(".configuration_", ".modeling_")
    module = importlib.import_module(name)
    found: Any
    for class_name, found in inspect.getmembers(module, inspect.isclass):
        if class_name.endswith("RotaryEmbedding") and found.__module__ == name:
            try:
                yield found(config)
            except (AttributeError, KeyError, TypeError, ValueError):
                continue  # the module of another part of the model


def rotations_of(config: Any, component: str | None) -> list[_Rotation]:
    found: dict[Any, _Rotation] = {}
    for group in client().explain(Model(config, component=component)).layers:
        if group.info is not None and group.info.rotated:
            found.setdefault((group.layer_type, group.info.plan_fingerprint), _rotation(group.layer_type, group.info))
    if not found:
        raise ValueError("the model's file has no layers with a rotary embedding")
    return [one for rotation in found.values() for one in (rotation, _not_negated(rotation)) if one is not None]


def _rotation(layer_type: str, info: Any) -> _Rotation:
    frequencies, sequence = info.plan.frequencies[0], info.sequences[0]
    settings = info.plan.rotary.to_dict()
    settings.pop("query_scale", None)  # of the attention, not of the module that makes tables
    return _Rotation(layer_type, settings, list(frequencies.axis), sequence.seq_len > 0,
                     list(frequencies.inv_freq), sequence.attention_scaling)


def _not_negated(rotation: _Rotation) -> _Rotation | None:
    """Some models turn backwards where they apply the table, not in the table (NanoChat)."""
    parameters = dict(rotation.rotary.get("rope_parameters", {}))
    if not parameters.pop("negate_angle", False):
        return None
    return dataclasses.replace(rotation, rotary=rotation.rotary | {"rope_parameters": parameters},
                               inv_freq=[-frequency for frequency in rotation.inv_freq])


def _comparable(original: torch.nn.Module, config: Any) -> torch.nn.Module:
    """Returns the module, or one made anew if its frequencies were rounded to another type or have no numbers."""
    buffers: list[torch.Tensor] = [one for one in original.buffers() if one.is_floating_point()]
    if all(one.dtype in (torch.float32, torch.float64) and one.device.type != "meta" and not isinstance(one, FakeTensor)
           for one in buffers):
        return original
    made: Any = type(original)
    try:
        return made(config)
    except Exception as error:  # whatever the constructor of another package raises
        raise ValueError(f"it cannot be made again from its config to be compared: {error}") from error


def _matching(module: torch.nn.Module, label: str | None, config: Any, rotations: list[_Rotation]) -> Layers:
    same_type = [rotation for rotation in rotations if label is not None and rotation.layer_type == label]
    reasons: list[str] = []
    for rotation in same_type or [*_with_own_parameters(label, config, rotations), *rotations]:
        for axis_dimension, axis_order, ids in _probes(rotation.axis):
            try:
                answers = real(ask(module, ids, label, torch.float32))
                found = _table(rotation, axis_dimension, axis_order, ids, answers)
            except Exception as error:  # whatever the module raises for ids of this shape
                found = f"{type(error).__name__}: {error}"
            if isinstance(found, Table):
                return Layers(found, ids, rotation.inv_freq, rotation.attention_scaling)
            reasons.append(f"for position_ids {list(ids.shape)} {found}")
    of = "" if label is None else f" for layer_type {label}"
    raise ValueError(f"its answers{of} are in none of the model's tables: {'; '.join(dict.fromkeys(reasons))}")


def _with_own_parameters(label: str | None, config: Any, rotations: list[_Rotation]) -> Iterator[_Rotation]:
    """Yields the encodings with the parameters of a type that a module has, but no layer of the model (DeepSeek V4)."""
    by_type: dict[str | None, Any] = getattr(config, "rope_parameters", None) or {}
    own = by_type.get(label)
    if isinstance(own, dict):
        parameters = cast("dict[str, Any]", own) | {"partial_rotary_factor": None}
        for rotation in rotations:
            try:
                settings: Any = rotation.rotary | {"rope_parameters": parameters}
                yield _rotation(str(label), client().explain(rotary=settings).layers[0].info)
            except Error:
                continue


def _table(rotation: _Rotation, axis_dimension: str, axis_order: tuple[int, ...], ids: torch.Tensor,
           answers: list[torch.Tensor]) -> Table | str:
    """Returns the table that has the answers for these ids, or how the nearest one differs."""
    shapes = [list(answer.shape) for answer in answers]
    nearest = math.inf
    for form in _FORMS:
        table = Table(rotation.rotary, form, max(rotation.axis, default=0) + 1, axis_dimension, axis_order,
                      needs_length=rotation.needs_length)
        table = dataclasses.replace(table, has_batch=len(shapes[0]) > len(table.shape(ids)))
        if shapes != [table.shape(ids)] * 2:
            continue
        tables = rotary_table(ids, table.as_text(), torch.float32)
        off = max(float((got - answer).abs().max()) for got, answer in zip(tables, answers))
        if off <= _PROBE_TOLERANCE:
            return table
        nearest = min(nearest, off)
    return f"it returns shapes {shapes}" if nearest == math.inf else f"the nearest differs by {nearest:.2g}"


def ask(module: torch.nn.Module, ids: torch.Tensor, label: str | None, dtype: torch.dtype) -> list[torch.Tensor]:
    device = next((buffer.device for buffer in module.buffers()), torch.device("cpu"))
    arguments = () if label is None else (label,)
    answer: Any = module(torch.zeros(1, 1, device=device, dtype=dtype), ids.to(device), *arguments)
    return [answer] if isinstance(answer, torch.Tensor) else list(answer)


def real(answers: list[torch.Tensor]) -> list[torch.Tensor]:
    parts = [answers[0].real, answers[0].imag] if answers[0].is_complex() else answers
    return [part.cpu().float() for part in parts]


def _probes(axis: list[int]) -> Iterator[tuple[str, tuple[int, ...], torch.Tensor]]:
    """Yields position_ids, which differ by axis, and where and in which order they have the settings' axes."""
    axes, used = tuple(range(max(axis, default=0) + 1)), tuple(sorted(set(axis)))
    for order in dict.fromkeys((axes, axes[::-1], used)) if len(axes) > 1 else ():
        ids = torch.stack([torch.tensor(_PROBED).roll(axis) for axis in range(len(order))])
        yield from (("FIRST", order, ids[:, None]), ("LAST", order, ids.T.contiguous()), ("LAST", order, ids.T[None].contiguous()))
    yield "NONE", (), torch.tensor([_PROBED])


def _is_plain(name: str, value: Any) -> bool:
    return name not in ("config", "training") and not name.startswith("_") and isinstance(
        value, (bool, int, float, str, list, tuple, dict))


__all__ = ["Error", "Layers", "Learned", "ask", "learn", "originals", "real", "rotations_of"]

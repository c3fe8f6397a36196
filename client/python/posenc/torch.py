"""Rotary modules of transformers' models with exact cosines and sines.

    model = AutoModelForCausalLM.from_pretrained(...)
    posenc.torch.replace(model)

Every entry of a table is the real number, rounded once to the type of the hidden states. transformers computes angles in
float32, whose error grows with the position.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Iterator
from typing import Any, cast

import torch

from posenc._model import Model
from posenc.client import Client, local
from posenc.errors import Error

_FORMS = ("DUPLICATED", "REPEAT_INTERLEAVED", "HALF_WIDTH")
_PROBED = (0, 1, 5, 31)  # positions at which an original module is compared with the tables
_PROBE_TOLERANCE = 1e-4  # float32's error of an angle of 31 is below 1e-5


@functools.cache
def _default_client() -> Client:
    return local()


@dataclasses.dataclass
class _Layers:
    """What one kind of layers uses."""
    model: Model
    axes: int
    needs_length: bool  # the frequencies depend on the sequence's length
    inv_freq: list[float]
    attention_scaling: float
    form: str = ""

    def fields(self, ids: torch.Tensor) -> dict[str, Any]:
        """Returns Positions for ids [rows], or [axes, rows]."""
        positions: dict[str, Any] = {"ids": ids}
        if self.needs_length:
            positions |= {"scaling_length_rule": "GIVEN", "seq_len": [int(ids.max()) + 1 if ids.numel() else 1]}
        if self.axes > 1:
            positions["axis_dimension"] = "FIRST" if ids.dim() == 2 else "NONE"
        return positions


class RotaryEmbedding(torch.nn.Module):
    """Takes the place of a model's rotary module: the same arguments, shapes and types, exact values.

    `config` is the PretrainedConfig of the module. `original` is the module itself; without it, the one that transformers
    has for this configuration is made. It is run once, to learn the form in which its class returns cosines and sines, and
    is not kept. Raises ValueError if no form agrees with the model's tables: then this class has another interface.
    """

    inv_freq: torch.Tensor

    def __init__(self, config: Any, original: torch.nn.Module | None = None, client: Client | None = None):
        super().__init__()
        self.config = config
        self._client = client or _default_client()
        candidates = [original] if original is not None else list(_originals(config))
        if not candidates:
            raise ValueError(f"{type(config).__name__}: transformers has no rotary module for it")
        reasons: list[str] = []
        for candidate in candidates:
            try:
                self._learn(candidate)
                break
            except (ValueError, TypeError) as error:
                reasons.append(f"{type(candidate).__name__}: {error}")
        else:
            raise ValueError("; ".join(reasons))
        for layer_type, layers in self._layers.items():
            prefix = "" if layer_type is None else f"{layer_type}_"
            self.register_buffer(f"{prefix}inv_freq", torch.tensor(layers.inv_freq, dtype=torch.float32), persistent=False)
            setattr(self, f"{prefix}attention_scaling", layers.attention_scaling)

    @torch.no_grad()
    def forward(self, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None) -> Any:
        """Returns cosines and sines of position_ids, [B, S] or [axes, B, S], as the original: [B, S, width]."""
        layers = self._layers.get(layer_type)
        if layers is None:
            raise ValueError(f"layer_type: is {layer_type!r}; must be one of {list(self._layers)}")
        dtype = x.dtype if self._keeps_dtype else torch.float32
        cos, sin = self._tables(layers, position_ids, dtype, layers.form)
        cos, sin = cos.to(x.device), sin.to(x.device)
        return torch.complex(cos, sin) if self._complex else (cos, sin)

    def _tables(self, layers: _Layers, position_ids: torch.Tensor, dtype: torch.dtype, form: str) -> list[torch.Tensor]:
        ids = position_ids.detach().to("cpu", torch.int64)
        shape = ids.shape[-2:]
        several = layers.axes > 1 and ids.dim() == 3
        ids = ids.reshape(ids.shape[0], -1).contiguous() if several else ids.reshape(-1).contiguous()
        names: dict[torch.dtype, Any] = {torch.float32: "FP32", torch.float16: "FP16", torch.bfloat16: "BF16",
                                         torch.float64: "FP64"}
        positions: Any = layers.fields(ids)
        answer = self._client.table(like=ids, model=layers.model, positions=positions, dtype=names[dtype],
                                    form=cast(Any, form))
        return [table.reshape(*shape, table.shape[-1]) for table in answer]

    def _learn(self, original: torch.nn.Module) -> None:
        """Reads the settings of each kind of layers, and finds the form of the original's answers."""
        parameters = inspect.signature(original.forward).parameters
        if "position_ids" not in parameters:
            raise ValueError("its forward takes no position_ids")
        by_type = "layer_type" in parameters and parameters["layer_type"].default is inspect.Parameter.empty
        types: list[str | None] = [*sorted(set(self.config.layer_types))] if by_type else [None]
        self._layers = {layer_type: self._settings(layer_type) for layer_type in types}
        self._keeps_dtype, self._complex = True, False
        for layer_type, layers in self._layers.items():
            layers.form = self._form(original, layer_type, layers)

    def _settings(self, layer_type: str | None) -> _Layers:
        model = Model(self.config) if layer_type is None else Model(self.config, layer=layer_type)
        rotating = [group for group in self._client.explain(model).layers if group.info is not None and group.info.rotated]
        if not rotating:
            raise ValueError(f"the model has no rotating layer of type {layer_type}")
        infos: list[Any] = [group.info for group in rotating]
        if len({info.plan_fingerprint for info in infos}) > 1:
            raise ValueError("its layers rotate differently")
        if layer_type is None and rotating[0].layer_index:
            model = Model(self.config, layer=rotating[0].layer_index[0])
        plan = infos[0].plan.frequencies[0]
        return _Layers(model, max(plan.axis, default=0) + 1, infos[0].sequences[0].seq_len > 0, plan.inv_freq,
                       infos[0].sequences[0].attention_scaling)

    @torch.no_grad()
    def _form(self, original: torch.nn.Module, layer_type: str | None, layers: _Layers) -> str:
        device = next((buffer.device for buffer in original.buffers()), torch.device("cpu"))
        ids = torch.tensor([_PROBED])
        arguments = () if layer_type is None else (layer_type,)
        answers = original(torch.zeros(1, 1, device=device), ids.to(device), *arguments)
        narrow = original(torch.zeros(1, 1, device=device, dtype=torch.bfloat16), ids.to(device), *arguments)
        self._complex = isinstance(answers, torch.Tensor) and answers.is_complex()
        if self._complex:
            answers, narrow = (answers.real, answers.imag), (narrow.real, narrow.imag)
        self._keeps_dtype = narrow[0].dtype == torch.bfloat16
        for form in _FORMS:
            tables = self._tables(layers, ids, torch.float32, form)
            if all(table.shape == answer.shape and torch.allclose(table, answer.cpu(), rtol=0, atol=_PROBE_TOLERANCE)
                   for table, answer in zip(tables, answers)):
                return form
        raise ValueError(f"it returns shapes {[tuple(answer.shape) for answer in answers]} that are in no form of the tables")


def _originals(config: Any) -> Iterator[torch.nn.Module]:
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


@dataclasses.dataclass
class Replaced:
    """What replace() did: the names of the modules that were replaced, and why others were kept."""
    replaced: list[str]
    kept: dict[str, str]


def replace(model: torch.nn.Module, client: Client | None = None) -> Replaced:
    """Replaces the rotary modules of one of transformers' models, and says which.

    A module whose interface or settings are not known is kept. Raises ValueError if none was replaced.
    """
    done = Replaced([], {})
    for name, module in cast("list[tuple[str, torch.nn.Module]]", list(model.named_modules())):  # pyright: ignore
        if "RotaryEmbedding" not in type(module).__name__ or isinstance(module, RotaryEmbedding):
            continue
        config = getattr(module, "config", None)
        if config is None:
            done.kept[name] = f"{type(module).__name__} has no config"
            continue
        try:
            new = RotaryEmbedding(config, module, client)
        except (ValueError, Error) as error:
            done.kept[name] = str(error)
            continue
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, new)
        done.replaced.append(name)
    if not done.replaced:
        raise ValueError(f"no rotary module was replaced: {done.kept or 'the model has none'}")
    return done


__all__ = ["Replaced", "RotaryEmbedding", "replace"]

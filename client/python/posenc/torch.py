"""Rotary modules of transformers' models with exact cosines and sines.

    model = AutoModelForCausalLM.from_pretrained(...)
    posenc.torch.replace(model)

Every entry of a table is the real number, rounded once to the type of the hidden states. transformers computes angles in
float32, whose error grows with the position.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import torch

from posenc._torch_check import check_model
from posenc._torch_layers import learn, originals
from posenc._torch_report import CheckError, Finding, Report
from posenc._torch_table import rotary_table
from posenc.errors import Error


class RotaryEmbedding(torch.nn.Module):
    """Takes the place of a model's rotary module: the same arguments, shapes and types, exact values.

    `config` is the PretrainedConfig of the module. `original` is the module itself; without it, the one that transformers
    has for this configuration is made. It is run, to learn which table it returns in which form, and is not kept. Raises
    ValueError if it returns none of the model's tables: then this class has another interface. `component` is the part of
    a config.json of several parts, such as "vision"; by default all parts are compared.

    The module's state has no client: it can be copied, pickled and exported. Tables are computed in the process that runs
    it, by the operator posenc::rotary_table, which importing posenc.torch registers.
    """

    inv_freq: torch.Tensor

    def __init__(self, config: Any, original: torch.nn.Module | None = None, component: str | None = None):
        super().__init__()
        self.config = part = config if component is None else getattr(config, f"{component}_config", config)
        candidates = [original] if original is not None else list(originals(part))
        if not candidates:
            raise ValueError(f"{type(part).__name__}: transformers has no rotary module for it")
        reasons: list[str] = []
        for candidate in candidates:
            try:
                learned = learn(config, candidate, component)
                break
            except (ValueError, Error) as error:
                reasons.append(f"{type(candidate).__name__}: {error}")
        else:
            raise ValueError("; ".join(reasons))
        for name, value in learned.attributes.items():
            setattr(self, name, value)
        self._keeps_dtype, self._complex = learned.keeps_dtype, learned.is_complex
        self._tables: dict[str | None, str] = {}
        for layer_type, layers in learned.layers.items():
            self._tables[layer_type] = layers.table.as_text()
            prefix = "" if layer_type is None else f"{layer_type}_"
            frequencies = torch.tensor(layers.inv_freq, dtype=torch.float32, device="cpu")
            self.register_buffer(f"{prefix}inv_freq", frequencies, persistent=False)
            setattr(self, f"{prefix}attention_scaling", layers.attention_scaling)

    @torch.no_grad()
    def forward(self, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None) -> Any:
        """Returns the cosines and sines of position_ids, as the original."""
        table = self._tables.get(layer_type)
        if table is None:
            raise ValueError(f"layer_type: is {layer_type!r}; must be one of {list(self._tables)}")
        cos, sin = rotary_table(position_ids, table, x.dtype if self._keeps_dtype else torch.float32)
        cos, sin = cos.to(x.device), sin.to(x.device)
        return torch.complex(cos, sin) if self._complex else (cos, sin)


@dataclasses.dataclass
class Replaced:
    """What replace() did: the names of the modules that were replaced, and why others were kept."""
    replaced: list[str]
    kept: dict[str, str]


def replace(model: torch.nn.Module, component: str | None = None) -> Replaced:
    """Replaces the rotary modules of one of transformers' models, and says which.

    A model that multiplies its queries by a factor of the position (Llama 4, Ministral 3) goes on to do so: that is its
    attention's work.

    `component` limits this to one part of the model, such as "text" or "vision". A module whose interface or settings are
    not known is kept. Raises ValueError if none was replaced.
    """
    part: Any = None
    if component is not None:
        part = getattr(getattr(model, "config", None), f"{component}_config", None)
        if part is None:
            raise ValueError(f"component: is {component!r}; must be a part of the model, with a configuration of its own")
    done = Replaced([], {})
    made: dict[torch.nn.Module, torch.nn.Module] = {}  # a module may have several names
    every = cast("list[tuple[str, torch.nn.Module]]", list(model.named_modules(remove_duplicate=False)))  # pyright: ignore
    for name, module in every:
        kind = type(module).__name__
        if "Rotary" not in kind or "Embedding" not in kind or isinstance(module, RotaryEmbedding):
            continue
        config = getattr(module, "config", None)
        if part is not None and getattr(config, "model_type", None) != part.model_type:
            continue
        try:
            if config is None:
                raise ValueError(f"{kind} has no config")
            made[module] = new = made.get(module) or RotaryEmbedding(config, module)
        except ValueError as error:
            done.kept[name] = str(error)
            continue
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, new.to(_device(module)))
        done.replaced.append(name)
    if not done.replaced:
        raise ValueError(f"no rotary module was replaced: {done.kept or 'the model has none'}")
    return done


def check(model: torch.nn.Module, component: str | None = None) -> Report:
    """Compares what a live model of transformers or diffusers uses for positions with what its config says.

        posenc.torch.check(model).raise_for_status()

    Finds its rotary modules, ALiBi, T5's buckets, learned and sinusoidal tables, and says of each: ok, how it differs, or
    that it is not understood. Changes nothing: forwards run on copies on the CPU, and weights are not copied. `component`
    limits this to one part of the model, such as "text" or "vision". Raises ValueError if nothing was found.
    """
    return check_model(model, component)


def _device(module: torch.nn.Module) -> torch.device:
    return next((buffer.device for buffer in module.buffers()), torch.device("cpu"))


__all__ = ["CheckError", "Finding", "Replaced", "Report", "RotaryEmbedding", "check", "replace", "rotary_table"]

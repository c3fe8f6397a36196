"""Compares a rotary module of a live model with the exact tables of its config.

A module is accused only if its class, made anew from the same config, returns the exact tables and the module does not; or
if its frequencies are no frequencies at all. What the class itself computes otherwise is not understood.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from posenc._torch_check_latents import BOUND, form_of, tables_of
from posenc._torch_layers import Layers, ask, learn, real, rotations_of
from posenc._torch_modules import TOLERANCE, computed_tensors, copied, far, no_numbers, rounded, tensor_of
from posenc._torch_report import Finding
from posenc._torch_table import Table, client, rates, rotary_table
from posenc.errors import Error

_LONGEST = 131072  # positions; beyond, float32's angles are evidence of little
_ADJACENT = 64  # first positions of a table

Say = Callable[..., Finding]


def check_rotary(live: torch.nn.Module, fresh: torch.nn.Module | None, config: Any, say: Say) -> Iterator[Finding]:
    """Yields a finding for each type of layers. `fresh` is the module that its class makes from the config."""
    lost = _lost(live)
    try:
        if fresh is None:  # its answers may be right all the same
            fresh = copied(live)
        learned = learn(config, fresh, None)
    except Exception as error:  # whatever the forward of another package raises
        fresh = live if fresh is None else fresh
        found = _by_buffers(live, fresh, config, lost, say, f"{error}")
        yield _by_latents(live, fresh, config, found) if found.status == "not understood" else found
        return
    for label, layers in learned.layers.items():
        found = say("ok", described(layers.table.rotary, len(layers.inv_freq)), _lost(live, label))
        found.layer_type, found.inv_freq = label, _inv_freq(live, label)
        if found.details:
            found.status = "differs"
        else:
            _compare(live, fresh, label, layers, config, found)
        yield found


def _compare(live: torch.nn.Module, fresh: torch.nn.Module, label: str | None, layers: Layers, config: Any,
             found: Finding) -> None:
    try:
        found.details = _differences(live, label, layers, config, found)
    except Exception as error:  # whatever the forward of another package raises
        found.details = [f"its forward fails: {type(error).__name__}: {error}"]
        if type(live) is not type(fresh):  # put in place by somebody, with an interface of its own
            found.details = _frequencies_differ(found.inv_freq, _ADJACENT, layers)
            if found.inv_freq is None:
                found.status, found.details = "not understood", [f"it is no {type(fresh).__name__}, and has no inv_freq"]
                return
    if found.details:
        found.status = "differs"
        own = _differences(fresh, label, layers, config, dataclasses.replace(found))
        if own:
            found.status, found.details = "not understood", [f"its class, made anew, is not as its config says: {own[0]}"]


def described(rotary: dict[str, Any], pairs: int) -> str:
    """Returns the settings in words."""
    parameters: dict[str, Any] = rotary.get("rope_parameters", {})
    words = [f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
             for key, value in parameters.items() if isinstance(value, (bool, int, float, str))]
    return ", ".join([*words, f"{pairs} pairs"])


def _lost(live: torch.nn.Module, label: str | None = None) -> list[str]:
    """Returns the frequencies, of the layers of one type if it is given, that have no numbers."""
    found = {name: no_numbers(value) for name, value in computed_tensors(live).items()
             if name.endswith("inv_freq") and "original_" not in name and name.startswith(label or "")}
    return [f"{name} {fault}" for name, fault in found.items() if fault]


def _inv_freq(live: torch.nn.Module, label: str | None) -> Any:
    for name in (f"{label}_inv_freq", "inv_freq"):
        value = getattr(live, name, None)
        if isinstance(value, torch.Tensor) and value.dim() == 1 and not value.is_meta:
            return value.detach().cpu().float().numpy()
    return None


def _by_buffers(live: torch.nn.Module, fresh: torch.nn.Module, config: Any, lost: list[str], say: Say, why: str) -> Finding:
    """Compares a module whose answers are in no table with the one made anew, and its frequencies with the config's."""
    mine, own = computed_tensors(live), computed_tensors(fresh)
    known = next((one for one in known_rotations(config) if _has(own, one)), None)
    found = say("ok", "" if known is None else described(known.rotary, len(known.inv_freq)), list(lost))
    found.inv_freq = _inv_freq(live, None)
    for name, expected in own.items():
        if name not in mine or expected.is_meta or any(line.startswith(f"{name} ") for line in lost):
            continue
        fault, got = no_numbers(mine[name]), mine[name].detach().cpu()
        if fault and not no_numbers(expected):
            found.details.append(f"{name} {fault}")
        elif got.shape != expected.shape:
            found.details.append(f"{name} has the shape {list(got.shape)}; its class makes {list(expected.shape)}")
        elif (got.is_floating_point() or got.is_complex()) and bool((off := far(got, expected)).any()):
            found.details.append(f"{name} differs from what its class makes of the config, in {int(off.sum())} of "
                                 f"{got.numel()} values{rounded(got, expected)}")
    if found.details:
        found.status = "differs"
    elif known is None:
        found.status = "not understood"
        made = f"{', '.join(own)}: as its class makes it; " if own else ""
        found.details = [f"{made}not compared with a table: {why}"]
    return found


def _by_latents(live: torch.nn.Module, fresh: torch.nn.Module, config: Any, found: Finding) -> Finding:
    known = form_of(copied(fresh), config)
    if known is None:
        return found
    expected, form, ask_it = known
    found.status, found.expected, found.details = "ok", f"tables by axis, {form}, {expected.shape[-1]} wide", []
    try:
        got = tables_of(ask_it(copied(live)))
        if got.shape != expected.shape:
            found.details = [f"it returns shapes {list(got.shape[1:])}; its class returns {list(expected.shape[1:])}"]
        elif not bool(((got - expected).abs() <= BOUND).all()):
            attributes = {name: (getattr(live, name, None), cast(Any, value)) for name, value in vars(fresh).items()
                          if isinstance(value, (int, float, list, tuple)) and name != "training"}
            found.details = [f"cosines and sines are off by up to {float((got - expected).abs().max()):.3g}",
                             *(f"{name} is {mine}; its class makes {value} of the config"
                               for name, (mine, value) in attributes.items() if mine != value)]
    except Exception as error:  # whatever the forward of another package raises
        found.details = [f"its forward fails: {type(error).__name__}: {error}"]
    found.status = "differs" if found.details else "ok"
    return found


def known_rotations(config: Any) -> list[Any]:
    try:
        return rotations_of(config, None)
    except (Error, ValueError):
        return []


def _has(own: dict[str, torch.Tensor], rotation: Any) -> bool:
    """Returns whether one of the tensors has the frequencies of a rotation, or its cosines and sines side by side."""
    expected = torch.tensor(rotation.inv_freq, dtype=torch.float64)
    for value in own.values():
        if value.shape == expected.shape and not bool(far(value, expected).any()):
            return True
        if value.dim() == 2 and value.shape[1] == 2 * len(expected) and value.is_floating_point() and not rotation.axis:
            answer = client().table(settings=rotation.rotary, positions=0, count=value.shape[0], dtype="FP64",
                                    form="HALF_WIDTH")
            cos, sin = (tensor_of(one).reshape(value.shape[0], -1) for one in answer)
            bound = TOLERANCE * (1 + torch.arange(value.shape[0], dtype=torch.float64)[:, None])
            if any(bool(((value.double() - torch.cat(pair, -1)).abs() <= bound).all()) for pair in ((cos, sin), (sin, cos))):
                return True
    return False


def _positions(layers: Layers, config: Any) -> Iterator[torch.Tensor]:
    """Yields position_ids of the form that the module takes: up to the longest that the config's frequencies are for.

    If the frequencies depend on the length, also beyond. At that length itself, transformers does not set dynamic
    frequencies back.
    """
    table, probed = layers.table, layers.probed
    if probed.dim() == 2 and table.axis_dimension == "NONE":
        longest = int(getattr(config, "max_position_embeddings", None) or 4096)
        if table.needs_length:
            parameters: dict[str, Any] = table.rotary.get("rope_parameters", {})
            longest = int(parameters.get("original_max_position_embeddings") or longest) - 1
        longest = min(longest, _LONGEST)
        spaced = torch.linspace(0, longest - 1, 65).long()
        short: torch.Tensor = cast(Any, torch.cat([torch.arange(min(_ADJACENT, longest)), spaced])).unique()[None]
        yield short
        if table.needs_length:
            yield 2 * short + 2
        return
    one = torch.arange(_ADJACENT)
    each = torch.stack([one.roll(7 * axis) for axis in range(len(table.axis_order))])
    if table.axis_dimension == "FIRST":
        yield each[:, None]
    else:
        yield each.T.contiguous() if probed.dim() == 2 else each.T[None].contiguous()


def _differences(live: torch.nn.Module, label: str | None, layers: Layers, config: Any, found: Finding) -> list[str]:
    asked = copied(live)  # once: a short sequence sets dynamic frequencies back, and they stay those of the longest so far
    for ids in _positions(layers, config):
        differences = _differences_at(ids, asked, label, layers, found)
        if differences:
            return differences
    return []


def _differences_at(ids: torch.Tensor, live: torch.nn.Module, label: str | None, layers: Layers, found: Finding) -> list[str]:
    answers = real(ask(live, ids, label, torch.float32))
    table = layers.table
    shape = table.shape(ids)
    if [list(one.shape) for one in answers] != [shape, shape]:
        return [f"it returns shapes {[list(one.shape) for one in answers]}; its class returns {shape}"]
    if table.by_axis(ids) is None and found.table is None:
        cos, sin = (one.reshape(-1, one.shape[-1]).numpy() for one in answers)
        found.table, found.positions = {"cos": cos, "sin": sin, "form": table.form}, ids.reshape(-1).numpy()
    got = torch.stack(answers).double()
    if not bool(torch.isfinite(got).all()):
        return ["it returns cosines and sines that are NaN or infinite"]
    if not bool((_excess(got, ids, table, layers) > 1).any()):
        return []
    after: Any = _inv_freq(live, label)  # a dynamic module's forward may have set its frequencies anew
    return _causes(after if after is not None else found.inv_freq, got, ids, layers, found)


def _excess(got: torch.Tensor, ids: torch.Tensor, table: Table, layers: Layers) -> torch.Tensor:
    """Returns errors of cosines and sines as multiples of the bound."""
    exact = torch.stack(rotary_table(ids, table.as_text(), torch.float64))
    by_axis, each = table.by_axis(ids), rates(ids, table.as_text()).abs()
    angles = ids[..., None].double() * each.sum(-1) if by_axis is None else (
        by_axis.double().movedim(0, -1) @ each[:, list(table.axis_order)].T)
    return (got - exact).abs() / (layers.attention_scaling * TOLERANCE * (1 + angles.abs().reshape(exact.shape[1:])))


def _causes(inv_freq: Any, got: torch.Tensor, ids: torch.Tensor, layers: Layers, found: Finding) -> list[str]:
    length = int(ids.max()) + 1
    details = [] if inv_freq is None else _frequencies_differ(inv_freq, length, layers)
    settings: Any = layers.table.rotary
    scaling: float = _explained(settings, length).sequences[0].attention_scaling
    norm = float(got.square().sum(0).mean().sqrt())
    if abs(norm - scaling) > 1e-4 * scaling:
        details.append(f"cosines and sines are multiplied by {norm:.6g} instead of {scaling:.6g}")
    if not details and found.table is not None:
        details.append(sentence(length, settings=settings, table=found.table, positions=found.positions))
    return details or ["cosines and sines are not those of the config"]


def _frequencies_differ(inv_freq: Any, length: int, layers: Layers) -> list[str]:
    """Returns how frequencies differ from those for a sequence of that length."""
    expected = tensor_of(list(_explained(layers.table.rotary, length).plan.frequencies[0].inv_freq))
    if inv_freq is None or inv_freq.shape != tuple(expected.shape):
        return [f"inv_freq has {0 if inv_freq is None else len(inv_freq)} frequencies instead of {len(expected)}"]
    have = tensor_of(inv_freq)
    if not bool(far(have, expected).any()):
        return []
    errors = (have - expected).abs() * (length - 1)
    worst = int(errors.argmax())
    settings: Any = layers.table.rotary
    return [sentence(length, settings=settings, inv_freq=inv_freq),
            f"largest error of an angle: {errors[worst]:.3g} radians at position {length - 1}, in pair {worst}, whose "
            f"frequency is {have[worst]:.6g} instead of {expected[worst]:.6g}"]


def _explained(settings: Any, length: int) -> Any:
    return client().explain(rotary=settings, seq_len=[length]).layers[0].info


def sentence(length: int, **evidence: Any) -> str:
    """Returns the cause as Diagnose finds it. `length`: tokens of the sequence for which the module was asked."""
    try:
        answer = client().diagnose(**evidence)
    except Error as error:
        return f"it was not diagnosed: {error}"
    verdict: Any = answer.verdict
    if verdict.kind == "MATCHES" and answer.explanations:
        return f"frequencies are those of a sequence of {answer.explanations[0].seq_len} tokens, not of {length}"
    return cast(str, verdict.sentence)


__all__ = ["check_rotary", "described", "known_rotations", "sentence"]


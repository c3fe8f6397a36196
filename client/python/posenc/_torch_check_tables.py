"""Compares biases and tables of a live model with what its config says: ALiBi, T5, learned and sinusoidal positions."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from posenc._torch_modules import (
    TOLERANCE,
    ZEROS,
    is_computed,
    kept_random_state,
    no_numbers,
    own_tensors,
    rounded,
    submodules,
    tensor_of,
    with_embedding,
)
from posenc._torch_report import Finding
from posenc._torch_table import client
from posenc.errors import Error

Say = Callable[..., Finding]

_STORED = 2.0**-8  # rounding of values that come from a checkpoint, of bfloat16 weights for example
_LONGEST = 1024  # tokens of a bias that is compared
# Names of tables of positions. Masks, projections and norms have such names, too, but are no embeddings or parameters.
_TABLE = re.compile(r"(^|_)(pos|position|positions|positional)($|_(?!ids|bias|drop|proj))|^wpe$|^pos_?embed|^position_?embed|"
                    r"relative_position_bias_table|^rel_pos_[hw]$|(^|_)pos_emb")


def has_alibi(module: torch.nn.Module) -> bool:
    return _alibi_function(module) is not None


def _alibi_function(module: torch.nn.Module) -> Any:
    """Returns the function by which a model makes its bias, or None."""
    if not hasattr(module, "num_heads") or not hasattr(module, "config") or not hasattr(module, "from_pretrained"):
        return None
    for name in ("build_alibi_tensor", "build_mpt_alibi_tensor"):
        if hasattr(module, name):
            return getattr(module, name)
    return getattr(sys.modules[type(module).__module__], "build_alibi_tensor", None) if getattr(
        module, "use_alibi", False) else None


def check_alibi(module: torch.nn.Module, config: Any, say: Say) -> Finding:
    """Compares the slopes of the bias that the model makes for its number of heads."""
    found = say("ok", "", [])
    try:
        plans = [cast(Any, group.info).plan for group in client().explain(config).layers]
        plan = next(one for one in plans if len(one.slopes))
    except (Error, StopIteration) as error:
        found.status, found.details = "not understood", [f"its config has no slopes: {error}"]
        return found
    expected = torch.tensor(list(plan.slopes), dtype=torch.float64)
    alibi = plan.bias.alibi
    found.expected = f"ALiBi, {len(expected)} heads, slopes {expected[0]:.6g} to {expected[-1]:.6g}"
    # Falcon rounds slopes to bfloat16 by design.
    tolerance = 2.0**-8 if "BF16" in str(alibi.bias_dtype) else TOLERANCE
    build, heads = _alibi_function(module), int(cast(Any, module).num_heads)
    try:
        if "sequence_length" in inspect.signature(build).parameters:  # MPT
            bias: torch.Tensor = build(heads, 3)
        else:
            bias = build(torch.ones(1, 3, dtype=torch.int64), heads, torch.float32)
        rows = bias.double().reshape(-1, 3)
    except Exception as error:  # whatever the class raises
        found.status, found.details = "not understood", [f"its bias cannot be computed: {type(error).__name__}: {error}"]
        return found
    slopes = rows[:, 2] - rows[:, 1]
    if len(slopes) != len(expected):
        found.details = [f"its bias has {len(slopes)} heads; the config has {len(expected)}"]
    else:
        off = (slopes - expected).abs() > tolerance * expected
        if bool(off.any()):
            head = int(((slopes - expected).abs() / expected).argmax())
            found.details = [f"slopes of {int(off.sum())} of {len(expected)} heads differ: {slopes[head]:.6g} instead of "
                             f"{expected[head]:.6g} in head {head}{rounded(slopes.float(), expected.float())}"]
    found.status = "differs" if found.details else "ok"
    return found


def t5_table(module: torch.nn.Module) -> str:
    """Returns the name of a module's table of buckets; empty: it has none."""
    return next((name for name in ("relative_attention_bias", "rel_attn_embed")
                 if isinstance(getattr(module, name, None), torch.nn.Embedding)), "")


def check_t5(module: torch.nn.Module, fresh: torch.nn.Module | None, config: Any, say: Say) -> Finding:
    """Compares the settings of the buckets, the table's shape, and the buckets that the module looks up."""
    table = t5_table(module)
    weight: torch.Tensor = getattr(module, table).weight
    plan = _t5_plan(module, config)
    settings: dict[str, Any] = {} if plan is None else plan.to_dict()
    found = say("ok", ", ".join(["T5", *(f"{name} {value}" for name, value in settings.items())]), [])
    lost = no_numbers(weight)
    if lost and lost != ZEROS:
        found.details.append(f"its table {lost}")
    if fresh is not None and hasattr(fresh, table):
        found.details += [
            f"{name} is {getattr(module, name, None)}; its class makes {value} of the config"
            for name, value in vars(fresh).items() if isinstance(value, (int, float)) and getattr(module, name, None) != value
            and re.search(r"relative_attention|num_buckets|max_distance|is_decoder", name)]
        shape = list(getattr(fresh, table).weight.shape)
        if list(weight.shape) != shape:
            found.details.append(f"its table has the shape {list(weight.shape)}; its class makes {shape} of the config")
    if found.details:
        found.status = "differs"
    elif plan is None:
        found.status, found.details = "not understood", ["its config has no buckets of T5"]
    else:
        try:
            found.details = _bucket_differences(module, table, settings)
            found.status = "differs" if found.details else "ok"
        except Exception as error:  # whatever the class raises
            found.status, found.details = "not understood", [f"its bias cannot be computed: {type(error).__name__}: {error}"]
    return found


def _t5_plan(module: torch.nn.Module, config: Any) -> Any:
    try:
        groups = client().explain(config).layers
    except Error:
        return None
    biases = [cast(Any, group.info).plan.bias for group in groups]
    plans = [bias.t5 for bias in biases if bias is not None and bias.t5 is not None]
    decoder = getattr(module, "is_decoder", None)
    same = [plan for plan in plans if decoder is None or plan.bidirectional is not bool(decoder)]
    return next(iter(same or plans), None)


def _bucket_differences(module: torch.nn.Module, table: str, settings: dict[str, Any]) -> list[str]:
    """Compares the bias that the module makes of a table that holds its buckets' numbers."""
    numbers = torch.arange(getattr(module, table).num_embeddings, dtype=torch.float32)[:, None]
    length = min(settings["max_distance"] * 5 // 4, _LONGEST)
    bias, first = _t5_bias(with_embedding(module, table, numbers), length)
    method: Any = {"t5": settings, "table": numbers.numpy(), "table_layout": "BUCKETS_BY_HEADS"}
    bias = bias.reshape(1, *bias.shape[-2:]).contiguous().numpy()
    verdict: Any = client().diagnose_bias(bias, expected=method, query_offset=first).verdict
    return [] if verdict.kind == "MATCHES" else [f"its buckets: {verdict.sentence}"]


def _t5_bias(module: Any, length: int) -> tuple[torch.Tensor, int]:
    """Returns a bias of a length, and the position of its first query."""
    if hasattr(module, "compute_position_bias"):  # MPNet
        return module.compute_position_bias(torch.zeros(1, length, 1)), 0
    if "block_length" in inspect.signature(module.compute_bias).parameters:  # LongT5: a block sees one on either side
        return module.compute_bias(length // 2), length // 2
    return module.compute_bias(length, length), 0


def is_table(name: str) -> bool:
    return bool(_TABLE.search(name))


def fixed_tables(control: torch.nn.Module | None) -> dict[tuple[int, str], torch.Tensor]:
    """Returns the tables that the initialisation of a model gives the same values every time, by holder and name.

    Sinusoids are such tables, and learned ones are not. Constants tell nothing, and what is trained changes.
    """
    if control is None or not hasattr(control, "initialize_weights"):
        return {}
    places = [(module, name) for path, module in submodules(control) for name, tensor in own_tensors(module)
              if isinstance(tensor, torch.nn.Parameter) and _holds_table(path, module, name)]
    rounds: list[list[torch.Tensor]] = []
    with kept_random_state(), torch.device("cpu"), torch.no_grad():
        for seed in (1, 2) if places else ():
            for module, name in places:
                own = cast(torch.Tensor, getattr(module, name))
                empty = torch.full(own.shape, torch.nan, dtype=torch.float32)
                setattr(module, name, torch.nn.Parameter(empty, own.requires_grad))
            for _, module in submodules(control):
                cast(Any, module)._is_hf_initialized = False
            torch.default_generator.manual_seed(seed)
            cast(Any, control).initialize_weights()
            rounds.append([getattr(module, name).detach() for module, name in places])
    return {(id(module), name): first for (module, name), first, second in zip(places, *rounds)
            if torch.equal(first, second) and first.unique().numel() > 2} if rounds else {}


def _holds_table(path: str, module: torch.nn.Module, name: str) -> bool:
    return is_table(name) or (isinstance(module, torch.nn.Embedding) and name == "weight" and (
        is_table(path.rpartition(".")[2]) or "Position" in type(module).__name__))


def check_tables(module: torch.nn.Module, fresh: torch.nn.Module | None, fixed: dict[tuple[int, str], torch.Tensor],
                 config: Any, say: Say) -> Iterator[Finding]:
    """Yields a finding for each table of positions that the module holds itself: embeddings, parameters, buffers."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.Embedding) and _holds_table(name, child, "weight"):
            yield _table(child.weight, getattr(fresh, name, None), "weight", fixed, config, say, name)
    if isinstance(module, torch.nn.Embedding):
        return
    for name, tensor in own_tensors(module):
        named = is_table(name) or ("Position" in type(module).__name__ and is_computed(module, name))
        if named and tensor.dim() >= 2 and (tensor.is_floating_point() or tensor.is_complex()):
            yield _table(tensor, fresh, name, fixed, config, say, name)


def _table(live: torch.Tensor, holder: torch.nn.Module | None, name: str, fixed: dict[tuple[int, str], torch.Tensor],
           config: Any, say: Say, suffix: str) -> Finding:
    own: torch.Tensor | None = getattr(holder, name, None)
    found = say("ok", f"a table {list(live.shape)}", [], suffix)
    lost = no_numbers(live)
    if not live.numel():
        found.status, found.details = "not understood", ["it has no elements here: its values are elsewhere (ZeRO, FSDP)"]
        return found
    if lost and lost != ZEROS:
        found.details = [f"it {lost}"]
    elif own is None or holder is None:
        found.status, found.details = "not understood", ["its class was not made anew from the config"]
        return found
    elif live.shape != own.shape:
        found.details = [f"its shape is {list(live.shape)}; its class makes {list(own.shape)} of the config"]
    else:
        computed = is_computed(holder, name)
        values = (None if own.is_meta else own) if computed else fixed.get((id(holder), name))
        if not computed and own.requires_grad and not _says_sinusoidal(config):
            values = None  # trained from these values on
        if values is not None:
            found.expected = f"a fixed table {list(own.shape)}{_sinusoidal(values, config)}"
            off = _off_table(live, values, torch.finfo(live.dtype).eps if computed else _STORED)
            if bool(off.any()):
                found.details = [f"it is not the table that its class makes of the config, in {int(off.sum())} of "
                                 f"{live.numel()} values" + (": it " + lost if lost else "")]
                if not computed and _same_norms(live, values):
                    found.details[0] += ", but its rows have the same norms: a checkpoint may hold other sines"
                    found.status = "not understood"
                    return found
        else:
            found.expected = f"a learned table {list(own.shape)}"
            if lost and isinstance(own, torch.nn.Parameter) and not own.requires_grad:
                found.expected = f"a fixed table {list(own.shape)}"
                found.details = [f"it {lost}, and is not trained"]
    found.status = "differs" if found.details else "ok"
    return found


def _says_sinusoidal(config: Any) -> bool:
    settings = cast("dict[str, Any]", config if isinstance(config, dict) else vars(config))
    return any("sinusoidal" in name and value is True for name, value in settings.items())


def _off_table(live: torch.Tensor, values: torch.Tensor, rounding: float) -> torch.Tensor:
    """Returns where a table of sines differs by more than a rounding and its row's angles in float32."""
    live, values = live.detach().cpu(), values.detach().cpu()
    wide = torch.complex128 if values.is_complex() else torch.float64
    rows = torch.arange(values.shape[-2], dtype=torch.float64)[:, None]
    return (live.to(wide) - values.to(wide)).abs() > rounding + TOLERANCE * (1 + rows)


def _same_norms(live: torch.Tensor, values: torch.Tensor) -> bool:
    """Sines and cosines have such norms in any order and after some training, and random numbers have not."""
    mine, own = (one.detach().cpu().double().square().sum(-1).sqrt() for one in (live, values))
    return bool(((mine - own).abs() <= 0.1 * own.max()).all())


def _sinusoidal(values: torch.Tensor, config: Any) -> str:
    """Returns in words whether a table has the sines that the config gives."""
    try:
        plans = [cast(Any, group.info).plan.sinusoidal for group in client().explain(config).layers]
        plan = next(one for one in plans if one is not None and one.dim == values.shape[-1])
        settings: Any = plan.to_dict()
        exact = client().embedding(sinusoidal=settings, positions=0, count=values.shape[0], dtype="FP32").embedding
    except (Error, StopIteration):
        return ""
    off = bool(_off_table(tensor_of(exact), values, TOLERANCE).any())
    return "" if off else f" of sinusoids, {plan.convention}"

"""Checks models of each type of transformers and each transformer of diffusers.

Of each type there are up to two: of the sizes of its class, whose large parameters have no memory, and a small one with weights.

    python sweep_torch_check.py [TYPE...]

Prints what differs or is not understood, and the counts of docs/torch-check.md. A right model must not be accused.
"""

import collections
import inspect
import re
import signal
import sys
import warnings

import diffusers
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING

import posenc.torch
from posenc._torch_check import EmptyOnMeta
from posenc._torch_check_tables import fixed_tables

SECONDS = 120  # for one type
SMALLER = {r"(num_hidden_layers|n_layers?|num_layers|(num_)?(en|de)coder_layers|depth|num_single_layers)$": 2,
           r"(hidden_size|d_model|n_embd|dim|embed_dim)$": 64, r"(num_attention_heads|n_heads?|num_heads)$": 4,
           r"(en|de)coder_attention_heads$": 4, r"num_key_value_heads$": 4,
           r"(intermediate_size|(en|de)coder_ffn_dim|moe_intermediate_size|d_ff|hidden_dim)$": 64}


NEEDED = {"informer": {"prediction_length": 4}, "autoformer": {"prediction_length": 4},
          "esm": {"vocab_size": 33, "pad_token_id": 1}, **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe"), {"head_dim": 128})}


def smaller(config, sizes):
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PreTrainedConfig):
            smaller(value, sizes)
        for pattern, size in sizes.items():
            if type(value) is int and value > size and re.match(pattern, name):
                setattr(config, name, size)
    if getattr(config, "layer_types", None) and hasattr(config, "num_hidden_layers"):
        config.layer_types = config.layer_types[:config.num_hidden_layers]
    return config


def config_of(model_type):
    return CONFIG_MAPPING[model_type](**NEEDED.get(model_type, {}))


def models(model_type):
    """Yields models, with "full" or "small"."""
    config = config_of(model_type)
    classes = MODEL_MAPPING[type(config)]
    model_class = classes[0] if isinstance(classes, tuple) else classes
    with EmptyOnMeta():
        model = model_class(config)
    fixed_tables(model)  # fills the tables
    yield model.eval(), "full"
    try:
        small = model_class(smaller(config_of(model_type), SMALLER)).eval()
    except TimeoutError:
        raise
    except Exception:
        return  # sizes that do not go together
    yield small, "small"


def diffusion_models(name):
    model_class = getattr(diffusers, name)
    layers = {parameter for parameter in inspect.signature(model_class.__init__).parameters if re.match("num_.*(layers|blocks)", parameter)}
    with EmptyOnMeta():
        yield model_class(**dict.fromkeys(layers, 1)), "full"


def out_of_time(*_):
    raise TimeoutError


def main():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    diffusers.utils.logging.set_verbosity_error()
    signal.signal(signal.SIGALRM, out_of_time)
    diffusion = sorted(name for name in dir(diffusers) if re.search(r"Transformer\w*Model$", name))
    counts = collections.defaultdict(collections.Counter)
    for name in sys.argv[1:] or [*CONFIG_MAPPING, *diffusion]:
        signal.alarm(SECONDS)
        try:
            for model, size in diffusion_models(name) if name in diffusion else models(name):
                counts[size].update(checked(name, model, size))
        except KeyError:
            continue  # a configuration without a model
        except Exception as error:
            counts["full"]["not built"] += 1
            print(f"{name}: not built: {type(error).__name__}: {str(error)[:90]}", flush=True)
        signal.alarm(0)
    for size, count in counts.items():
        print(f"{size}: {dict(count)}")


def checked(name, model, size):
    """Checks a model and yields what is to be counted: its own status, and that of each module."""
    try:
        report = posenc.torch.check(model)
    except ValueError as error:
        print(f"{name} ({size}): {str(error)[:90]}", flush=True)
        return ["models without positions"]
    print(f"{name} ({size}): {len(report.of('ok'))} ok", flush=True)
    for one in {(one.class_name, one.status, one.kind): one for one in report.findings if one.status != "ok"}.values():
        print(f"  {one}", flush=True)
    for note in report.notes:
        if not note.startswith("vLLM"):
            print(f"  {note}", flush=True)
    # Tables of a model without memory have no values.
    statuses = [one.status for one in report.findings if not any("on the meta device" in line for line in one.details)] or ["ok"]
    worst = next(status for status in ("differs", "not understood", "ok") if status in statuses)
    return [f"models {worst}", *(f"modules {status}" for status in statuses)]


if __name__ == "__main__":
    main()

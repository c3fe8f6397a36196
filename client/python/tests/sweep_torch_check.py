"""Checks a model of each type of transformers and each transformer of diffusers, made small if the class allows it.

    python sweep_torch_check.py [TYPE...]

Prints what differs or is not understood, and the counts of docs/torch-check.md. A right model must not be accused.
"""

import collections
import inspect
import re
import signal
import sys
import time
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
           r"(en|de)coder_attention_heads$": 4, r"num_key_value_heads$": 4, r"head_dim$": 16,
           r"(intermediate_size|(en|de)coder_ffn_dim|moe_intermediate_size|d_ff|hidden_dim)$": 64}


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


def small_model(model_type):
    """Returns a model and "small", or "full": of the sizes of its class, with parameters that have no memory."""
    config = CONFIG_MAPPING[model_type]()
    classes = MODEL_MAPPING[type(config)]
    model_class = classes[0] if isinstance(classes, tuple) else classes
    try:
        return model_class(smaller(config, SMALLER)).eval(), "small"
    except TimeoutError:
        raise
    except Exception:
        with EmptyOnMeta():
            model = model_class(CONFIG_MAPPING[model_type]())
        fixed_tables(model)  # fills the tables
        return model.eval(), "full"


def diffusion_model(name):
    model_class = getattr(diffusers, name)
    layers = {parameter for parameter in inspect.signature(model_class.__init__).parameters if re.match("num_.*(layers|blocks)", parameter)}
    with EmptyOnMeta():
        return model_class(**dict.fromkeys(layers, 1)), "full"


def out_of_time(*_):
    raise TimeoutError


def main():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    diffusers.utils.logging.set_verbosity_error()
    signal.signal(signal.SIGALRM, out_of_time)
    diffusion = sorted(name for name in dir(diffusers) if re.search(r"Transformer\w*Model$", name))
    types, findings, sizes = collections.Counter(), collections.Counter(), collections.Counter()
    for name in sys.argv[1:] or [*CONFIG_MAPPING, *diffusion]:
        signal.alarm(SECONDS)
        begin = time.monotonic()
        try:
            model, size = diffusion_model(name) if name in diffusion else small_model(name)
        except KeyError:
            continue  # a configuration without a model
        except Exception as error:
            types["not built"] += 1
            print(f"{name}: not built: {type(error).__name__}: {str(error)[:90]}", flush=True)
            continue
        try:
            report = posenc.torch.check(model)
        except ValueError as error:
            types["without positions"] += 1
            print(f"{name}: {str(error)[:90]}", flush=True)
            continue
        signal.alarm(0)
        sizes[size] += 1
        findings.update(one.status for one in report.findings)
        statuses = {one.status for one in report.findings}
        types["differs" if "differs" in statuses else "not understood" if "not understood" in statuses else "ok"] += 1
        print(f"{name} ({size}): {len(report.of('ok'))} ok, {time.monotonic() - begin:.1f} s", flush=True)
        for one in {(one.class_name, one.status): one for one in report.findings if one.status != "ok"}.values():
            print(f"  {one}", flush=True)
        for note in report.notes:
            if not note.startswith("vLLM"):
                print(f"  {note}", flush=True)
    print(f"types: {dict(types)}; modules: {dict(findings)}; models: {dict(sizes)}")


if __name__ == "__main__":
    main()

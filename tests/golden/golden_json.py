"""Writes golden files: exact numbers, one tensor row per line, and the origin of every file."""

import json
import math
import platform

import torch
import transformers


def origin(note):
    """Returns a description of the program that wrote a golden file."""
    return {
        "package": "transformers",
        "version": transformers.__version__,
        "torch": torch.__version__,
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "command": "python tests/golden/generate.py",
        "note": note,
    }


def numbers(tensor):
    """Returns the tensor as nested lists of exactly equal doubles, with inf and NaN as strings."""
    return _spell(tensor.detach().double().tolist())


def _spell(value):
    if isinstance(value, list):
        return [_spell(item) for item in value]
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_layout(content) + "\n")


def _layout(value, indent=""):
    """Returns JSON text in which a list of plain values takes one line."""
    deeper = indent + " "
    if isinstance(value, dict):
        rows = [f"{deeper}{json.dumps(key)}: {_layout(item, deeper)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        rows = [f"{deeper}{_layout(item, deeper)}" for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    return json.dumps(value, separators=(",", ":"), allow_nan=False)

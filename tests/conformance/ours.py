"""Runs the posenc command with a config.json."""

import json
import pathlib
import subprocess
import tempfile

import torch
from safetensors.torch import load_file, save_file


class Refused(Exception):
    """posenc refused the request; the text is its message."""


def weight_flags(prefix, method, tensors):
    """Returns the flags of a method's weights, not of its settings. Adds each tensor to `tensors` by its flag name."""
    flags = []
    for name, value in method.items():
        flag = f"{prefix}-{name.replace('_', '-')}"
        if isinstance(value, dict):
            flags += weight_flags(flag, value, tensors)
        elif torch.is_tensor(value):
            tensors[flag[2:]] = value.detach().contiguous()
            flags += [flag, flag[2:]]
        elif name == "layout":
            flags += [flag, value.removeprefix("WEIGHT_LAYOUT_").lower().replace("_", "-")]
    return flags


class Posenc:
    """Runs one build's command in its own process, without a server."""

    def __init__(self, program):
        self.program = str(program)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="posenc-conformance-"))

    def explain(self, config, **choice):
        """Returns the layers of Explain's answer. `choice` may have component, layer_type and seq_len."""
        text = self._run("explain", "--json", *self._model(config, choice))
        return json.loads(text)["layers"]

    def rotate(self, config, x, positions, precision, **choice):
        """Rotates x [1, heads, tokens, width] at positions [axes][tokens]."""
        given, out = self.directory / "in.safetensors", self.directory / "out.safetensors"
        ids = torch.tensor(positions, dtype=torch.float64)
        save_file({"q": x.contiguous(), "positions": ids if len(positions) > 1 else ids[0].contiguous()}, given)
        axes = ["--axis-dimension", "first"] if len(positions) > 1 else []
        self._run("rope", "--q", f"{given}:q", "--q-out", out, "--layout", "bhsd", "--positions", f"{given}:positions",
                  *axes, "--precision", precision, *self._model(config, choice))
        return load_file(out)["q"]

    def diagnose(self, config, before, after, positions, **choice):
        """Returns the verdict on how `before` became `after`, both [1, heads, tokens, width]."""
        given = self.directory / "in.safetensors"
        ids = torch.tensor(positions, dtype=torch.float64)
        save_file({"before": before.contiguous(), "after": after.contiguous(),
                   "positions": ids if len(positions) > 1 else ids[0].contiguous()}, given)
        axes = ["--axis-dimension", "first"] if len(positions) > 1 else []
        text = self._run("diagnose", "--json", "--before", f"{given}:before", "--after", f"{given}:after", "--layout", "bhsd",
                         "--positions", f"{given}:positions", *axes, *self._model(config, choice), right=(0, 1, 4))
        return json.loads(text)["verdict"]

    def scores(self, record):
        """Returns the scores, with content, of a record of tests/golden: of its q and k, by its config and weights."""
        given, out = self.directory / "in.safetensors", self.directory / "out.safetensors"
        ((method, weights),) = record["method"].items()
        tensors = {"q": record["q"].contiguous(), "k": record["k"].contiguous()}
        flags = weight_flags(f"--{method.replace('_', '-')}", weights, tensors)
        save_file(tensors, given)
        flags = [f"{given}:{flag}" if flag in tensors else flag for flag in flags]
        self._run("scores", *flags, "--q", f"{given}:q", "--k", f"{given}:k", "--layout", "bhsd", "--content", "true",
                  "--dtype", "fp32", "--query-offset", record["past"], "-o", out,
                  *(["--scale", record["scale"]] if "scale" in record else []), *self._model(json.dumps(record["config"]), {}))
        return load_file(out)["scores"]

    def learned_rows(self, config, table, count):
        """Returns the rows of a table [N, D] for the first tokens."""
        given, out = self.directory / "in.safetensors", self.directory / "out.safetensors"
        save_file({"table": table.contiguous()}, given)
        self._run("embedding", "--learned-table", f"{given}:table", "--offset", 0, "--count", count, "--dtype", "fp32",
                  "-o", out, *self._model(config, {}))
        return load_file(out)["embedding"]

    def bias(self, config, table, length):
        """Returns T5's bias from a table [buckets, heads], for `length` queries and keys."""
        given, out = self.directory / "in.safetensors", self.directory / "out.safetensors"
        save_file({"table": table.detach().contiguous()}, given)
        self._run("bias", "--table", f"{given}:table", "--table-layout", "buckets-by-heads", "--query-length", length,
                  "--key-length", length, "--bias-form", "dense", "--dtype", "fp32", "--precision", "model", "-o", out,
                  *self._model(config, {}))
        return load_file(out)["bias"]

    def embedding(self, config, **flags):
        """Returns what a model adds to its input, in float32 with the model's own arithmetic."""
        out = self.directory / "out.safetensors"
        given = [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", value)]
        self._run("embedding", *given, "--dtype", "fp32", "--precision", "model", "-o", out, *self._model(config, {}))
        return load_file(out)["embedding"]

    def _model(self, config, choice):
        path = self.directory / "config.json"
        path.write_text(config)
        flags = ["--model", path]
        for name, value in choice.items():
            if value is not None:
                flags += [f"--{name.replace('_', '-')}", str(value)]
        return flags

    def _run(self, *arguments, right=(0,)):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode not in right:
            raise Refused(" ".join(done.stderr.split()))
        return done.stdout

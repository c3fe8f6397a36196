"""What the posenc command makes of a config.json."""

import json
import pathlib
import subprocess
import tempfile

import torch
from safetensors.torch import load_file, save_file


class Refused(Exception):
    """posenc's own message."""


class Posenc:
    """Runs one build's command, in its own process: no server."""

    def __init__(self, program):
        self.program = str(program)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="posenc-conformance-"))

    def explain(self, config, **choice):
        """The layers of Explain's answer; choice: component, layer_type, seq_len."""
        text = self._run("explain", "--json", *self._model(config, choice))
        return json.loads(text)["layers"]

    def rotate(self, config, x, positions, precision, **choice):
        """x [1, heads, tokens, width] turned, at positions [axes][tokens]."""
        given, out = self.directory / "in.safetensors", self.directory / "out.safetensors"
        ids = torch.tensor(positions, dtype=torch.float64)
        save_file({"q": x.contiguous(), "positions": ids if len(positions) > 1 else ids[0].contiguous()}, given)
        axes = ["--axis-dimension", "first"] if len(positions) > 1 else []
        self._run("rope", "--q", f"{given}:q", "--q-out", out, "--layout", "bhsd", "--positions", f"{given}:positions",
                  *axes, "--precision", precision, *self._model(config, choice))
        return load_file(out)["q"]

    def _model(self, config, choice):
        path = self.directory / "config.json"
        path.write_text(config)
        flags = ["--model", path]
        for name, value in choice.items():
            if value is not None:
                flags += [f"--{name.replace('_', '-')}", str(value)]
        return flags

    def _run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(" ".join(done.stderr.split()))
        return done.stdout

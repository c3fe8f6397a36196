"""Runs the originals beside posenc and prints how far apart they are. Run by scripts/conformance, which see."""

import argparse
import logging
import pathlib
import tempfile
import warnings

import diffusers
import torch
import transformers
from client import Client
from server_process import ServerProcess

import check_biases
import check_diffusion_rotary
import check_embeddings
import check_relative_scores
import table
from service import Service

SECTIONS = {
    "Biases": check_biases.rows,
    "Absolute encodings": check_embeddings.rows,
    "Rotary tables of diffusion models": check_diffusion_rotary.rows,
    "Terms with content: scores before softmax": check_relative_scores.rows,
}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--server", required=True, help="the posenc-server to start")
    options = arguments.parse_args()
    quiet()
    print(f"torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), transformers"
          f" {transformers.__version__}, diffusers {diffusers.__version__}. ulp: a float32's unit in the last place.")
    passed = failed = 0
    with (tempfile.TemporaryDirectory() as directory, ServerProcess([options.server], pathlib.Path(directory)) as server,
          Client(server.port) as client):
        for title, section in SECTIONS.items():
            rows = section(Service(client))
            print("\n" + "\n".join(table.lines(title, rows)), flush=True)
            passed += sum(row.passed for row in rows)
            failed += sum(row.failed for row in rows)
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed else 0


def quiet():
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)


if __name__ == "__main__":
    raise SystemExit(main())

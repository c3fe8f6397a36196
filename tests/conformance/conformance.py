"""Compares posenc with the original implementations and prints the differences. scripts/conformance runs this."""

import argparse
import logging
import pathlib
import tempfile
import time
import traceback
import warnings

import diffusers
import torch
import transformers
from client import Client
from server_process import ServerProcess

import check_biases
import check_diagnoses
import check_diffusers
import check_embeddings
import check_gguf
import check_inkling
import check_latents
import check_mutations
import check_own_entries
import check_positions
import check_query_scale
import check_relative_scores
import check_remote
import check_resized
import check_rotary
import check_scalings
import table
from service import Service

# Sections call the server over gRPC, except those in COMMAND, which run the posenc command.
SECTIONS = {
    "biases": ("Biases", check_biases.rows),
    "embeddings": ("Absolute encodings", check_embeddings.rows),
    "resized": ("Learned tables, resized", check_resized.rows),
    "diffusion": ("diffusers' transformers, by their config.json", check_diffusers.rows),
    "relative": ("Terms with content: scores before softmax", check_relative_scores.rows),
    "inkling": ("Inkling: a bias that the content selects", check_inkling.rows),
    "rotary": ("Rotary model types", check_rotary.rows),
    "scalings": ("Scaling blocks on rotary model types", check_scalings.rows),
    "own": ("Entries of their own for heads, tokens or elements of a pair", check_own_entries.rows),
    "remote": ("Model types whose code comes with their weights", check_remote.rows),
    "queries": ("Factors of queries by position", check_query_scale.rows),
    "positions": ("Position ids of text, images, videos and audio", check_positions.rows),
    "latents": ("Position ids of diffusers' latents", check_latents.rows),
    "gguf": ("GGUF files", check_gguf.rows),
    "mutations": ("config.json with one or two fields changed", check_mutations.rows),
    "diagnoses": ("Rotations that posenc diagnose explains", check_diagnoses.rows),
}
COMMAND = ("rotary", "scalings", "diagnoses")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--programs", type=pathlib.Path, required=True, help="where posenc and posenc-server are")
    arguments.add_argument("sections", nargs="*", default=[], choices=[*SECTIONS, []], help="default: all")
    arguments.add_argument("--types", default="", help="mutations: only these model types and classes, by commas")
    options = arguments.parse_args()
    check_mutations.only = set(filter(None, options.types.split(",")))
    quiet()
    print(f"torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), transformers"
          f" {transformers.__version__}, diffusers {diffusers.__version__}.\n"
          "ulp: a float32's unit in the last place; of 1 + the largest angle: 2^-24 times that")
    passed = failed = 0
    with (tempfile.TemporaryDirectory() as directory,
          ServerProcess([options.programs / "posenc-server"], pathlib.Path(directory)) as server,
          Client(server.port) as client):
        for name in options.sections or SECTIONS:
            rows, seconds = run(name, options.programs, client)
            print("\n" + "\n".join(table.lines(f"{SECTIONS[name][0]} ({seconds:.0f} s)", rows)), flush=True)
            passed += sum(row.passed for row in rows)
            failed += sum(row.failed for row in rows)
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed else 0


def run(name, programs, client):
    """Returns (rows of a section, seconds)."""
    start, rows = time.monotonic(), []
    torch.manual_seed(0)
    try:
        for row in SECTIONS[name][1](programs / "posenc" if name in COMMAND else Service(client)):
            rows.append(row)
    except Exception:  # an error of an original or a server counts as a failure; other sections still run
        rows.append(table.Row(f"({name} ended early)", ""))
        rows[-1].fail(traceback.format_exc(limit=-3))
    return rows, time.monotonic() - start


def quiet():
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


if __name__ == "__main__":
    raise SystemExit(main())

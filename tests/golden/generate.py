"""Writes tests/golden/recorded/ and the configs that transformers itself saves.

Every number comes from the packages' own functions, run here on the CPU; none comes from posenc. README.md beside this
file lists the requirements. Run from any directory:

    python tests/golden/generate.py
"""

import json
import pathlib
import shutil

import torch
from transformers import AutoConfig

from alibi_biases import alibi_file
from eager_apply import deepseek_v3_file, eager_apply_file
from embeddings import embeddings_file
from golden_json import write
from model_files import model_files_file
from relative_biases import relative_biases_file
from relative_scores import relative_scores_file
from rotary_tables import rotary_file, uses_rotary
from several_axes import several_axes_file

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE / "configs"
RECORDED = HERE / "recorded"

# Name: whether to write save_pretrained's shorter form, which has only differences from the class's defaults.
SAVED_AGAIN = {"llama-3.2-1b": False, "gemma-3-1b-it": True, "phi-4-mini-instruct": True}


def save_configs():
    """Writes old files as transformers 5 does: in full, or only the differences from the defaults."""
    for name, only_differences in SAVED_AGAIN.items():
        config = AutoConfig.for_model(**json.loads((CONFIGS / f"{name}.json").read_text()))
        text = config.to_json_string(use_diff=only_differences)
        (CONFIGS / f"{name}.transformers-5.json").write_text(text)


def main():
    torch.set_num_threads(1)
    shutil.rmtree(RECORDED, ignore_errors=True)
    save_configs()
    for path in filter(uses_rotary, sorted(CONFIGS.glob("*.json"))):
        write(RECORDED / "rotary" / path.name, rotary_file(path))
    write(RECORDED / "eager_apply.json", eager_apply_file())
    write(RECORDED / "deepseek_v3.json", deepseek_v3_file(CONFIGS / "deepseek-v3.json"))
    write(RECORDED / "alibi.json", alibi_file(CONFIGS))
    write(RECORDED / "relative_biases.json", relative_biases_file())
    write(RECORDED / "relative_scores.json", relative_scores_file())
    write(RECORDED / "embeddings.json", embeddings_file())
    write(RECORDED / "several_axes.json", several_axes_file())
    write(RECORDED / "model_files.json", model_files_file())


if __name__ == "__main__":
    main()

"""Attention scores before softmax, of modules whose position terms depend on q and k, with recorded random weights.

All records have the same fields: `config` has the fields of config.json that concern positions; `method` and `mask` are
posenc's RelativeMethod and Mask as JSON of its API, with tensors as nested lists; q [B][H][Sq][d]; k [B][H][Sk][d];
`past` is the number of keys before the first query; `scores` [B][H][Sq][Sk] include content.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import unittest.mock

import torch

from golden_json import numbers, origin

NOTE = (
    "config is the model's config.json, with what a position encoding reads. method is RelativeMethod, and mask is Mask,"
    " as JSON of posenc's API, tensors as nested lists. scores are what the module hands to softmax, content included,"
    " float32. Weights, tables and hidden states are random, short numbers; q and k are what the module's own projections"
    " make of them. DeBERTa v2's layer_norm is the encoder's. XLNet's and Transformer-XL's `past` keys are its memory."
    " BERT's relative keys, Transformer-XL and NEZHA are no longer in transformers 5: they are 4.57.6's."
)
OLDER = "OLDER_TRANSFORMERS"  # the environment variable that says where transformers 4.57.6 is
OUTPUT_BY_INPUT, INPUT_BY_OUTPUT = "WEIGHT_LAYOUT_OUTPUT_BY_INPUT", "WEIGHT_LAYOUT_INPUT_BY_OUTPUT"


def relative_scores_file():
    torch.manual_seed(20261121)
    return {"origin": origin(NOTE) | {"packages": {"transformers": "4.57.6"}},
            "records": [nested_lists(record) for record in relative_scores(small=True)] + older_relative_scores()}


def relative_scores(small):
    """Yields the records of modules of transformers 5."""
    from transformers_relative_scores import deberta, deberta_v2, speecht5, wav2vec2_bert, wav2vec2_conformer, xlnet
    yield deberta(tokens=6, span=4)
    yield deberta_v2(tokens=12, buckets=6, largest=8, share=True)
    yield deberta_v2(tokens=9, buckets=4, largest=16, share=False)
    yield xlnet(tokens=4, past=3)
    yield wav2vec2_bert(tokens=7, left=3, right=3)
    yield wav2vec2_bert(tokens=7, left=4, right=1)
    yield wav2vec2_conformer(tokens=6)
    yield speecht5(tokens=7, length=3)
    if small:
        return
    for kind in (["c2p"], ["p2c"], ["c2p", "p2c"]):
        yield deberta(tokens=40, span=16, heads=4, kind=kind)
        yield deberta(tokens=24, span=32, heads=4, kind=kind)  # fewer tokens than rows
        for share in (False, True):
            yield deberta_v2(tokens=64, buckets=16, largest=48, share=share, heads=4, kind=kind)
            yield deberta_v2(tokens=40, buckets=0, largest=16, share=share, heads=4, kind=kind, norm=False)
    yield deberta_v2(tokens=600, buckets=256, largest=512, share=True, heads=1)  # v3's own
    for clamp in (0, 5):
        for past in (0, 7):
            yield xlnet(tokens=16, past=past, heads=4, clamp=clamp)
    for left, right in ((2, 2), (64, 8)):
        yield wav2vec2_bert(tokens=32, left=left, right=right, heads=4)
    yield wav2vec2_conformer(tokens=32, heads=4)
    yield speecht5(tokens=32, length=8, heads=4)


def older_relative_scores(*arguments):
    """Returns records of modules that transformers 5 no longer has, from a process that imports the older release."""
    program = pathlib.Path(__file__).parent / "older_relative_scores.py"
    paths = os.environ[OLDER], os.environ.get("PYTHONPATH", "")
    done = subprocess.run([sys.executable, program, *arguments], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


READ = (
    "model_type", "attn_type", "bi_data", "clamp_len", "d_head", "d_model", "encoder_attention_heads",
    "encoder_max_relative_position", "hidden_size", "layer_norm_eps", "left_max_position_embeddings",
    "max_position_embeddings", "max_relative_position", "max_relative_positions", "n_head", "norm_rel_ebd",
    "num_attention_heads", "pos_att_type", "position_buckets", "position_embedding_type", "position_embeddings_type",
    "relative_attention", "right_max_position_embeddings", "share_att_key",
    "speech_encoder_attention_heads")


def config_json(config):
    """Returns what save_pretrained writes, restricted to fields that concern positions."""
    return {name: value for name, value in json.loads(config.to_json_string(use_diff=True)).items() if name in READ}


@contextlib.contextmanager
def softmax_arguments():
    """Yields a list to which every argument of torch's softmax is appended within this context."""
    seen = []

    def noting(softmax):
        def note(scores, *arguments, **named):
            seen.append(scores.detach().clone())
            return softmax(scores, *arguments, **named)
        return note

    with contextlib.ExitStack() as patches:
        for owner in (torch, torch.nn.functional):
            patches.enter_context(unittest.mock.patch.object(owner, "softmax", noting(owner.softmax)))
        yield seen


def random_weights(*shape):
    """Returns short numbers with magnitudes around 1/4."""
    return torch.round(torch.randn(*shape) * 256) / 1024


def randomize(module):
    for weight in module.parameters():
        weight.data = random_weights(*weight.shape)
    return module.eval()


def projection(linear):
    made = {"weight": linear.weight, "layout": OUTPUT_BY_INPUT}
    return made if linear.bias is None else made | {"bias": linear.bias}


def heads_first(x, heads):
    """Converts [B, S, H*d] to [B, H, S, d]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def nested_lists(value):
    if isinstance(value, dict):
        return {name: nested_lists(item) for name, item in value.items()}
    return numbers(value) if torch.is_tensor(value) else value

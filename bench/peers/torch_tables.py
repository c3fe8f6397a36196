"""torch: tables and dense biases, eager, in float32. For Llama and T5, transformers' own modules compute them."""

import functools

import torch
import transformers
from torch_rotary import NAME
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5Attention


def start(threads):
    """Does nothing: torch_rotary sets torch's threads."""


def prepared(run, *shape):
    def check():
        if run().shape != shape:
            raise AssertionError(f"the shape is {run().shape}, and not {shape}")

    return run, check


def tables(case):
    """Cosines and sines as wide as a head row, whose two halves are equal."""
    dim, tokens = case["head_dim"], case["tokens"]
    config = transformers.LlamaConfig(head_dim=dim, hidden_size=32 * dim, num_attention_heads=32)
    module, positions = LlamaRotaryEmbedding(config), torch.arange(tokens)[None]
    return prepared(lambda: module(torch.empty(0), positions)[0], 1, tokens, dim)


def alibi(case):
    """Each head's slope times the distance."""
    heads = case["heads"]
    slopes = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1))
    queries, keys = torch.arange(case["queries"])[:, None], torch.arange(case["keys"])
    return prepared(lambda: slopes[:, None, None] * (keys - queries), heads, case["queries"], case["keys"])


def t5(case):
    config = transformers.T5Config(num_heads=case["heads"])
    module = T5Attention(config, has_relative_attention_bias=True)
    run = functools.partial(module.compute_bias, case["queries"], case["keys"])
    return prepared(run, 1, case["heads"], case["queries"], case["keys"])


EAGER = f"{NAME} eager"
PEERS = {"tables": {EAGER: tables}, "alibi": {EAGER: alibi}, "t5": {EAGER: t5}}

"""ALiBi biases of BLOOM, MPT and Falcon."""

import json

import torch
from transformers import AutoConfig
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon
from transformers.models.mpt import modeling_mpt

from golden_json import numbers, origin

ALL_KEYS = [1] * 9
LEFT_PADDED = [0] * 3 + [1] * 6

NOTE = (
    "bias is [heads][keys], batch 1, as the model adds it to every query row. BLOOM: slopes come from its own slope"
    " function; padded keys and the first real key are 0; the result is rounded to dtype once. MPT: distances from"
    " the last key, float32; slopes are minus the bias one key before the last, since its function keeps them to"
    " itself. Falcon: slopes and positions are bfloat16 before the product, whatever the model's dtype; slopes are"
    " the bias of key 1; its attention divides the bias by sqrt(head_dim) together with the scores. MPT reads no"
    " mask. Falcon's config has alibi true and still receives rope_parameters, which its attention ignores."
)


def alibi_file(configs):
    heads = (1, 3, 6, 8, 12, 16, 32)
    bloom = [bloom_record(n, mask) for n in heads + (112,) for mask in (ALL_KEYS, LEFT_PADDED)]
    bloom.append(bloom_record(16, [1] * 300, torch.bfloat16))
    mpt = [mpt_record(n, len(ALL_KEYS), bias_max) for n in heads for bias_max in (8, 16)]
    falcon = [falcon_record(n, mask) for n in heads + (71,) for mask in (ALL_KEYS, LEFT_PADDED)]
    falcon.append(falcon_record(32, [1] * 300))
    return {
        "origin": origin(NOTE),
        "bloom": [config_record(configs / "bloom-560m.json")] + bloom,
        "mpt": [config_record(configs / "mpt-7b.json")] + mpt,
        "falcon": [config_record(configs / "falcon-rw-1b.json")] + falcon,
    }


def config_record(path):
    """The record of a model's own config.json."""
    config = AutoConfig.for_model(**json.loads(path.read_text()))
    if config.model_type == "mpt":
        record = mpt_record(config.n_heads, len(ALL_KEYS), config.attn_config.alibi_bias_max)
    else:
        function = {"bloom": bloom_record, "falcon": falcon_record}[config.model_type]
        record = function(config.num_attention_heads, ALL_KEYS)
    return {"config": path.name} | record


def bloom_record(n_heads, mask, dtype=torch.float32):
    attention_mask = torch.tensor([mask])
    bias = modeling_bloom.build_alibi_tensor(attention_mask, n_heads, dtype)
    slopes = modeling_bloom._get_alibi_slopes(n_heads, attention_mask.device)
    return as_record(n_heads, mask, slopes, bias)


def falcon_record(n_heads, mask):
    bias = modeling_falcon.build_alibi_tensor(torch.tensor([mask]), n_heads, torch.bfloat16)
    slopes = modeling_falcon.build_alibi_tensor(torch.ones(1, 2, dtype=torch.int64), n_heads, torch.bfloat16)[:, 0, 1]
    return as_record(n_heads, mask, slopes, bias)


def mpt_record(n_heads, n_keys, bias_max):
    bias = modeling_mpt.build_mpt_alibi_tensor(n_heads, n_keys, bias_max)
    slopes = -modeling_mpt.build_mpt_alibi_tensor(n_heads, 2, bias_max)[:, 0, 0]
    return {"alibi_bias_max": bias_max} | as_record(n_heads, [1] * n_keys, slopes, bias)


def as_record(n_heads, mask, slopes, bias):
    return {
        "n_heads": n_heads,
        "n_keys": len(mask),
        "attention_mask": mask,
        "dtype": str(bias.dtype).removeprefix("torch."),
        "slopes_dtype": str(slopes.dtype).removeprefix("torch."),
        "slopes": numbers(slopes),
        "bias": numbers(bias[:, 0]),
    }

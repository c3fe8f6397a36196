"""BERT's relative keys, NEZHA and Transformer-XL, which transformers 5 no longer has, as records of relative_scores.py.

relative_scores.py runs this with transformers 4.57.6 in PYTHONPATH. Writes JSON; --large selects other, larger records.
"""

import contextlib
import json
import sys

import torch

with contextlib.redirect_stdout(sys.stderr):  # this release prints messages
    from transformers import BertConfig
    from transformers.models.deprecated.nezha import configuration_nezha, modeling_nezha
    from transformers.models.bert.modeling_bert import BertSelfAttention
    from transformers.models.deprecated.transfo_xl import configuration_transfo_xl, modeling_transfo_xl

from relative_scores import (
    config_json, heads_first, nested_lists, projection, random_weights, randomize, softmax_arguments)

BATCH, HEAD_DIM = 2, 8
CAUSAL = {"causal": True, "fill_kind": "MASK_FILL_LOWEST_FINITE", "fully_masked_row": "FULLY_MASKED_ROW_FILL"}


def main():
    torch.manual_seed(20261122)
    records = [bert("relative_key", 6, 8), bert("relative_key_query", 6, 8), transformer_xl(4, 3), nezha(7, 4)]
    if sys.argv[1:] == ["--large"]:
        records = [bert(kind, 32, rows, heads=4) for kind in ("relative_key", "relative_key_query") for rows in (32, 512)]
        records += [transformer_xl(16, past, heads=4, clamp=clamp) for past in (0, 9) for clamp in (0, 5)]
    json.dump([nested_lists(record) for record in records], sys.stdout)


@torch.no_grad()
def bert(kind, tokens, rows, heads=2):
    config = BertConfig(hidden_size=heads * HEAD_DIM, num_attention_heads=heads, max_position_embeddings=rows,
                        position_embedding_type=kind)
    module, hidden = randomize(BertSelfAttention(config)), random_weights(BATCH, tokens, heads * HEAD_DIM)
    with softmax_arguments() as scores:
        module(hidden)
    method = {"table": module.distance_embedding.weight, "order": "SHAW_ORDER_QUERY_MINUS_KEY", "clip": False,
              "key_term": kind == "relative_key_query"}
    return {"model": f"bert {kind}", "config": config_json(config), "method": {"shaw": method}, "past": 0,
            "q": heads_first(module.query(hidden), heads), "k": heads_first(module.key(hidden), heads),
            "scores": scores[0]}


@torch.no_grad()
def transformer_xl(tokens, past, heads=2, clamp=0):
    width = heads * HEAD_DIM
    module = randomize(modeling_transfo_xl.RelPartialLearnableMultiHeadAttn(heads, width, HEAD_DIM, dropout=0))
    hidden = random_weights(past + tokens, BATCH, width)
    distances = torch.arange(past + tokens - 1, -1, -1.0)  # as in TransfoXLModel.forward
    encoding = modeling_transfo_xl.PositionalEmbedding(width)(distances.clamp(max=clamp) if clamp else distances)
    hidden_keys = torch.triu(torch.ones(tokens, past + tokens), diagonal=past + 1)[..., None]
    with softmax_arguments() as scores:
        module(hidden[past:], encoding, attn_mask=hidden_keys, mems=hidden[:past])
    q, k, _ = (heads_first(x.transpose(0, 1), heads) for x in module.qkv_net(hidden).chunk(3, dim=-1))
    method = {"position": projection(module.r_net), "position_bias": module.r_r_bias, "content_bias": module.r_w_bias}
    if clamp:
        method["clamp_len"] = clamp
    config = configuration_transfo_xl.TransfoXLConfig(d_model=width, n_head=heads, d_head=HEAD_DIM,
                                                      clamp_len=clamp or -1)
    return {"model": "transfo-xl", "config": config_json(config), "method": {"transformer_xl": method}, "mask": CAUSAL,
            "past": past, "q": q[:, :, past:], "k": k, "scores": scores[0].permute(2, 3, 0, 1)}


@torch.no_grad()
def nezha(tokens, farthest, heads=2):
    config = configuration_nezha.NezhaConfig(hidden_size=heads * HEAD_DIM, num_attention_heads=heads,
                                             max_position_embeddings=2 * tokens, max_relative_position=farthest)
    module = randomize(modeling_nezha.NezhaSelfAttention(config))
    hidden = random_weights(BATCH, tokens, heads * HEAD_DIM)
    with softmax_arguments() as scores:
        module(hidden)
    rows = module.relative_positions_encoding.positions_encoding  # [query][key][channel], of all distances
    table = torch.stack([rows[max(-n, 0), max(n, 0)] for n in range(-farthest, farthest + 1)])
    method = {"table": table, "order": "SHAW_ORDER_KEY_MINUS_QUERY", "clip": True}
    return {"model": "nezha", "config": config_json(config), "method": {"shaw": method}, "past": 0,
            "q": heads_first(module.query(hidden), heads), "k": heads_first(module.key(hidden), heads),
            "scores": scores[0]}


if __name__ == "__main__":
    main()

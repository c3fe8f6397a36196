"""DeBERTa, XLNet, SpeechT5 and the conformers of wav2vec2 of transformers 5 as records of relative_scores.py."""

import torch
from transformers import AutoConfig
from transformers.models.deberta import modeling_deberta
from transformers.models.deberta_v2 import modeling_deberta_v2
from transformers.models.speecht5 import modeling_speecht5
from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert
from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer
from transformers.models.xlnet import modeling_xlnet

from relative_scores import (
    INPUT_BY_OUTPUT, config_json, heads_first, projection, random_weights, randomize, softmax_arguments)

BATCH, HEAD_DIM = 2, 8
BOTH = ("c2p", "p2c")


@torch.no_grad()
def deberta(tokens, span, heads=2, kind=BOTH):
    width = heads * HEAD_DIM
    config = AutoConfig.for_model("deberta", hidden_size=width, num_attention_heads=heads, relative_attention=True,
                                  max_relative_positions=span, pos_att_type=list(kind))
    module = randomize(modeling_deberta.DisentangledSelfAttention(config))
    hidden, table = random_weights(BATCH, tokens, width), random_weights(2 * span, width)
    with softmax_arguments() as scores:
        module(hidden, torch.ones(BATCH, 1, tokens, tokens), rel_embeddings=table,
               relative_pos=modeling_deberta.build_relative_position(hidden, hidden))
    q, k, _ = module.transpose_for_scores(module.in_proj(hidden)).chunk(3, dim=-1)
    q = q + module.transpose_for_scores(module.q_bias[None, None])
    method = {"relative_embeddings": table, "max_relative_positions": span, "distance": "DEBERTA_DISTANCE_UNBOUNDED"}
    if "c2p" in kind:
        method["key"] = projection(module.pos_proj)
    if "p2c" in kind:
        method["query"] = projection(module.pos_q_proj)
    return {"model": "deberta", "config": config_json(config), "method": {"deberta": method}, "past": 0, "q": q, "k": k,
            "scores": scores[0]}


@torch.no_grad()
def deberta_v2(tokens, buckets, largest, share, heads=2, kind=BOTH, norm=True, model="deberta-v2",
               encoder_class=modeling_deberta_v2.DebertaV2Encoder):
    width = heads * HEAD_DIM
    config = AutoConfig.for_model(
        model, hidden_size=width, num_attention_heads=heads, num_hidden_layers=1, intermediate_size=width,
        relative_attention=True, position_buckets=buckets or -1, max_relative_positions=largest, share_att_key=share,
        norm_rel_ebd="layer_norm" if norm else "none", pos_att_type=list(kind), layer_norm_eps=1e-7)
    encoder = randomize(encoder_class(config))
    module, hidden = encoder.layer[0].attention.self, random_weights(BATCH, tokens, width)
    with softmax_arguments() as scores:
        module(hidden, torch.ones(BATCH, 1, tokens, tokens), relative_pos=encoder.get_rel_pos(hidden),
               rel_embeddings=encoder.get_rel_embedding())
    method = {"relative_embeddings": encoder.rel_embeddings.weight, "max_relative_positions": largest,
              "distance": "DEBERTA_DISTANCE_UNBOUNDED"}
    if buckets:
        method["position_buckets"] = buckets
    if norm:
        method["layer_norm"] = {"weight": encoder.LayerNorm.weight, "bias": encoder.LayerNorm.bias, "epsilon": 1e-7}
    if "c2p" in kind:
        method["key"] = projection(module.key_proj if share else module.pos_key_proj)
    if "p2c" in kind:
        method["query"] = projection(module.query_proj if share else module.pos_query_proj)
    return {"model": model.replace("-", "_"), "config": config_json(config), "method": {"deberta": method}, "past": 0,
            "q": heads_first(module.query_proj(hidden), heads), "k": heads_first(module.key_proj(hidden), heads),
            "scores": scores[0]}


@torch.no_grad()
def xlnet(tokens, past, heads=2, clamp=0):
    width = heads * HEAD_DIM
    config = AutoConfig.for_model("xlnet", d_model=width, n_head=heads, n_layer=1, d_inner=width, vocab_size=2,
                                  clamp_len=clamp or -1)
    model = randomize(modeling_xlnet.XLNetModel(config))
    module, hidden = model.layer[0].rel_attn, random_weights(past + tokens, BATCH, width)
    memory, fresh = hidden[:past], hidden[past:]
    with softmax_arguments() as scores:
        module(fresh, None, None, None, model.relative_positional_encoding(tokens, past + tokens, bsz=BATCH), None,
               mems=memory)
    method = {"position": {"weight": module.r.flatten(1), "layout": INPUT_BY_OUTPUT},
              "position_bias": module.r_r_bias, "content_bias": module.r_w_bias}
    if clamp:
        method["clamp_len"] = clamp
    q, k = (torch.einsum("sbw,whd->bhsd", x, weight) for x, weight in ((fresh, module.q), (hidden, module.k)))
    return {"model": "xlnet", "config": config_json(config), "method": {"transformer_xl": method}, "past": past,
            "q": q, "k": k, "scores": scores[0]}


@torch.no_grad()
def wav2vec2_bert(tokens, left, right, heads=2, model="wav2vec2-bert", heads_field="num_attention_heads",
                  attention=modeling_wav2vec2_bert.Wav2Vec2BertSelfAttention):
    width = heads * HEAD_DIM
    config = AutoConfig.for_model(
        model, hidden_size=width, **{heads_field: heads}, position_embeddings_type="relative_key",
        left_max_position_embeddings=left, right_max_position_embeddings=right)
    config._attn_implementation = "eager"
    module, hidden = randomize(attention(config)), random_weights(BATCH, tokens, width)
    with softmax_arguments() as scores:
        module(hidden)
    method = {"table": module.distance_embedding.weight, "order": "SHAW_ORDER_KEY_MINUS_QUERY", "clip": True,
              "before": left}
    return {"model": model.replace("-", "_"), "config": config_json(config), "method": {"shaw": method}, "past": 0,
            "q": heads_first(module.linear_q(hidden), heads), "k": heads_first(module.linear_k(hidden), heads),
            "scores": scores[0]}


@torch.no_grad()
def wav2vec2_conformer(tokens, heads=2, model="wav2vec2-conformer", heads_field="num_attention_heads",
                       attention=modeling_wav2vec2_conformer.Wav2Vec2ConformerSelfAttention,
                       positions=modeling_wav2vec2_conformer.Wav2Vec2ConformerRelPositionalEmbedding):
    width = heads * HEAD_DIM
    config = AutoConfig.for_model(model, hidden_size=width, **{heads_field: heads}, position_embeddings_type="relative",
                                  max_source_positions=2 * tokens)
    config._attn_implementation = "eager"
    module = randomize(attention(config))
    hidden = random_weights(BATCH, tokens, width)
    encoding = positions(config)(hidden)
    with softmax_arguments() as scores:
        module(hidden, relative_position_embeddings=encoding)
    method = {"position": projection(module.linear_pos), "position_bias": module.pos_bias_v,
              "content_bias": module.pos_bias_u, "encoding": "TRANSFORMER_XL_ENCODING_INTERLEAVED"}
    return {"model": model.replace("-", "_"), "config": config_json(config), "method": {"transformer_xl": method},
            "past": 0, "q": heads_first(module.linear_q(hidden), heads),
            "k": heads_first(module.linear_k(hidden), heads), "scores": scores[0]}


@torch.no_grad()
def speecht5(tokens, length, heads=2):
    width = heads * HEAD_DIM
    config = AutoConfig.for_model("speecht5", hidden_size=width, encoder_attention_heads=heads,
                                  encoder_max_relative_position=length)
    module = randomize(modeling_speecht5.SpeechT5Attention(embed_dim=width, num_heads=heads))
    table = randomize(modeling_speecht5.SpeechT5RelativePositionalEncoding(HEAD_DIM, length))
    hidden = random_weights(BATCH, tokens, width)
    with softmax_arguments() as scores:
        module(hidden, position_bias=table(hidden))
    method = {"table": table.pe_k.weight, "order": "SHAW_ORDER_QUERY_MINUS_KEY", "clip": True, "before": length}
    return {"model": "speecht5", "config": config_json(config), "method": {"shaw": method}, "past": 0,
            "q": heads_first(module.q_proj(hidden), heads), "k": heads_first(module.k_proj(hidden), heads),
            "scores": scores[0].unflatten(0, (BATCH, heads))}

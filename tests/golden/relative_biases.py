"""Biases of T5, Swin v1, Swin v2 and BEiT, from tables and weights that are recorded with them."""

import json

import torch
from transformers import AutoConfig
from transformers.models.beit import modeling_beit
from transformers.models.swin import modeling_swin
from transformers.models.swinv2 import modeling_swinv2
from transformers.models.t5 import modeling_t5
from transformers.models.umt5 import modeling_umt5

from golden_json import numbers, origin

HEADS = 3
# buckets, largest distance, bidirectional
T5_SETTINGS = (
    (32, 128, True), (32, 128, False), (64, 256, True), (64, 256, False), (34, 27, True), (6, 20, True), (5, 9, False),
    (4, 8, True), (2, 3, False), (320, 800, True),
)
T5_LARGEST = 1000
WINDOWS = ((2, 2), (3, 3), (2, 4), (4, 2))

NOTE = (
    "t5: buckets of the distances key - query = -largest .. largest, of T5's and of UMT5's function. t5_bias: compute_bias"
    " of a T5 attention, [heads][queries][keys], queries standing after `past` keys; table [buckets][heads]. swin and"
    " beit: index, and the module's bias [heads][tokens][tokens] from its table [rows][heads]. beit on rectangular"
    " windows takes the table's height for its width and resizes it by bilinear interpolation. swin_v2: the coordinate"
    " table, [2Wh-1][2Ww-1][2], and 16 sigmoid of the network's output, gathered, [heads][tokens][tokens], float32;"
    " pretrained_window 0 means none; swin_v2_stage: the same of a model's stages."
    " Tables and weights are random, multiples of 2^-10."
)


def random_weights(*shape):
    """Returns random multiples of 2^-10, which are short and exact in float32."""
    return torch.round(torch.randn(*shape) * 1024) / 1024


def relative_biases_file():
    torch.manual_seed(20250117)
    return {
        "origin": origin(NOTE),
        "t5": [t5_buckets(*setting) for setting in T5_SETTINGS],
        "t5_bias": [t5_bias(encoder, past) for encoder, past in ((True, 0), (False, 0), (False, 4))],
        "swin": [swin_record(window) for window in WINDOWS],
        "beit": [beit_record(window) for window in WINDOWS],
        "swin_v2": [swin_v2_record(window, pretrained) for window, pretrained in
                    (((2, 2), (0, 0)), ((4, 4), (0, 0)), ((3, 3), (6, 6)), ((2, 4), (0, 0)))],
        "swin_v2_stage": swin_v2_stages(),
    }


def t5_buckets(buckets, distance, bidirectional):
    relative = torch.arange(-T5_LARGEST, T5_LARGEST + 1)
    ours = modeling_t5.T5Attention._relative_position_bucket(relative, bidirectional, buckets, distance)
    umt5 = AutoConfig.for_model("umt5", relative_attention_num_buckets=buckets,
                                relative_attention_max_distance=distance, d_model=12, num_heads=HEADS, d_kv=4)
    umt5.is_decoder = not bidirectional
    theirs = modeling_umt5.UMT5Attention(umt5, layer_idx=0)._relative_position_bucket(relative)
    assert torch.equal(ours, theirs)
    return {"num_buckets": buckets, "max_distance": distance, "bidirectional": bidirectional, "largest": T5_LARGEST,
            "buckets": ours.tolist()}


def t5_bias(encoder, past):
    config = AutoConfig.for_model("t5", d_model=12, num_heads=HEADS, d_kv=4)
    config.is_decoder = not encoder
    attention = modeling_t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    attention.relative_attention_bias.weight.data = random_weights(32, HEADS)
    bias = attention.compute_bias(6, 6 + past, past_seen_tokens=past)
    return {"component": "encoder" if encoder else "decoder", "past": past,
            "config": json.loads(config.to_json_string(use_diff=True)),
            "table": numbers(attention.relative_attention_bias.weight), "bias": numbers(bias[0])}


def swin_record(window):
    module = modeling_swin.SwinRelativePositionBias(HEADS, window)
    module.relative_position_bias_table.data = random_weights(*module.relative_position_bias_table.shape)
    index = module.relative_position_index.view(module.window_area, module.window_area)
    return {"window": list(window), "index": index.tolist(), "table": numbers(module.relative_position_bias_table),
            "bias": numbers(module()[0])}


def beit_record(window):
    config = AutoConfig.for_model("beit", image_size=[16 * window[0], 16 * window[1]], patch_size=16,
                                  hidden_size=HEADS * 4, num_attention_heads=HEADS)
    module = modeling_beit.BeitRelativePositionBias(config)
    module.relative_position_bias_table.data = random_weights(*module.relative_position_bias_table.shape)
    return {"window": list(window), "index": module.generate_relative_position_index(window).tolist(),
            "table": numbers(module.relative_position_bias_table), "bias": numbers(module(window)[0])}


def swin_v2_record(window, pretrained):
    config = AutoConfig.for_model("swinv2")
    module = modeling_swinv2.Swinv2SelfAttention(config, dim=HEADS * 4, num_heads=HEADS, window_size=window,
                                                 pretrained_window_size=pretrained)
    return {"window": list(window), "pretrained_window": list(pretrained),
            "coordinates": numbers(module.relative_coords_table[0])} | swin_v2_network(module)


def swin_v2_network(module):
    """Makes the network's weights random and returns them with its bias."""
    first, _, second = module.continuous_position_bias_mlp
    for weight in (first.weight, first.bias, second.weight):
        weight.data = random_weights(*weight.shape)
    second.weight.data /= 16  # prevents saturation of the sigmoid
    tokens = module.window_size[0] * module.window_size[1]
    table = module.continuous_position_bias_mlp(module.relative_coords_table).view(-1, module.num_attention_heads)
    bias = table[module.relative_position_index.view(-1)].view(tokens, tokens, -1).permute(2, 0, 1)
    return {"hidden_weight": numbers(first.weight), "hidden_bias": numbers(first.bias),
            "output_weight": numbers(second.weight), "bias": numbers(16 * torch.sigmoid(bias))}


def swin_v2_stages():
    """The first layer of each stage of a model; the last stage is smaller than the window."""
    config = AutoConfig.for_model("swinv2", image_size=16, patch_size=2, embed_dim=8, depths=[1, 2, 1],
                                  num_heads=[1, 2, 4], window_size=4, pretrained_window_sizes=[6, 0, 3])
    text = {name: value for name, value in json.loads(config.to_json_string(use_diff=True)).items() if name in (
        "model_type", "image_size", "patch_size", "depths", "num_heads", "window_size", "pretrained_window_sizes")}
    model = modeling_swinv2.Swinv2Model(config)
    return [{"config": text, "layer_type": f"stage{n + 1}"} | swin_v2_network(stage.blocks[0].attention.self)
            for n, stage in enumerate(model.encoder.layers)]

"""Tables of rotary modules whose positions have several axes, and of proportional RoPE."""

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.ernie4_5_vl_moe.configuration_ernie4_5_vl_moe import Ernie4_5_VLMoeTextConfig
from transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe import Ernie4_5_VLMoeTextRotaryEmbedding
from transformers.models.pixtral.configuration_pixtral import PixtralVisionConfig
from transformers.models.pixtral.modeling_pixtral import PixtralVisionRotaryEmbedding
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig, Qwen2VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding, Qwen2VLVisionRotaryEmbedding
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

from golden_json import numbers, origin

NOTE = (
    "settings are the same in posenc's own terms, as JSON of its API. positions is [axes][tokens]; cos and sin are"
    " [tokens][head_dim], as the module returns them, in the table form named. Proportional: cos and sin of float32"
    " positions times the function's inverse frequencies."
)

T_H_W = [[0, 1, 2, 5, 5, 9, 31], [0, 1, 2, 7, 8, 9, 40], [0, 1, 2, 17, 3, 9, 60]]


def several_axes_file():
    return {"origin": origin(NOTE), "records": [
        mrope("Qwen2-VL", Qwen2VLRotaryEmbedding,
              Qwen2VLTextConfig(hidden_size=32, num_attention_heads=1, rope_parameters=
              {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}), "CONTIGUOUS", "DUPLICATED"),
        mrope("Qwen3-VL", Qwen3VLTextRotaryEmbedding, Qwen3VLTextConfig(head_dim=32, rope_parameters=
              {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [6, 5, 5]}), "INTERLEAVED", "DUPLICATED"),
        mrope("ERNIE 4.5 VL", Ernie4_5_VLMoeTextRotaryEmbedding,
              Ernie4_5_VLMoeTextConfig(hidden_size=32, num_attention_heads=1, rope_parameters=
              {"rope_type": "default", "rope_theta": 5e5, "mrope_section": [6, 6, 4]}), "ERNIE", "REPEAT_INTERLEAVED"),
        vision("Pixtral", PixtralVisionRotaryEmbedding, PixtralVisionConfig(hidden_size=32, num_attention_heads=1,
               rope_parameters={"rope_type": "axial", "rope_theta": 1e4}),
               [{"dim": 16}, {"dim": 16, "frequency_start": 0.5}]),
        vision("Qwen2-VL's vision part", Qwen2VLVisionRotaryEmbedding, Qwen2VLVisionConfig(embed_dim=32, num_heads=1,
               rope_parameters={"rope_type": "axial", "rope_theta": 1e4}), [{"dim": 16}, {"dim": 16}]),
        proportional(),
    ]}


def mrope(name, module, config, order, form):
    positions = torch.tensor(T_H_W)
    cos, sin = module(config)(torch.zeros(1), positions[:, None])
    parameters = config.rope_parameters
    settings = {"rope_parameters": {key: parameters[key] for key in ("rope_type", "rope_theta", "mrope_section")}
                | {"mrope_order": f"MROPE_ORDER_{order}"}, "rotary_dim": 32}
    return record(name, settings, T_H_W, form, cos[0], sin[0])


def vision(name, module, config, axes):
    positions = T_H_W[1:]
    cos, sin = module(config)(torch.zeros(1), torch.tensor(positions)[None])
    return record(name, {"axial": {"axes": axes}}, positions, "DUPLICATED", cos[0], sin[0])


def proportional():
    parameters = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.3, "factor": 2.0}
    config = LlamaConfig(hidden_size=32, head_dim=32, num_attention_heads=1, rope_parameters=parameters)
    inv_freq, _ = ROPE_INIT_FUNCTIONS["proportional"](config)
    angles = torch.tensor(T_H_W[2]).float()[:, None] * inv_freq
    return record("proportional", {"rope_parameters": parameters, "head_dim": 32}, T_H_W[2:], "HALF_WIDTH",
                  angles.cos(), angles.sin())


def record(name, settings, positions, form, cos, sin):
    return {"name": name, "settings": settings, "positions": positions, "form": f"TABLE_FORM_{form}",
            "cos": numbers(cos), "sin": numbers(sin)}

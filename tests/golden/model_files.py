"""Queries rotated by models whose config.json has several parts, axes or layer types, and by diffusers' models."""

import copy
import pathlib
import sys

import torch
from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed
from diffusers.models.transformers.transformer_cosmos import CosmosRotaryPosEmbed
from diffusers.models.transformers.transformer_flux import FluxPosEmbed
from diffusers.models.transformers.transformer_flux2 import Flux2PosEmbed
from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed
from transformers import AutoConfig

from golden_json import numbers, origin

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
import original  # noqa: E402
import release  # noqa: E402

NOTE = (
    "config is the file, with what a position encoding reads; component and layer_type say which part of it. positions"
    " is [axes][tokens]. q[t][e] = ((37 t + 11 e) % 64 - 32) / 16, of one head; q_out [tokens][width] is what the model's"
    " own function makes of it in float32, with tables of its own module."
)

T_H_W = [[0, 2, 9, 31], [0, 7, 8, 40], [0, 3, 9, 60]]
TEXT = {"num_hidden_layers": 12}
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": 4096}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
STEP_3_5 = {"model_type": "step3p5", "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"],
            "rope_theta": [5000000.0, 10000.0], "partial_rotary_factors": [0.5, 1.0],
            "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 131072,
                             "low_freq_factor": 1.0, "high_freq_factor": 32.0}}
DOTS_3 = {"model_type": "dots3_note_text", "num_hidden_layers": 4, "rope_scaling": YARN}
FILES = [
    # name, component, layer_type, config.json
    ("Qwen2-VL-7B", "text", "", {"model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28,
     "rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
     "vision_config": {"depth": 32, "embed_dim": 1280, "num_heads": 16, "hidden_size": 3584}}),
    ("Qwen2-VL-7B", "vision", "", {"model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28,
     "vision_config": {"depth": 32, "embed_dim": 1280, "num_heads": 16, "hidden_size": 3584}}),
    ("Qwen3-VL-8B", "text", "", {"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text", "head_dim": 128,
     "rope_theta": 5e6, "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20],
     "rope_type": "default"}}, "vision_config": {"model_type": "qwen3_vl", "hidden_size": 1152, "num_heads": 16}}),
    ("GLM-4.1V-9B", "text", "", {"model_type": "glm4v", "text_config": {"model_type": "glm4v_text", "hidden_size": 4096,
     "num_attention_heads": 32, "partial_rotary_factor": 0.5, "rope_theta": 1e4,
     "rope_scaling": {"type": "default", "mrope_section": [8, 12, 12]}}}),
    ("ERNIE-4.5-VL-28B", "text", "", {"model_type": "ernie4_5_vl_moe", "text_config": {"model_type":
     "ernie4_5_vl_moe_text", "hidden_size": 2560, "num_attention_heads": 20, "rope_theta": 5e5,
     "rope_scaling": {"type": "default", "mrope_section": [22, 22, 20]}}}),
    ("Mistral Small 3.1", "vision", "", {"model_type": "mistral3", "text_config": {"model_type": "mistral", "head_dim": 128,
     "rope_theta": 1e9}, "vision_config": {"model_type": "pixtral", "hidden_size": 1024, "num_attention_heads": 16,
     "head_dim": 64, "rope_theta": 1e4}}),
    ("Gemma 4", "text", "sliding_attention", {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"} | TEXT}),
    ("Gemma 4", "text", "full_attention", {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"} | TEXT}),
    ("ModernBERT", "", "sliding_attention", {"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12,
     "global_rope_theta": 160000.0, "local_rope_theta": 1e4} | TEXT),
    ("ModernBERT", "", "full_attention", {"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12,
     "global_rope_theta": 160000.0, "local_rope_theta": 1e4} | TEXT),
    ("Llama 4 Scout", "text", "rope", {"model_type": "llama4", "text_config": {"model_type": "llama4_text", "head_dim": 128,
     "hidden_size": 5120, "num_attention_heads": 40, "rope_theta": 5e5, "max_position_embeddings": 10485760,
     "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
     "original_max_position_embeddings": 8192}} | TEXT}),
    ("nanochat", "", "", {"model_type": "nanochat", "hidden_size": 768, "num_attention_heads": 6}),
    ("Helium", "", "", {"model_type": "helium", "head_dim": 128, "rope_theta": 1e5}),
    ("DINOv3", "", "", {"model_type": "dinov3_vit", "hidden_size": 384, "num_attention_heads": 6, "patch_size": 16,
     "image_size": 224, "rope_theta": 100.0}),
    # Files whose reading scripts/conformance mutations corrected.
    ("MiniMax-M2, rotary_dim", "", "", {"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 64, "rope_theta": 5e6}),
    ("Phi-3.5-MoE, short factors", "", "", {"model_type": "phimoe", "hidden_size": 64, "num_attention_heads": 4,
     "max_position_embeddings": 128, "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 32,
     "short_mscale": 1.25, "long_mscale": 1.25, "short_factor": [1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5],
     "long_factor": [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]}}),
    ("Llama, truncate null", "", "", LLAMA | {"rope_scaling": YARN | {"truncate": None}}),
    ("Llama, yarn below 1", "", "", LLAMA | {"rope_scaling": YARN | {"factor": 0.5}}),
    ("Llama, llama3 below 1", "", "", LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 0.5, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    ("DeepSeek-V3, proportional", "", "", {"model_type": "deepseek_v3", "rope_parameters": {"rope_type": "proportional",
     "rope_theta": 20000.0, "partial_rotary_factor": 0.5}}),
    ("Gemma 3, type", "", "full_attention", {"model_type": "gemma3_text", "rope_scaling": {"type": "linear", "factor": 8.0}}
     | TEXT),
    ("Apertus, empty rope_scaling", "", "", {"model_type": "apertus", "hidden_size": 4096, "num_attention_heads": 32,
     "rope_scaling": {}}),
    ("Cosmos3 Edge, rope_theta", "", "", {"model_type": "cosmos3_edge_text", "rope_theta": 500.0}),
    ("Step-3.5, lists", "", "full_attention", STEP_3_5),
    ("Step-3.5, lists", "", "sliding_attention", STEP_3_5),
    ("Dots3 Note, single block", "", "sliding_attention", DOTS_3),
    ("Dots3 Note, single block", "", "indexed_attention", DOTS_3),
    ("LFM3, block without theta", "", "sliding_attention", {"model_type": "lfm3", "num_hidden_layers": 8, "rope_parameters":
     {"sliding_attention": {"rope_type": "default"}, "full_attention": {"rope_type": "default", "rope_theta": 7000.0}}}),
    ("ESM, block", "", "", {"model_type": "esm", "vocab_size": 32, "mask_token_id": 3, "hidden_size": 64,
     "num_attention_heads": 2, "position_embedding_type": "rotary", "rope_theta": 500.0,
     "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    ("Cohere2 MoE, rope_scaling", "", "sliding_attention", {"model_type": "cohere2_moe", "num_hidden_layers": 8,
     "rope_scaling": {"rope_type": "linear", "rope_theta": 20000.0, "factor": 4.0}}),
    ("Zamba2, head of twice the width", "", "hybrid", {"model_type": "zamba2", "hidden_size": 64, "num_attention_heads": 2,
     "num_hidden_layers": 54, "use_mem_rope": True}),
    ("JetMoE, head_dim", "", "", {"model_type": "jetmoe", "head_dim": 64}),
    ("Moonshine, heads of the decoder", "", "", {"model_type": "moonshine", "hidden_size": 64,
     "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 2}),
    ("Nemotron 3.5 Transcribe, whole head", "", "", {"model_type": "nemotron3_5_transcribe_word_timestamp",
     "hidden_size": 1280, "num_attention_heads": 16, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
]


def model_files_file():
    return {"origin": origin(NOTE), "records": [turned_by_transformers(*file) for file in FILES] + diffusers_records()}


def query(tokens, width):
    t, e = torch.meshgrid(torch.arange(tokens), torch.arange(width), indexing="ij")
    return (((37 * t + 11 * e) % 64 - 32) / 16)[None, None]


def record(name, config, component, layer_type, positions, q_out):
    return {"name": name, "config": config, "component": component, "layer_type": layer_type, "positions": positions,
            "q_out": numbers(q_out)}


def turned_by_transformers(name, component, layer_type, config):
    part = AutoConfig.for_model(**copy.deepcopy(config))  # for_model changes its argument
    if component:
        part = getattr(part, f"{component}_config")
    nested = any(isinstance(block, dict) for block in (getattr(part, "rope_parameters", None) or {}).values())
    model = original.Original(release.rotary_of(type(part))[0], part, layer_type if nested else None)
    positions = model.fixed_positions() or T_H_W[:model.axes]
    tables = model.tables(positions, torch.float32)
    width = 2 * tables.shape[-1] if torch.is_tensor(tables) else tables[0].shape[-1]
    x = query(len(positions[0]), width)
    return record(name, config, component, layer_type, positions, model.rotate(x, positions)[0, 0])


def diffusers_records():
    ids = torch.tensor(T_H_W).T
    four = torch.tensor([*T_H_W, T_H_W[0]]).T
    grid = [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1]]
    latents = torch.zeros(1, 1, 2, 4, 4)  # patches of 1 x 2 x 2
    cog = [get_1d_rotary_pos_embed(dim, torch.tensor(axis).float(), theta=10000, use_real=True)
           for dim, axis in zip((16, 24, 24), T_H_W)]
    hunyuan = [get_1d_rotary_pos_embed(dim, torch.tensor(axis).float(), theta=256.0, use_real=True)
               for dim, axis in zip((16, 56, 56), T_H_W)]
    wan = [table.reshape(8, 128) for table in WanRotaryPosEmbed(128, (1, 2, 2), 1024)(latents)]
    cases = [
        ("FLUX.1", {"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 56, 56]}, T_H_W,
         FluxPosEmbed(10000, [16, 56, 56])(ids), -1),
        ("FLUX.2", {"_class_name": "Flux2Transformer2DModel", "axes_dims_rope": [32, 32, 32, 32], "rope_theta": 2000},
         [*T_H_W, T_H_W[0]], Flux2PosEmbed(2000, [32, 32, 32, 32])(four), -1),
        ("Wan 2.1", {"_class_name": "WanTransformer3DModel", "attention_head_dim": 128}, grid, wan, -1),
        ("HunyuanVideo", {"_class_name": "HunyuanVideoTransformer3DModel", "rope_axes_dim": [16, 56, 56],
         "rope_theta": 256.0}, T_H_W, [torch.cat(tables, 1) for tables in zip(*hunyuan)], -1),
        ("CogVideoX", {"_class_name": "CogVideoXTransformer3DModel", "attention_head_dim": 64,
         "use_rotary_positional_embeddings": True}, T_H_W, [torch.cat(tables, 1) for tables in zip(*cog)], -1),
        ("Cosmos", {"_class_name": "CosmosTransformer3DModel", "attention_head_dim": 128, "rope_scale": [2.0, 1.0, 1.0]},
         grid, CosmosRotaryPosEmbed(128)(latents), -2),
    ]
    return [record(name, config, "", "", positions, apply_rotary_emb(
        query(len(positions[0]), tables[0].shape[-1]), tables, use_real_unbind_dim=unbind)[0, 0])
            for name, config, positions, tables, unbind in cases]

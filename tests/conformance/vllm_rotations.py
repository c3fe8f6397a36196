"""Rotates queries with the attention modules of vLLM's model classes. check_remote.py runs this in a process of its own,
because vLLM changes classes of transformers. Usage: vllm_rotations.py IN OUT

IN has a list of cases as JSON: name, config (a config.json), layer, positions [axes][tokens]. OUT gets the queries before
and after, NAME.before and NAME.after [1, heads, tokens, width], as safetensors; NAME.error instead if the class failed."""

import contextlib
import importlib
import json
import os
import sys
import types
from unittest import mock

os.environ |= {"VLLM_LOGGING_LEVEL": "CRITICAL", "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1"}

import torch
import transformers
from safetensors.torch import save_file
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.transformers_utils.config import patch_rope_parameters
from vllm.transformers_utils.configs import mistral
from vllm.transformers_utils.configs.step3_vl import Step3TextConfig
from vllm.transformers_utils.configs.step3p5 import Step3p5Config

HEADS = 2


class Passing(torch.nn.Module):
    """Stands for a projection, a norm or the attention itself: keeps its first input and returns it."""

    def __init__(self, *_, **__):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, *_, **__):
        self.seen = x
        return x

    forward_native = forward


class Projection(Passing):
    def forward(self, x, *_, **__):
        return x, None


STUBS = dict.fromkeys(("QKVParallelLinear", "RowParallelLinear", "ColumnParallelLinear", "ReplicatedLinear",
                       "MergedColumnParallelLinear"), Projection)
STUBS |= dict.fromkeys(("Attention", "EncoderOnlyAttention", "RMSNorm", "GemmaRMSNorm",
                        "MultiHeadLatentAttentionWrapper"), Passing)
STUBS |= {"get_tensor_model_parallel_world_size": lambda: 1, "get_tensor_model_parallel_rank": lambda: 0,
          "MLAModules": lambda **_: None, "set_weight_attrs": lambda *_, **__: None}


@contextlib.contextmanager
def source(name):
    """Gives a model file of vLLM whose classes have no weights."""
    with contextlib.ExitStack() as stack:
        for module in {name, "llama", "deepseek_v2"}:
            module = importlib.import_module(f"vllm.model_executor.models.{module}")
            for stub, value in STUBS.items():
                if hasattr(module, stub):
                    stack.enter_context(mock.patch.object(module, stub, value))
        yield importlib.import_module(f"vllm.model_executor.models.{name}")


class Config(transformers.PretrainedConfig):
    """Stands for the configuration class that comes with a model: it sets all fields of the file."""

    def __init__(self, **fields):
        self.rope_parameters = None
        for name, value in fields.items():
            if name not in ("rope_scaling", "model_type"):
                setattr(self, name, value)
        super().__init__(**fields)


def read(fields, class_=Config, **defaults):
    """Reads a config.json as vLLM does. `defaults` are what the model's own configuration class has for absent fields."""
    config = class_(**json.loads(json.dumps({"rms_norm_eps": 1e-6} | defaults | fields)))
    patch_rope_parameters(config)
    return config


def like_llama(file, attention, **more):
    """A maker for attention classes with hidden_size, num_heads, num_kv_heads and the file's rope_parameters."""
    def make(fields, _, __):
        config = read(fields, rope_theta=10000.0, max_position_embeddings=2048)
        with source(file) as module:
            made = getattr(module, attention)(
                hidden_size=config.hidden_size, num_heads=HEADS, num_kv_heads=HEADS, rope_parameters=config.rope_parameters,
                max_position_embeddings=config.max_position_embeddings, prefix="model.layers.0.self_attn", **more)
        return made.rotary_emb, made.head_dim
    return make


def chatglm(fields, *_):
    from vllm.transformers_utils.configs.chatglm import ChatGLMConfig
    with source("chatglm") as module:
        made = module.GLMAttention(ChatGLMConfig(**fields))
    return made.rotary_emb, made.head_dim


def exaone(fields, *_):
    config = read(fields)
    with source("exaone") as module:
        made = module.ExaoneAttention(config, config.hidden_size, HEADS, HEADS, config.max_position_embeddings)
    return made.rotary_emb, made.head_dim


def llama(fields, *_):
    config = read(fields)
    with source("llama") as module:
        made = module.LlamaAttention(config, config.hidden_size, HEADS, HEADS, config.max_position_embeddings,
                                     prefix="model.layers.0.self_attn")
    return made.rotary_emb, made.head_dim


def telechat2(fields, *_):
    """TeleChat2's layers are Llama's, with other names of the fields."""
    return llama({"rope_theta": 10000.0, "num_attention_heads": fields["n_head"], "max_position_embeddings": 8192} | fields)


def minicpm3(fields, *_):
    config = read(fields)
    with source("minicpm3") as module:
        made = module.MiniCPM3Attention(
            config, config.hidden_size, HEADS, config.qk_nope_head_dim, config.qk_rope_head_dim, 64, 768, 256,
            config.max_position_embeddings)
    return made.rotary_emb, config.qk_rope_head_dim


def plamo3(fields, settings, layer):
    """The class that comes with the model computes layer_types and rope_parameters from its own fields."""
    full = [(n + 1) % fields["sliding_window_pattern"] == 0 for n in range(fields["num_hidden_layers"])]
    blocks = {"sliding_attention": {"rope_type": "default", "rope_theta": fields["rope_local_theta"]},
              "full_attention": {"rope_type": "default", "rope_theta": fields["rope_theta"]}}
    if fields.get("rope_scaling_factor", 1) != 1:
        blocks["full_attention"] |= {"rope_type": "yarn", "factor": fields["rope_scaling_factor"], "truncate": False,
                                     "original_max_position_embeddings": fields["initial_context_length"]}
    windows = [None if is_full else fields["window_size"] for is_full in full]
    config = types.SimpleNamespace(**{"rms_norm_eps": 1e-6} | fields | {
        "layer_types": ["full_attention" if is_full else "sliding_attention" for is_full in full],
        "rope_parameters": blocks, "interleaved_sliding_window": windows})
    settings.model_config.hf_config = config
    with source("plamo3") as module:
        made = module.Plamo3AttentionMixer(vllm_config=settings, prefix=f"model.layers.{layer}.mixer")
    return made.rotary_emb, made.head_dim


def step3(fields, *_):
    config = read(fields["text_config"], Step3TextConfig)
    with source("step3_text") as module:
        made = module.Step3TextAttention(
            config.hidden_size, HEADS, 1, 1e-5, config.rope_parameters, config.share_q_dim, config.max_position_embedding,
            config.head_dim)
    return made.rotary_emb, made.head_dim


def step3p5(fields, _, layer):
    config = Step3p5Config(**fields)
    share = fields.get("partial_rotary_factors", [1.0] * config.num_hidden_layers)[layer]
    with source("step3p5") as module:
        made = module.Step3p5Attention(
            config.hidden_size, HEADS, HEADS, config.max_position_embeddings, config.head_dim, rope_theta=config.rope_theta,
            rope_scaling=config.rope_scaling, prefix=f"model.layers.{layer}.self_attn", layer_types=config.layer_types,
            yarn_only_types=config.yarn_only_types, partial_rotary_factor=share)
    return made.rotary_emb, made.head_dim


def deepseek(fields, settings, _):
    """DeepSeek's layers, which Kimi-VL and DeepSeek-VL2 have: with latent attention, or like Llama's without."""
    fields = fields.get("text_config") or fields.get("language_config") or fields
    config = read(fields, rope_theta=10000.0, rope_parameters={"rope_type": "default"})
    rotated = config.qk_rope_head_dim
    with source("deepseek_v2") as module:
        if not rotated:
            made = module.DeepseekAttention(settings, config, config.hidden_size, HEADS, config.max_position_embeddings,
                                            prefix="model.layers.0.self_attn")
            return made.rotary_emb, made.head_dim
        made = module.DeepseekV2Attention(settings, config, config.hidden_size, HEADS, config.qk_nope_head_dim, rotated, 128,
                                          None, 512, config.max_position_embeddings)
    return made.rotary_emb, rotated


def pangu_dense(fields, *_):
    config = read(fields)
    with source("openpangu") as module:
        made = module.OpenPanguEmbeddedAttention(config, config.hidden_size, HEADS, HEADS, config.max_position_embeddings,
                                                 prefix="model.layers.0.self_attn")
    return made.rotary_emb, made.head_dim


def pangu_latent(fields, *_):
    config = read(fields)
    with source("openpangu") as module:
        made = module.OpenPanguMLAAttention(
            config, config.hidden_size, HEADS, config.qk_nope_head_dim, config.qk_rope_head_dim, 128, None, 512,
            config.max_position_embeddings)
    return made.rotary_emb, config.qk_rope_head_dim


def bailing(fields, *_):
    config = read(fields, use_bias=False, use_qkv_bias=False)
    with source("bailing_moe") as module:
        made = module.BailingAttention(config)
    return made.rotary_emb, made.head_dim


def bailing_hybrid(fields, *_):
    config = read(fields, q_lora_rank=None, kv_lora_rank=512, rms_norm_eps=1e-6)
    with source("bailing_moe_linear") as module:
        made = module.BailingMoeV25MLAAttention(config)
    return made.rotary_emb, made.qk_rope_head_dim


def molmo(fields, *_):
    config = read(fields)
    with source("molmo") as module:
        made = module.MolmoAttention(config)
    return made.rotary_emb, made.head_dim


def keye(fields, *_):
    """The text of Keye is Qwen 3's."""
    config = read(fields)
    with source("qwen3") as module:
        made = module.Qwen3Attention(config.hidden_size, HEADS, HEADS, config.rope_parameters, head_dim=config.head_dim,
                                     prefix="model.layers.0.self_attn")
    return made.rotary_emb, made.head_dim


def params_json(fields, *_):
    """Mistral's own format, through vLLM's adapter; its forward multiplies q by a factor of the position."""
    config = mistral.adapt_config_dict(json.loads(json.dumps(fields)), {})
    patch_rope_parameters(config)
    with source("mistral") as module:
        made = module.MistralAttention(config, config.hidden_size, HEADS, HEADS, config.max_position_embeddings,
                                       prefix="model.layers.0.self_attn")

    def rotate(positions, q, k):
        made(positions, torch.cat([q, k, k], -1))
        return made.attn.seen, None
    return rotate, made.head_dim


def moonvit(fields, *_):
    """Kimi-VL's vision: positions are (column, row)."""
    from vllm.model_executor.models import moonvit as module
    vision = fields["vision_config"]
    width = vision["hidden_size"] // vision["num_attention_heads"]
    table = module.Rope2DPosEmb(width, 512, 512, device="cpu").precomputed_freqs_cis

    def rotate(positions, q, k):
        q, k = (x.unflatten(1, (-1, width)) for x in (q, k))
        return module.apply_rope(q, k, table[positions[1], positions[0]])[0], None
    return rotate, width


def keye_vision(fields, *_):
    """Keye's vision: positions are (row, column)."""
    from vllm.model_executor.layers.rotary_embedding.common import ApplyRotaryEmb
    from vllm.model_executor.models import keye as module
    vision = fields["vision_config"]
    width = vision["hidden_size"] // vision["num_attention_heads"]
    table = module.SigLIPRotaryEmbedding(width // 2)(512)

    def rotate(positions, q, k):
        angles = table[positions.T].flatten(1).repeat(1, 2)
        q, k = (x.unflatten(1, (-1, width))[None] for x in (q, k))
        return module.apply_rotary_pos_emb_flashatt(q, k, angles.cos(), angles.sin(), ApplyRotaryEmb())[0][0], None
    return rotate, width


def deepseek_v4(fields, _, layer):
    from vllm.models.deepseek_v4.common.rope import build_deepseek_v4_rope
    config = types.SimpleNamespace(**fields)
    config.rope_parameters = dict(fields["rope_scaling"]) | {"rope_type": fields["rope_scaling"]["type"]}
    rope = build_deepseek_v4_rope(config, head_dim=config.head_dim, rope_head_dim=config.qk_rope_head_dim,
                                  max_position_embeddings=512, compress_ratio=config.compress_ratios[layer])
    return rope, config.head_dim


MAKERS = {
    "chatglm": chatglm, "internlm2": like_llama("internlm2", "InternLM2Attention"), "exaone": exaone,
    "minicpm": like_llama("minicpm", "MiniCPMAttention"), "minicpm3": minicpm3,
    "orion": like_llama("orion", "OrionAttention"), "plamo3": plamo3, "step3_vl": step3, "step3p5": step3p5,
    "kimi_vl": deepseek, "deepseek_vl_v2": deepseek, "telechat": telechat2, "telechat3": llama, "PanguEmbedded": pangu_dense,
    "pangu_ultra_moe": pangu_latent, "bailing_moe": bailing, "bailing_moe_v2": bailing, "bailing_hybrid": bailing_hybrid,
    "molmo": molmo, "Keye": keye, None: params_json, "deepseek_v4": deepseek_v4,
}
VISION_MAKERS = {"kimi_vl": moonvit, "Keye": keye_vision}


@torch.no_grad()
def rotate(case):
    settings = VllmConfig()
    settings.model_config = types.SimpleNamespace(
        max_model_len=case.get("max_model_len", 512), hf_config=types.SimpleNamespace())
    with set_current_vllm_config(settings):
        makers = VISION_MAKERS if case.get("component") == "vision" else MAKERS
        rope, width = makers[case["config"].get("model_type")](case["config"], settings, case.get("layer", 0))
        positions = torch.tensor(case["positions"])
        q = torch.randn(positions.shape[1], HEADS, width, generator=torch.Generator().manual_seed(5))
        q_in = q if "Deepseek" in type(rope).__name__ else q.flatten(1)
        turn = getattr(rope, "forward_native", rope)
        more = {"inverse": True} if case.get("inverse") else {}
        after = turn(positions if len(positions) > 1 else positions[0], q_in.clone(), q_in.clone(), **more)[0]
    return q, after.view_as(q)


def main():
    torch.set_num_threads(1)
    cases, tensors = json.load(open(sys.argv[1])), {}
    for case in cases:
        try:
            before, after = rotate(case)
        except Exception as error:  # a class of vLLM that does not take the file
            text = f"{type(error).__name__}: {error}".encode()
            tensors[f"{case['name']}.error"] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
            continue
        for name, x in (("before", before), ("after", after)):
            tensors[f"{case['name']}.{name}"] = x.transpose(0, 1)[None].contiguous()
    save_file(tensors, sys.argv[2])


if __name__ == "__main__":
    main()

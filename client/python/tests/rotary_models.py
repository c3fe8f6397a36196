"""22 tiny models of transformers with random weights: each kind of rotary module and of scaling."""

import torch
import transformers

TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128,
        "max_position_embeddings": 256, "pad_token_id": 0}
GROUPED = {**TINY, "num_key_value_heads": 2}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
          "num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, **EXPERTS}
MODELS = {
    "llama": {**GROUPED, "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0,
                                             "original_max_position_embeddings": 64, "low_freq_factor": 1.0,
                                             "high_freq_factor": 4.0}},
    "llama dynamic": {**GROUPED, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}},
    "qwen2 yarn": {**GROUPED, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
                                                  "original_max_position_embeddings": 64}},
    "qwen3": {**GROUPED, "head_dim": 32},
    "gemma2": {**GROUPED, "head_dim": 16, "sliding_window": 32},
    "gemma3_text": {**GROUPED, "head_dim": 16, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 32},
    "phi3": {**GROUPED, "original_max_position_embeddings": 64,
             "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0 + n / 8 for n in range(8)],
                                 "long_factor": [1.0 + n for n in range(8)], "original_max_position_embeddings": 64}},
    "mistral": {**GROUPED, "head_dim": 16},
    "ministral3": {**GROUPED, "head_dim": 16, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16,
        "llama_4_scaling_beta": 0.1}},
    "mixtral": {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt_neox": {**TINY, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "glm": {**GROUPED, "head_dim": 16},
    "cohere": GROUPED,
    "gpt_oss": {**GROUPED, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo2": GROUPED,
    "smollm3": {**GROUPED, "no_rope_layers": [1, 0]},
    "starcoder2": GROUPED,
    "stablelm": {**GROUPED, "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0,
                                                "partial_rotary_factor": 0.25}},
    "falcon": {**TINY, "num_kv_heads": 2, "new_decoder_architecture": True, "alibi": False},
    "deepseek_v3": {**LATENT, **TINY, "first_k_dense_replace": 1},
    "nanochat": GROUPED,
    "modernbert": {**TINY, "layer_types": ["full_attention", "sliding_attention"]},
}


def config_of(name):
    return transformers.AutoConfig.for_model(name.split()[0], **MODELS[name])


def model_of(name):
    torch.manual_seed(20261124)
    return transformers.AutoModel.from_config(config_of(name)).eval()


def rotary_modules(model):
    return {name: module for name, module in model.named_modules() if "RotaryEmbedding" in type(module).__name__}

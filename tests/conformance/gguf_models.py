"""Tiny models as GGUF files: metadata and frequency factors, without weights. check_gguf.py says what is compared."""

import gguf
import numpy as np

LAYERS, HEADS, EMBEDDING, CONTEXT = 2, 2, 64, 4096  # unless a case says otherwise

# Keys that some architecture needs; none of them affects positions.
OTHERS = {
    "vocab_size": 32, "feed_forward_length": 32, "leading_dense_block_count": 1, "use_parallel_residual": False,
    "logit_scale": 1.0, "attention.head_count_kv": HEADS, "attention.layer_norm_epsilon": 1e-5,
    "attention.layer_norm_rms_epsilon": 1e-5, "attention.clamp_kqv": 1.0, "attention.q_lora_rank": 32,
    "attention.kv_lora_rank": 32, "residual_scale": 1.0, "embedding_scale": 1.0, "attention.scale": 0.1,
    "embedding_length_per_layer_input": 16, "attention.shared_kv_layers": 0,
    "ssm.inner_size": 2 * EMBEDDING, "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.time_step_rank": HEADS,
    "ssm.group_count": 2, "shortconv.l_cache": 3,
    "interleave_moe_layer_step": 2, "expert_count": 2, "expert_used_count": 2, "expert_shared_count": 1,
    "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 32, "expert_gating_func": 2,
    "expert_group_scale": 1.0, "experts_per_group": 1,
}
DENSE = ("hunyuan_vl", "hunyuan-dense", "plamo2")  # these take no experts here
SIGNED = ("rope.dimension_sections",)


def write(path, architecture, keys=None, factors=None):
    """Writes a GGUF. `keys` without the architecture's name; None leaves a key out. `factors`: arrays by tensor name."""
    keys = {"block_count": LAYERS, "context_length": CONTEXT, "embedding_length": EMBEDDING,
            "attention.head_count": HEADS, **OTHERS, **(keys or {})}
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in keys.items():
        if value is not None and not (architecture in DENSE and name.startswith("expert")):
            add(writer, f"{architecture}.{name}", value, signed=name in SIGNED)
    writer.add_tokenizer_model("no_vocab")
    writer.add_token_type_count(2)
    for name in ("alpha_n", "alpha_p", "beta", "eps"):
        writer.add_float32(f"xielu.{name}", 1.0)
    for name, values in (factors or {}).items():
        writer.add_tensor(name, np.asarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add(writer, key, value, signed=False):
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        kind = gguf.GGUFValueType.BOOL if isinstance(value[0], bool) else gguf.GGUFValueType.INT32
        writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, sub_type=kind)
    elif signed:
        writer.add_int32(key, value)
    else:
        writer.add_uint32(key, value)


def llama3_factors(pairs, theta, factor=8.0, low=1.0, high=4.0, original=8192):
    """Divisors of llama3's frequencies, in float32 as a conversion computes them (arXiv:2407.21783's released code)."""
    frequencies = (1 / np.float32(theta) ** (np.arange(0, 2 * pairs, 2, dtype=np.float32) / np.float32(2 * pairs)))
    turns = np.float32(original) * frequencies / np.float32(2 * np.pi)
    smooth = np.clip((turns - np.float32(low)) / np.float32(high - low), 0, 1)
    return 1 / ((1 - smooth) / np.float32(factor) + smooth)

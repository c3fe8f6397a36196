"""Rotations as the eager models compute them: small tensors with special values, and DeepSeek-V3's shapes."""

import json

import torch
from transformers import AutoConfig
from transformers.models.cohere import modeling_cohere
from transformers.models.deepseek_v2 import modeling_deepseek_v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.glm import modeling_glm
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from transformers.models.olmo3 import modeling_olmo3

from golden_json import numbers, origin
from rotary_tables import rotary_class

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
POSITIONS = (0, 1, 17, 1023, 4095)

APPLY_NOTE = (
    "q, k, q_out and k_out are [B][H][S][D]; the rotary part is the first rotary_width of D. cos and sin are the"
    " tables as the model hands them to the function, in the dtype it uses: [S][W], W = pairs (single), two equal"
    " halves (halves) or each entry twice (repeated); complex64 tables are given as real and imaginary parts."
    " input_pairing and output_pairing say where a pair's elements stand. GPT-J works in [B,S,H,D] and is transposed"
    " here. glm rotates half of D; of 10, that is an odd width of 5, and 3 pairs (6 elements) turn. cohere and"
    " deepseek_v2 compute in float32 and round once, from rounded and from float32 tables; olmo3 has float32 tables,"
    " float32 products and one rounding. The others round every product and sum to dtype. q's head 0 at positions 0"
    " and 17 and k's head 0 at position 1 hold infinities, NaN, signed zeros, subnormals and the largest values; a"
    " NaN's sign and payload are not recorded."
)

DEEPSEEK_NOTE = (
    "Layout [B,S,H,D]. Element n (row-major) of the full q [1,2,128,192] is x(n), and element m of k_pe [1,2,1,64] is"
    " x(49152 + m), with x(n) = ((n * 2654435761 mod 2^32) >> 8) / 2^24 - 0.5: exact in float32, then rounded to"
    " nearest even for bfloat16. Only q[..., 128:192] is rotated and recorded (q_rot); k_rot is all of k_pe. Pairs"
    " are read interleaved and left half-split. cos and sin are [S][64], two equal halves, in dtype."
    " softmax.scaling is the attention module's attribute, softmax.mscale_squared the factor its own function applies"
    " to 1.0, so scaling = 192^-0.5 * mscale_squared up to rounding."
)


def tables(model_type, dtype, head_dim, **settings):
    """Returns the result of the model's rotary module for POSITIONS, with a small config of that head_dim."""
    sizes = {"hidden_size": 3 * head_dim, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": head_dim}
    config = AutoConfig.for_model(model_type, **(sizes | settings))
    return rotary_class(config)(config)(torch.zeros(1, dtype=dtype), torch.tensor([POSITIONS]))


def llama(q, k):
    cos, sin = tables("llama", q.dtype, q.shape[-1])
    return cos, sin, modeling_llama.apply_rotary_pos_emb(q, k, cos, sin)


def gpt_oss(q, k):
    cos, sin = tables("gpt_oss", q.dtype, q.shape[-1], rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    return cos, sin, modeling_gpt_oss.apply_rotary_pos_emb(q, k, cos, sin)


def olmo3(q, k):
    config = AutoConfig.for_model("olmo3", hidden_size=3 * q.shape[-1], num_attention_heads=3)
    module = modeling_olmo3.Olmo3RotaryEmbedding(config)
    cos, sin = module(torch.zeros(1, dtype=q.dtype), torch.tensor([POSITIONS]), layer_type="full_attention")
    return cos, sin, modeling_olmo3.apply_rotary_pos_emb(q, k, cos, sin)


def glm(q, k):
    cos, sin = tables("glm", q.dtype, q.shape[-1])
    return cos, sin, modeling_glm.apply_rotary_pos_emb(q, k, cos, sin)


def gptj(q, k):
    table = modeling_gptj.create_sinusoidal_positions(POSITIONS[-1] + 1, q.shape[-1])
    sin, cos = table[None, POSITIONS, :].to(q.dtype).split(q.shape[-1] // 2, dim=-1)
    return cos, sin, [modeling_gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2) for x in (q, k)]


def cohere(q, k):
    cos, sin = tables("cohere", q.dtype, q.shape[-1])
    return cos, sin, modeling_cohere.apply_rotary_pos_emb(q, k, cos, sin)


def deepseek_v2(q, k):
    table = tables("deepseek_v2", q.dtype, q.shape[-1], qk_rope_head_dim=q.shape[-1])
    return table.real, table.imag, modeling_deepseek_v2.apply_rotary_emb(q, k, table)


def deepseek_v3(q, k):
    cos, sin = tables("deepseek_v3", q.dtype, q.shape[-1], qk_rope_head_dim=q.shape[-1])
    return cos, sin, modeling_deepseek_v3.apply_rotary_pos_emb_interleave(q, k, cos, sin)


# function: input pairing, output pairing, layout of its tables
APPLY_FUNCTIONS = {
    llama: ("half_split", "half_split", "halves"),
    gpt_oss: ("half_split", "half_split", "single"),
    olmo3: ("half_split", "half_split", "halves"),
    glm: ("interleaved", "interleaved", "halves"),
    gptj: ("interleaved", "interleaved", "single"),
    cohere: ("interleaved", "interleaved", "repeated"),
    deepseek_v2: ("interleaved", "interleaved", "single"),
    deepseek_v3: ("interleaved", "half_split", "halves"),
}


def eager_apply_file():
    records = [
        apply_record(function, dtype, heads, head_dim)
        for function in APPLY_FUNCTIONS
        for heads, head_dim in ((3, 16), (1, 10))
        for dtype in DTYPES
    ]
    return {"origin": origin(APPLY_NOTE), "layout": "[B,H,S,D]", "positions": list(POSITIONS), "records": records}


def apply_record(function, dtype, heads, head_dim):
    q, k = small_inputs(dtype, heads, head_dim)
    input_pairing, output_pairing, layout = APPLY_FUNCTIONS[function]
    cos, sin, (q_out, k_out) = function(q.clone(), k.clone())
    return {
        "model": function.__name__,
        "dtype": str(dtype).removeprefix("torch."),
        "table_dtype": str(cos.dtype).removeprefix("torch."),
        "q_shape": list(q.shape),
        "k_shape": list(k.shape),
        "rotary_width": 2 * cos.shape[-1] if layout == "single" else cos.shape[-1],
        "input_pairing": input_pairing,
        "output_pairing": output_pairing,
        "table_layout": layout,
        "cos": numbers(cos[0]),
        "sin": numbers(sin[0]),
        "q": numbers(q),
        "k": numbers(k),
        "q_out": numbers(q_out),
        "k_out": numbers(k_out),
    }


def small_inputs(dtype, heads, head_dim):
    """Random q and k, the same for every function, with three rows of special values."""
    generator = torch.Generator().manual_seed(20240229)
    q = torch.randn(1, heads, len(POSITIONS), head_dim, generator=generator).to(dtype)
    k = torch.randn(1, 1, len(POSITIONS), head_dim, generator=generator).to(dtype)
    specials = special_values(dtype)[:head_dim]
    q[0, 0, 0] = q[0, 0, 2] = k[0, 0, 1] = specials
    return q, k


def special_values(dtype):
    info = torch.finfo(dtype)
    subnormal = info.smallest_normal * info.eps
    inf, nan = float("inf"), float("nan")
    values = [inf, 1.0, -inf, 0.5, nan, 2.0, 0.0, -0.0, subnormal, 3.0]
    values += [-subnormal, info.max, -info.max, info.smallest_normal, -0.0, 0.0]
    return torch.tensor(values, dtype=torch.float64).to(dtype)


def deepseek_v3_file(config_path):
    """DeepSeek-V3's real shapes: 64 of each query's 192, one shared key, pairs read interleaved, written half-split."""
    config = AutoConfig.for_model(**json.loads(config_path.read_text()))
    positions = [7, 100003]
    return {
        "origin": origin(DEEPSEEK_NOTE),
        "config": config_path.name,
        "layout": "[B,S,H,D]",
        "positions": positions,
        "q_shape": [1, 2, config.num_attention_heads, config.qk_head_dim],
        "q_rotary_offset": config.qk_nope_head_dim,
        "k_shape": [1, 2, 1, config.qk_rope_head_dim],
        "k_first_n": 2 * config.num_attention_heads * config.qk_head_dim,
        "softmax": softmax_scale(config),
        "records": [deepseek_v3_record(config, positions, dtype) for dtype in (torch.float32, torch.bfloat16)],
    }


def softmax_scale(config):
    with torch.device("meta"):  # the module's shape without its 200 million weights
        attention = modeling_deepseek_v3.DeepseekV3Attention(config, layer_idx=0)
    return {
        "scaling": attention.scaling,
        "mscale_squared": modeling_deepseek_v3.yarn_apply_mscale(config.rope_parameters, 1.0),
    }


def deepseek_v3_record(config, positions, dtype):
    heads, width = config.num_attention_heads, config.qk_head_dim
    q = formula(0, (1, 2, heads, width)).to(dtype).transpose(1, 2)
    k = formula(q.numel(), (1, 2, 1, config.qk_rope_head_dim)).to(dtype).transpose(1, 2)
    module = modeling_deepseek_v3.DeepseekV3RotaryEmbedding(config)
    cos, sin = module(torch.zeros(1, dtype=dtype), torch.tensor([positions]))
    q_part = q[..., config.qk_nope_head_dim :]
    q_rot, k_rot = modeling_deepseek_v3.apply_rotary_pos_emb_interleave(q_part, k, cos, sin)
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "inv_freq": numbers(module.inv_freq),
        "attention_scaling": module.attention_scaling,
        "cos": numbers(cos[0]),
        "sin": numbers(sin[0]),
        "q_rot": numbers(q_rot.transpose(1, 2)),
        "k_rot": numbers(k_rot.transpose(1, 2)),
    }


def formula(first, shape):
    """x(first), x(first + 1), ... of DEEPSEEK_NOTE in float32."""
    n = torch.arange(first, first + torch.Size(shape).numel(), dtype=torch.int64)
    bits = (n * 2654435761 % 2**32) >> 8
    return (bits.double() / 2**24 - 0.5).float().reshape(shape)

"""Correct rotations with the roundings of transformers, vLLM and FlashInfer, in numpy.

Sources: transformers 5.23, modeling_llama.py (LlamaRotaryEmbedding.forward, apply_rotary_pos_emb) and
modeling_rope_utils.py. vLLM, vllm/model_executor/layers/rotary_embedding/base.py (_compute_cos_sin_cache: float32, then
cast to the tensors' type; newer releases keep float32) and csrc/pos_encoding_kernels.cu at 0f5257e, lines 11 to 34:
products and sum in float32, one rounding. FlashInfer at fb28d72, include/flashinfer/pos_enc.cuh: lines 583 to 616
(__powf, smoothing, __sincosf) and lines 97 to 125 (float32 products, one cast).
"""

import math

import numpy
from tensors import BF16, FP16, FP32, rounded

F = numpy.float32
METHODS = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "theta 5e5": {"rope_type": "default", "rope_theta": 500000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "llama3": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8192.0},
    "yarn": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 4096.0},
}


def frequencies(p, width):
    """Float32, in the order of transformers' operations. Returns inv_freq and the attention factor."""
    exponents = numpy.arange(0, width, 2).astype(F) / F(width)
    powers = F(p["rope_theta"]) ** exponents
    plain = F(1) / powers
    if p["rope_type"] == "linear":
        return plain / F(p["factor"]), 1.0
    if p["rope_type"] == "llama3":
        length, low, high = p["original_max_position_embeddings"], p["low_freq_factor"], p["high_freq_factor"]
        wavelength = F(2 * math.pi) / plain
        scaled = numpy.where(wavelength > length / low, plain / F(p["factor"]), plain)
        smooth = (F(length) / wavelength - F(low)) / F(high - low)
        between = (F(1) - smooth) * scaled / F(p["factor"]) + smooth * scaled
        return numpy.where((wavelength <= length / low) & (wavelength >= length / high), between, scaled), 1.0
    if p["rope_type"] == "yarn":
        length, theta = p["original_max_position_embeddings"], p["rope_theta"]

        def dimension(turns):
            return width * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))
        low, high = max(math.floor(dimension(32)), 0), min(math.ceil(dimension(1)), width - 1)
        ramp = numpy.clip((numpy.arange(width // 2).astype(F) - F(low)) / F(high - low), 0, 1)
        return F(1) / (F(p["factor"]) * powers) * ramp + plain * (F(1) - ramp), 0.1 * math.log(p["factor"]) + 1
    return plain, 1.0


def halves(x, interleaved):
    return (x[..., ::2], x[..., 1::2]) if interleaved else numpy.split(x, 2, -1)


def joined(first, second, interleaved):
    return numpy.stack([first, second], -1).reshape(*first.shape[:-1], -1) if interleaved else \
        numpy.concatenate([first, second], -1)


def transformers(x, positions, p, dtype, interleaved):
    """Each operation is rounded to the tensors' type."""
    inv_freq, factor = frequencies(p, x.shape[-1])
    angles = positions.astype(F)[:, None] * inv_freq
    cos, sin = (rounded(table(angles) * F(factor), dtype)[:, None].astype(F) for table in (numpy.cos, numpy.sin))
    a, b = halves(x.astype(F), interleaved)

    def product(u, v):
        return rounded(u * v, dtype).astype(F)
    return rounded(joined(product(a, cos) - product(b, sin), product(b, cos) + product(a, sin), interleaved), dtype)


def once(x, cos, sin, dtype, interleaved):
    a, b = halves(x.astype(F), interleaved)
    return rounded(joined(a * cos - b * sin, b * cos + a * sin, interleaved), dtype)


def vllm(x, positions, p, dtype, interleaved, cache=None):
    """The cache of cosines and sines has the tensors' type, or float32."""
    inv_freq, factor = frequencies(p, x.shape[-1])
    angles = positions.astype(F)[:, None] * inv_freq
    cos, sin = (rounded(table(angles) * F(factor), cache or dtype)[:, None].astype(F) for table in (numpy.cos, numpy.sin))
    return once(x, cos, sin, dtype, interleaved)


def vllm_float32_cache(x, positions, p, dtype, interleaved):
    return vllm(x, positions, p, dtype, interleaved, FP32)


def fast_power(base, exponents):
    """__powf: exp2(y * log2(x)), each in float32."""
    return numpy.exp2((exponents * numpy.log2(F(base))).astype(F)).astype(F)


def fast_turn(table, angles):
    """__sincosf: the multiplier reduces the angle in units of turns, in float32."""
    turns = angles * F(1 / (2 * math.pi))
    return table((turns - numpy.floor(turns)) * F(2 * math.pi)).astype(F)


def flashinfer(x, positions, p, dtype, interleaved):
    width = x.shape[-1]
    inv_freq = fast_power(1 / p["rope_theta"], numpy.arange(0, width, 2).astype(F) / F(width))
    smooth_a, smooth_b = F(0), F(0)
    if p["rope_type"] == "llama3":
        span = p["high_freq_factor"] - p["low_freq_factor"]
        smooth_a = F(p["original_max_position_embeddings"] / (2 * math.pi * span))
        smooth_b = F(-1 / (p["high_freq_factor"] / p["low_freq_factor"] - 1))
    smooth = numpy.clip(inv_freq * smooth_a + smooth_b, F(0), F(1))
    scale = F(1 / p.get("factor", 1.0))
    inv_freq = (F(1) - smooth) * (inv_freq * scale) + smooth * inv_freq
    angles = positions.astype(F)[:, None] * inv_freq
    cos, sin = fast_turn(numpy.cos, angles)[:, None], fast_turn(numpy.sin, angles)[:, None]
    return once(x, cos, sin, dtype, interleaved)


def cases():
    """Yields name, port, parameters, type, first position, interleaved."""
    for method, p in METHODS.items():
        for name, dtype in (("fp32", FP32), ("fp16", FP16), ("bf16", BF16)):
            for first in (0, 8192, 100000):
                for interleaved in (False, True):
                    for port in (transformers, vllm, vllm_float32_cache, flashinfer):
                        # FlashInfer's kernels take fp16 and bf16, and compute no YaRN.
                        if port is flashinfer and (dtype == FP32 or method == "yarn"):
                            continue
                        for seed in (1, 2):
                            yield (f"{port.__name__}, {method}, {name}, from {first}, "
                                   f"{'interleaved' if interleaved else 'half-split'}, {seed}",
                                   port, p, dtype, first, interleaved, seed)

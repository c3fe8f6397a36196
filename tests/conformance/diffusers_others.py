"""Rotary tables of diffusers' audio and text transformers, and encodings that any transformer adds to its input."""

import operator

import torch
from diffusers.models import embeddings
from diffusers.models.transformers import ace_step_transformer
from diffusers_original import (
    CPU, EQUAL, EXPONENTIALS, F, H, LENGTH, ONCE, W, Learned, Original, Sines, grid, table)


def line(turns, **more):
    def of(model):
        yield table(grid(LENGTH), turns(model), "DUPLICATED", **more)
    return of


def ace_step(model):
    return ace_step_transformer._ace_step_rotary_freqs(
        LENGTH, model.config.head_dim, model.config.rope_theta, CPU, torch.float32)


def stable_audio(model):
    """Follows its pipeline."""
    return embeddings.get_1d_rotary_pos_embed(
        model.config.attention_head_dim // 2, LENGTH, use_real=True, repeat_interleave_real=False)


def stable_audio3(model):
    angles = model.rotary_pos_emb(LENGTH, CPU)
    return angles.cos(), angles.sin()


def added(embed, *inputs):
    """Sets the weights of a patch embedding to zero and returns what it still adds to the patches."""
    for weights in embed.parameters():
        weights.zero_()
    return embed(*inputs)[0]


def latents(model, *sizes):
    return torch.zeros(1, model.config.in_channels, *(size * model.config.patch_size for size in sizes))


def patches(module, *more):
    def of(model):
        for rows, columns in ((H, W), (W, W)):
            embedded = added(getattr(model, module), latents(model, rows, columns), *more)
            yield Sines("grid", {"height": rows, "width": columns}, embedded)
    return of


def latte(model):
    yield from patches("pos_embed")(model)
    yield Sines("sinusoidal", {}, model.temp_pos_embed[0])


def cogview3(model):
    text = torch.zeros(1, 3, model.config.text_embed_dim)
    yield Sines("grid", {"height": H, "width": W}, added(model.patch_embed, latents(model, H, W), text)[3:])


def cogvideox(model):
    """Has a row of zeros for each possible token of text."""
    text = torch.zeros(1, model.config.max_text_seq_length, model.config.text_embed_dim)
    video = latents(model, H, W)[:, None].expand(1, F, -1, -1, -1)
    yield Sines("grid", {"height": H, "width": W, "frames": F}, added(model.patch_embed, text, video))


def temporal(model):
    module = model.transformer_blocks[0].pos_embed
    yield Sines("sinusoidal", {}, module(torch.zeros_like(module.pe))[0])


def learned(path):
    def of(model):
        yield Learned(operator.attrgetter(path)(model).shape[-2:])
    return of


WIDTH = {"num_attention_heads": 4, "attention_head_dim": 64}
OMNIGEN = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8, "rope_scaling": {
    "short_factor": [1 + n / 50 for n in range(32)], "long_factor": [1.0 + n for n in range(32)]}}
LONG = {"max_position_embeddings": 256, "original_max_position_embeddings": 64, "rope_base": 500}
PATCHES = {"in_channels": 4, "patch_size": 2, "sample_size": 32, "norm_type": "ada_norm_zero",
           "num_embeds_ada_norm": 1000}

ORIGINALS = (
    Original("AceStepTransformer1DModel", line(ace_step), ({"head_dim": 64, "rope_theta": 5e5},)),
    Original("LongCatAudioDiTTransformer", line(lambda model: model.rotary_embed(torch.zeros(1, LENGTH, 1))),
             ({"dit_dim": 512, "dit_heads": 4},)),
    Original("MiniMaxMusic3Transformer1DModel", line(lambda model: model.rotary_emb(LENGTH, CPU)),
             ({"rotary_dim": 48, "attention_head_dim": 96},)),
    Original("OmniGenTransformer2DModel", line(lambda model: model.rope(torch.zeros(1), torch.arange(LENGTH)[None]),
                                               scaling_length_rule="SCALING_LENGTH_RULE_GIVEN", seq_len=[LENGTH]),
             (LONG,), OMNIGEN),
    Original("StableAudioDiTModel", line(stable_audio), ({"attention_head_dim": 128, "num_attention_heads": 8},)),
    Original("StableAudio3DiTModel", line(stable_audio3), ({"num_heads": 12},)),

    Original("CogVideoXTransformer3DModel", cogvideox,
             ({**WIDTH, "temporal_interpolation_scale": 1.5, "max_text_seq_length": 5},), expected=ONCE),
    Original("CogView3PlusTransformer2DModel", cogview3, (WIDTH,), expected=ONCE),
    Original("ConsisIDTransformer3DModel", cogvideox, ({**WIDTH, "spatial_interpolation_scale": 1.0},), expected=ONCE),
    Original("DiTTransformer2DModel", patches("pos_embed"), ({**WIDTH, "sample_size": 64},), expected=ONCE),
    Original("LatteTransformer3DModel", latte, ({**WIDTH, "sample_size": 128, "video_length": 9},),
             {"in_channels": 4, "patch_size": 2, "caption_channels": 8}, ONCE),
    Original("OmniGenTransformer2DModel", patches("patch_embedding", False), ({"pos_embed_max_size": 33},), OMNIGEN,
             ONCE),
    Original("PixArtTransformer2DModel", patches("pos_embed"),
             ({**WIDTH, "sample_size": 64, "interpolation_scale": 1.5}, {**WIDTH, "sample_size": 256}), expected=ONCE),
    Original("SD3Transformer2DModel", patches("pos_embed"),
             ({**WIDTH, "pos_embed_max_size": 33, "sample_size": 64}, {**WIDTH, "pos_embed_max_size": None}),
             expected=ONCE),
    Original("SanaTransformer2DModel", patches("patch_embed"), ({"patch_size": 2, "sample_size": 64},),
             {"interpolation_scale": 2}, ONCE),
    Original("Transformer2DModel", patches("pos_embed"),
             ({"attention_head_dim": 64, "sample_size": 128, "interpolation_scale": 1.25},), PATCHES, ONCE),
    Original("TransformerTemporalModel", temporal, (WIDTH,),
             {"in_channels": 320, "positional_embeddings": "sinusoidal", "num_positional_embeddings": 24},
             EXPONENTIALS),

    Original("AuraFlowTransformer2DModel", learned("pos_embed.pos_embed"),
             ({**WIDTH, "pos_embed_max_size": 400},), expected=EQUAL),
    Original("MiniMaxMusic3RVQDepthDecoder", learned("pos_embedding.weight"),
             ({"max_position_embeddings": 20, "hidden_size": 256},), expected=EQUAL),
    Original("PriorTransformer", learned("positional_embedding"),
             ({**WIDTH, "num_embeddings": 1024, "additional_embeddings": 0},), expected=EQUAL),
    Original("T5FilmDecoder", learned("position_encoding.weight"), ({"targets_length": 300, "d_model": 256},),
             expected=EQUAL),
)

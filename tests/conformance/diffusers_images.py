"""Rotary tables of diffusers' image transformers."""

import numpy
import torch
from diffusers.models import embeddings
from diffusers_original import (
    ANGLE, CPU, FLOAT64, H, ONCE, W, Expected, Original, alike, grid, mesh, of_ids, of_latents, resized, table)

TEXT = 7  # tokens


def cogview4(model):
    """Rows and columns are scaled to the sizes in rope_axes_dim."""
    patch, spread = model.config.patch_size, numpy.array(model.config.rope_axes_dim)
    yield table(grid(H, W) * spread // [H, W], model.rope(torch.zeros(1, 1, H * patch, W * patch)), "DUPLICATED")


def ernie_image(model):
    """Angles are repeated, and half-split pairs have two of them; check_own_entries.py rotates by them."""
    positions = grid(2, H, W)
    angles = model.pos_embed(torch.tensor(positions).float()[None])
    yield table(positions, (angles.cos(), angles.sin()), "PER_ELEMENT", pairing="HALF_SPLIT")


def hunyuan_dit(model):
    """Follows its pipeline. Columns come first, in what the source calls emb_h."""
    base = 512 // 8 // model.config.patch_size
    corners, lines = resized(base, base)
    turns = embeddings.get_2d_rotary_pos_embed(model.inner_dim // model.num_heads, corners, (H, W))
    yield table(mesh(*lines)[:, ::-1], turns)


def joy_image(model):
    image, _ = model.get_rotary_pos_embed([3, H, W])
    yield table(grid(3, H, W), image)


def joy_image_plus(model):
    turns = model._get_rotary_pos_embed_for_range((2, 0, 0), (5, H, W))
    yield table(grid(3, H, W) + [2, 0, 0], turns)


def lumina2(model):
    positions = grid(3, H, W)
    yield table(positions, model.rope_embedder._get_freqs_cis(torch.tensor(positions).int()[None]))


def lumina_next(model):
    """Follows its pipeline for an image of the default size."""
    yield table(grid(H, W), embeddings.get_2d_rotary_pos_embed_lumina(model.head_dim, H, W))


def centred(rows, columns):
    return grid(1, rows, columns) - [0, rows - rows // 2, columns - columns // 2]


def text_from(start):
    """Returns positions of text, which are equal on all axes."""
    return start + numpy.arange(TEXT)[:, None].repeat(3, 1)


def qwen_image(model):
    image, text = model.pos_embed([(1, H + 1, W)], max_txt_seq_len=TEXT)
    yield table(numpy.concatenate([centred(H + 1, W), text_from(max(H + 1, W) // 2)]), torch.cat([image, text]))


def qwen_image21(model):
    """Text and an image, twice."""
    sizes, positions, start = [(1, 3, 5), (1, H, W)], [], 0
    for _, rows, columns in sizes:
        positions += [text_from(start), centred(rows, columns) + [start + TEXT, 0, 0]]
        start += TEXT + max(rows, columns)
    is_image = [n % 2 == 1 for n, part in enumerate(positions) for _ in part]
    turns = model.pos_embed(sizes, torch.tensor(is_image), CPU)
    yield table(numpy.concatenate(positions), turns)


SMALL = {"attention_head_dim": 64, "axes_dims_rope": (8, 28, 28)}
FOUR = {"attention_head_dim": 64, "axes_dims_rope": (8, 16, 24, 16), "rope_theta": 3e3}
HIDREAM = {"patch_size": 2, "axes_dims_rope": (64, 32, 32), "llama_layers": [0], "caption_channels": [8, 8]}
ROUNDED = Expected(1, ANGLE, 2.0**-24, "the class rounds its float64 angles to float32; posenc does not")

ORIGINALS = (
    *alike("ChromaTransformer2DModel FluxTransformer2DModel LongCatImageTransformer2DModel OvisImageTransformer2DModel",
           of_ids("pos_embed"), (SMALL,), expected=ONCE),
    *alike("BriaTransformer2DModel BriaFiboTransformer2DModel", of_ids("pos_embed"), ({**SMALL, "rope_theta": 2000},),
           expected=ONCE),
    *alike("Flux2Transformer2DModel Flux3Transformer2DModel", of_ids("pos_embed", 4), (FOUR,), expected=ONCE),
    *alike("NucleusMoEImageTransformer2DModel QwenImageTransformer2DModel", qwen_image, (SMALL,)),
    Original("QwenImage21Transformer2DModel", qwen_image21, (SMALL,)),
    Original("Krea2Transformer2DModel", of_ids("rotary_emb"), ({**SMALL, "rope_theta": 300.0},), expected=ONCE),
    Original("HiDreamImageTransformer2DModel", of_ids("pe_embedder", batch=None),
             ({"attention_head_dim": 64, "axes_dims_rope": (32, 16, 16)},), HIDREAM, ONCE),
    Original("PRXTransformer2DModel", of_ids("pe_embedder", 2, batch=None),
             ({"axes_dim": [24, 40], "theta": 2000}, {"axes_dim": [64, 64], "hidden_size": 3584}), expected=ONCE),
    Original("BriaFibo2Transformer2DModel", of_ids("rope_embedder"),
             ({"axes_dims": (16, 24, 24), "n_heads": 56, "rope_theta": 1e3},), expected=ROUNDED),
    Original("ZImageTransformer2DModel", of_ids("rope_embedder"),
             ({"axes_dims": [16, 24, 24], "dim": 1920, "rope_theta": 500.0},), expected=ROUNDED),
    Original("Lumina2Transformer2DModel", lumina2, ({"hidden_size": 1536, "axes_dim_rope": (16, 24, 24)},),
             expected=FLOAT64),
    Original("LuminaNextDiT2DModel", lumina_next, ({"hidden_size": 1024, "num_attention_heads": 8},),
             {"num_kv_heads": 8}),
    Original("Ideogram4Transformer2DModel", of_ids("rotary_emb", batch=None, form="DUPLICATED"),
             ({"attention_head_dim": 128, "rope_theta": 10000}, {"mrope_section": (64, 32, 32)})),
    Original("CogView4Transformer2DModel", cogview4, ({"attention_head_dim": 128, "rope_axes_dim": (64, 100)},)),
    Original("GlmImageTransformer2DModel", of_latents(2, form="DUPLICATED"), ({"attention_head_dim": 128},)),
    Original("ErnieImageTransformer2DModel", ernie_image, ({"rope_axes_dim": (16, 24, 24), "rope_theta": 1000},)),
    Original("HunyuanImageTransformer2DModel", of_latents(2),
             ({"attention_head_dim": 64, "rope_axes_dim": (24, 40), "rope_theta": 1e4},)),
    Original("HunyuanDiT2DModel", hunyuan_dit, ({"attention_head_dim": 64},), {"patch_size": 2, "in_channels": 4}),
    Original("JoyImageEditTransformer3DModel", joy_image,
             ({"rope_dim_list": None, "num_attention_heads": 32, "theta": 1000},)),
    Original("JoyImageEditPlusTransformer3DModel", joy_image_plus,
             ({"rope_dim_list": None, "num_attention_heads": 32}, {"rope_dim_list": [32, 48, 48], "theta": 1e4})),
)

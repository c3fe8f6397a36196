"""Absolute encodings: timesteps, grids, learned tables, Fourier features."""

import importlib.metadata

import rff
import torch
from diffusers.models.embeddings import (
    PatchEmbed, get_2d_sincos_pos_embed, get_3d_sincos_pos_embed, get_timestep_embedding)
from lightly.models.utils import get_2d_sine_cosine_positional_embedding
from transformers.models.deformable_detr.modeling_deformable_detr import DeformableDetrSinePositionEmbedding
from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding
from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding
from transformers.models.roberta.modeling_roberta import RobertaEmbeddings
from vit_pytorch.simple_vit import posemb_sincos_2d

from golden_json import numbers, origin

PACKAGES = ("diffusers", "lightly", "vit-pytorch", "random-fourier-features-pytorch")

NOTE = (
    "values are [rows][D]. timestep and grid_diffusers, grid_diffusers_3d: diffusers' functions; its grids compute"
    " coordinates in float32, frequencies and angles in float64. grid_mae: lightly's copy of MAE's function, all of it"
    " in float32; rows of zeros are float64, hence values' dtype. grid_big_vision: vit-pytorch's posemb_sincos_2d, the"
    " same formula and order as big_vision's, in torch's float32. grid_detr: DETR's and Deformable DETR's modules of"
    " transformers, in float32. learned: OPT's module and RoBERTa's positions, with the attention mask or the tokens"
    " that are no padding; plus adding a table to x, as ViT does, with float32 and with x's own type for the table."
    " fourier: rff's gaussian_encoding, which puts the cosines first."
)


def embeddings_file():
    torch.manual_seed(2006)
    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "origin": origin(NOTE) | {"packages": packages},
        "timestep": [
            timestep_record(4, [1.0]),
            timestep_record(4, [1.0], flip_sin_to_cos=True, downscale_freq_shift=0),
            timestep_record(9, [0.0, 0.5, 999.0]),
            timestep_record(320, [1.0, 981.0], flip_sin_to_cos=True, downscale_freq_shift=0),
            timestep_record(64, [0.03125, 0.7, 1.0], flip_sin_to_cos=True, downscale_freq_shift=0, scale=1000.0),
            timestep_record(64, [0.7, 17.25, -3.0, 20000.0], downscale_freq_shift=0.5, scale=-2.5, max_period=500),
        ],
        "grid_mae": [mae_record(16, 5, 1), mae_record(48, 7, 0)],
        "grid_diffusers": [
            diffusers_record(16, (3, 5)),
            diffusers_record(32, (6, 6), base_size=64, interpolation_scale=2.0, extra_tokens=2),
            diffusers_record(24, (7, 3), base_size=5, interpolation_scale=1.7),
            diffusers_cut_record(16, (2, 5), base_size=4, pos_embed_max_size=9),
            diffusers_cut_record(24, (4, 3), base_size=8, pos_embed_max_size=12),
        ],
        "grid_diffusers_3d": [
            diffusers_3d_record(16, 2, 3, 2),
            diffusers_3d_record(48, 5, 3, 4, spatial_interpolation_scale=1.875, temporal_interpolation_scale=1.3),
        ],
        "grid_big_vision": [big_vision_record(8, 3, 2), big_vision_record(48, 5, 7), big_vision_record(16, 4, 4, 100)],
        "grid_detr": [detr_record(8, 3, 2), detr_record(64, 5, 7), detr_record(16, 4, 3, normalize=False),
                      detr_record(32, 2, 6, DeformableDetrSinePositionEmbedding, offset=-0.5)],
        "learned": [opt_record(), roberta_record()],
        "added": [added_record(dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16)],
        "fourier": [fourier_record(dtype, n) for dtype in (torch.float32, torch.float64) for n in (1, 2, 3)],
    }


def dtype_name(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def valued(values):
    return {"dtype": dtype_name(values), "values": numbers(values)}


def timestep_record(dim, timesteps, **settings):
    t = torch.tensor(timesteps)
    return {"dim": dim, "timesteps": numbers(t)} | settings | valued(get_timestep_embedding(t, dim, **settings))


def mae_record(dim, size, extra_tokens):
    values = get_2d_sine_cosine_positional_embedding(dim, size, num_prefix_tokens=extra_tokens)
    grid = {"dim": dim, "height": size, "width": size, "extra_tokens": extra_tokens}
    return grid | valued(torch.from_numpy(values))


def diffusers_record(dim, size, extra_tokens=0, **settings):
    values = get_2d_sincos_pos_embed(dim, size, cls_token=extra_tokens > 0, extra_tokens=extra_tokens, **settings)
    grid = {"dim": dim, "height": size[0], "width": size[1], "extra_tokens": extra_tokens}
    return grid | settings | valued(values)


def diffusers_cut_record(dim, size, **settings):
    """Records PatchEmbed's own crop of the table before the table is rounded to float32."""
    base, largest = settings["base_size"], settings["pos_embed_max_size"]
    with torch.random.fork_rng():
        patches = PatchEmbed(base, base, patch_size=1, embed_dim=dim, pos_embed_max_size=largest)
    patches.pos_embed = get_2d_sincos_pos_embed(dim, largest, base_size=base, output_type="pt").unsqueeze(0)
    values = patches.cropped_pos_embed(*size)[0]
    return {"dim": dim, "height": size[0], "width": size[1]} | settings | valued(values)


def diffusers_3d_record(dim, width, height, frames, **settings):
    values = get_3d_sincos_pos_embed(dim, (width, height), frames, **settings)
    return {"dim": dim, "height": height, "width": width, "frames": frames} | settings | valued(values.flatten(0, 1))


def big_vision_record(dim, height, width, temperature=10000):
    values = posemb_sincos_2d(height, width, dim, temperature)
    return {"dim": dim, "height": height, "width": width, "temperature": temperature} | valued(values)


def detr_record(dim, height, width, module=DetrSinePositionEmbedding, normalize=True, **said):
    made = module(dim // 2, normalize=normalize)
    values = made(torch.Size((1, dim, height, width)), "cpu", torch.float32)[0].flatten(1).T
    said |= {} if normalize else {"normalize": False}
    return {"dim": dim, "height": height, "width": width} | said | valued(values)


def opt_record():
    config = {"model_type": "opt", "max_position_embeddings": 8, "hidden_size": 4}
    module = OPTLearnedPositionalEmbedding(config["max_position_embeddings"], config["hidden_size"])
    valid = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    return learned_record(config, module.weight, 2, valid, module(valid))


def roberta_record():
    padding_idx = 1
    config = {"model_type": "roberta", "max_position_embeddings": 9, "hidden_size": 4, "pad_token_id": padding_idx}
    table = torch.randn(9, 4, dtype=torch.bfloat16)
    tokens = torch.tensor([[5, 6, 7, 1, 1, 1], [5, 6, 7, 8, 9, 10]])
    positions = RobertaEmbeddings.create_position_ids_from_input_ids(tokens, padding_idx)
    values = torch.nn.functional.embedding(positions, table, padding_idx)
    return learned_record(config, table, padding_idx + 1, tokens.ne(padding_idx), values)


def learned_record(config, table, offset, valid, values):
    return {"config": config, "table": numbers(table), "offset": offset, "token_valid": numbers(valid)} | valued(values)


def added_record(dtype):
    table, x = torch.randn(3, 4), torch.randn(2, 3, 4).to(dtype)
    once = (x + table).to(dtype)
    each = x + table.to(dtype)
    return {"table": numbers(table), "x": numbers(x), "once": numbers(once), "each": numbers(each)} | {
        "dtype": dtype_name(x)}


def fourier_record(dtype, n):
    points, frequencies = torch.rand(4, n, dtype=dtype), 10 * torch.randn(6, n, dtype=dtype)
    cos, sin = rff.functional.gaussian_encoding(points, frequencies).chunk(2, dim=-1)
    return {"points": numbers(points), "frequencies": numbers(frequencies)} | valued(torch.cat((sin, cos), dim=-1))

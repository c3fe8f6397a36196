"""Compares absolute encodings: timesteps, sinusoids, grids, learned rows, Fourier features."""

import importlib

import numpy
import torch
from diffusers.models import embeddings
from table import Row
from tensors import FP32, FP64
from transformers.models.ctrl import modeling_ctrl
from transformers.models.m2m_100 import modeling_m2m_100
from transformers.models.marian import modeling_marian
from transformers.models.opt import modeling_opt
from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni
from transformers.models.roberta import modeling_roberta
from transformers.models.videomae import modeling_videomae
from transformers.models.whisper import modeling_whisper
from transformers.models.xlm import modeling_xlm

PLACE, WIDE_PLACE = 2.0**-24, 2.0**-53
ANGLE = "1 + the largest angle"
FLOAT32 = "torch's float32 frequencies may be a place off, which the position multiplies"
FLOAT64 = "float64 rounded to float32 once"
SEE = "docs/accuracy.md#against-the-originals"
LENGTH = 512


def rows(service):
    return [timesteps(service), *sinusoidal(service), padded(service), *grids(service), rows_first_grid(service), *detr_grids(service),
            *learned(service), fourier(service)]


def timesteps(service):
    row = Row("timestep", "diffusers Timesteps", within=1, of=ANGLE, why=FLOAT32)
    for dim in (4, 5, 64, 256, 320):
        for flip, shift, scale in ((False, 1, 1), (True, 0, 1), (True, 0, 1000), (False, 0.5, -2.5)):
            t = torch.tensor([0.0, 0.03125, 0.7, 1.0, 17.25, 981.0])
            theirs = embeddings.Timesteps(dim, flip, shift, scale)(t)
            settings = {"dim": dim, "flip_sin_to_cos": flip, "downscale_freq_shift": shift, "scale": scale}
            ours = service.embedding(timestep=settings, positions={"ids": t})
            row.compare(ours, theirs, unit=PLACE * (1 + 981 * abs(scale)))
    return row


def sinusoidal(service):
    """Compares each convention with originals that compute in float32 or in NumPy's float64."""
    def module(make, dim):
        return make(LENGTH, dim).positional_embedding

    def weight(make, dim):
        return make(LENGTH, dim).create_weight()

    originals = (
        ("HALVES", "ctrl", "F32", lambda dim: modeling_ctrl.positional_encoding(LENGTH, dim, torch.float32)),
        ("HALVES", "marian", "FLUX", lambda dim: weight(modeling_marian.MarianSinusoidalPositionalEmbedding, dim)),
        ("INTERLEAVED", "videomae", "FLUX", lambda dim: modeling_videomae.get_sinusoid_encoding_table(LENGTH, dim)[0]),
        ("INTERLEAVED", "xlm", "FLUX",
         lambda dim: modeling_xlm.create_sinusoidal_embeddings(LENGTH, dim, torch.empty(LENGTH, dim))),
        ("TENSOR2TENSOR", "whisper", "F32", lambda dim: modeling_whisper.sinusoids(LENGTH, dim)),
        ("TENSOR2TENSOR", "qwen2_5_omni", "F32",
         lambda dim: module(modeling_qwen2_5_omni.SinusoidsPositionEmbedding, dim)),
    )
    # Of these, only Marian takes odd widths: one sine more than cosines.
    for convention, name, preset, original in originals:
        method = f"sinusoidal, {convention.lower()}"
        row = (Row(method, f"transformers {name}", within=1, of=ANGLE, why=FLOAT32) if preset == "F32"
               else Row(method, f"transformers {name}", within=1, why=FLOAT64))
        for dim in (8, 128, 768, *((9, 129) if name == "marian" else ())):
            ours = service.embedding(preset, positions={"offset": 0}, count=LENGTH, sinusoidal={
                "convention": f"SINUSOIDAL_CONVENTION_{convention}", "dim": dim})
            row.compare(ours, original(dim), unit=PLACE * LENGTH if preset == "F32" else None)
        yield row


def padded(service):
    """Compares fairseq's convention: padding tokens have a row of zeros and are not counted."""
    row = Row("sinusoidal, fairseq", "transformers m2m_100", within=1, of=ANGLE, why=FLOAT32)
    tokens = torch.tensor([[1, 1, 1, 9, 8, 7, 6], [9, 8, 7, 6, 5, 1, 1], [9, 8, 7, 6, 5, 4, 3]])
    for dim in (8, 64, 129):
        theirs = modeling_m2m_100.M2M100SinusoidalPositionalEmbedding(32, dim, padding_idx=1)(tokens)
        ours = service.embedding(sinusoidal={"convention": "SINUSOIDAL_CONVENTION_FAIRSEQ", "dim": dim, "padding_idx": 1,
                                             "token_valid": tokens != 1})
        row.compare(ours, theirs, unit=PLACE * 10)
    return row


def grids(service):
    """Compares diffusers' grids, which compute in float64 except for the coordinates."""
    flat, deep = (Row(f"grid, {axes}-D, float64", f"diffusers get_{axes}d_sincos_pos_embed", within=1, of=ANGLE,
                      why="of float64; torch's pow and sine are a place off now and then") for axes in (2, 3))
    for dim, (height, width), more in ((16, (3, 5), {}), (1152, (64, 64), {"base_size": 64, "interpolation_scale": 2.0}),
                                       (24, (7, 3), {"base_size": 5, "interpolation_scale": 1.7})):
        theirs = embeddings.get_2d_sincos_pos_embed(dim, (height, width), **more)
        flat.compare(ask_grid(service, "FLUX", FP64, dim=dim, height=height, width=width, **more), theirs,
                     unit=WIDE_PLACE * 33)
    for dim, (width, height), frames, spatial, temporal in ((48, (3, 4), 5, 1.875, 1.3), (1920, (23, 15), 7, 1.875, 1.0)):
        theirs = embeddings.get_3d_sincos_pos_embed(dim, (width, height), frames, spatial, temporal)
        ours = ask_grid(service, "FLUX", FP64, dim=dim, height=height, width=width, frames=frames,
                        interpolation_scale=spatial, temporal_interpolation_scale=temporal)
        deep.compare(ours, theirs.flatten(0, 1), unit=WIDE_PLACE * 13)
    return flat, deep


def ask_grid(service, preset, dtype, convention="DIFFUSERS", **grid):
    return service.embedding(preset, dtype, grid={"convention": f"GRID_CONVENTION_{convention}", **grid})


def rows_first_grid(service):
    row = Row("grid, MAE, rows first", "transformers vit_mae, aimv2, rt_detr", within=1, why=FLOAT64)
    for name in ("vit_mae", "aimv2", "rt_detr"):
        modeling = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        for height, width, dim in ((14, 14, 768), (3, 5, 16)):
            theirs = modeling.build_2d_sinusoidal_position_embedding(height, width, dim)
            ours = ask_grid(service, "FLUX", FP32, "MAE", dim=dim, height=height, width=width, rows_first=True)
            row.compare(ours, theirs)
    return row


def detr_grids(service):
    for name in ("detr", "deformable_detr"):
        modeling = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        module = getattr(modeling, "".join(map(str.capitalize, name.split("_"))) + "SinePositionEmbedding")
        row = Row("grid, DETR", f"transformers {name}", within=1, of=ANGLE, why=FLOAT32)
        for height, width, dim, normalize in ((20, 30, 256, True), (5, 3, 16, True), (20, 30, 256, False)):
            cells = module(dim // 2, normalize=normalize)(torch.Size((1, dim, height, width)), torch.device("cpu"), torch.float32)
            more = {"offset": -0.5} if normalize and name == "deformable_detr" else {}
            ours = ask_grid(service, "F32", FP32, "DETR", dim=dim, height=height, width=width, normalize=normalize, **more)
            row.compare(ours, cells[0].flatten(1).T, unit=PLACE * (1 + (7 if normalize else 30)))
        yield row


@torch.no_grad()
def learned(service):
    opt = Row("learned", "transformers opt")
    module, valid = modeling_opt.OPTLearnedPositionalEmbedding(8, 4), torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    opt.compare(service.embedding(learned={"table": module.weight, "offset": 2, "token_valid": valid.bool()}), module(valid))
    roberta = Row("learned", "transformers roberta")
    table, tokens = torch.randn(9, 4), torch.tensor([[5, 6, 7, 1, 1, 1], [5, 6, 7, 8, 9, 10]])
    positions = modeling_roberta.RobertaEmbeddings.create_position_ids_from_input_ids(tokens, 1)
    roberta.compare(service.embedding(learned={"table": table, "offset": 2, "token_valid": tokens != 1}), table[positions])
    return opt, roberta


@torch.no_grad()
def fourier(service):
    row = Row("Fourier features", "diffusers GaussianFourierProjection", within=4, of=ANGLE,
              why="the original multiplies by 2 pi last: the angle is rounded twice on either way")
    for size, scale in ((256, 1.0), (64, 16.0)):
        module, points = embeddings.GaussianFourierProjection(size, scale, log=False), torch.rand(20)
        ours = service.embedding(fourier={"frequencies": module.weight[:, None], "points": points[:, None]})
        largest = 2 * numpy.pi * float(module.weight.abs().max())
        row.compare(ours, module(points), unit=PLACE * (1 + largest))
    return row

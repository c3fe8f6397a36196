"""Rotary tables of diffusers' image and video transformers, whose positions have several axes."""

import itertools

import numpy
import torch
from diffusers.models import embeddings
from diffusers.models.transformers import (
    transformer_cogview4, transformer_cosmos, transformer_flux, transformer_flux2, transformer_hunyuan_video,
    transformer_lumina2, transformer_qwenimage, transformer_wan)
from table import Row
from tensors import FP64

PLACE = 2.0**-24
ANGLE = "1 + the largest angle"
FLOAT32 = "torch's float32 frequencies may be a place off, which the position multiplies"
FLOAT64 = "of float64; torch's pow, cosine and sine may be a place off, which the position multiplies"
SEE = "docs/accuracy.md#against-the-originals"


def rows(service):
    return [flux(service), flux2(service), wan(service), lumina2(service), cogvideox(service), hunyuan_video(service),
            hunyuan_dit(service), cosmos(service), cogview4(service), qwen_image(service)]


def grid(*sizes):
    """[cells][axes], the last axis fastest."""
    return numpy.array(list(itertools.product(*map(range, sizes))), "f8")


def settings(dims, thetas=(1e4,), pairing="PAIRING_INTERLEAVED"):
    thetas = thetas if len(thetas) == len(dims) else thetas * len(dims)
    return {"axial": {"axes": [{"dim": dim, "rope_theta": theta} for dim, theta in zip(dims, thetas)]},
            "input_pairing": pairing}


def compare(service, row, asked, positions, form, preset, tables, dtype=None, place=PLACE):
    ours = service.table(asked, positions, form, preset, **({"dtype": dtype} if dtype else {}))
    largest = 1 + float(numpy.abs(positions).max())
    for mine, theirs in zip(ours, tables):
        row.compare(mine, theirs.numpy(), unit=None if preset == "FLUX" and dtype is None else place * largest)


def flux(service):
    row = Row("FLUX", "diffusers FluxPosEmbed", within=1, why="float64 rounded to float32 once")
    for theta, dims in ((1e4, [16, 56, 56]), (2e3, [4, 6, 6])):
        image, text = grid(1, 64, 48), numpy.zeros((8, 3))
        ids = numpy.concatenate([text, image])
        compare(service, row, settings(dims, (theta,)), ids, "REPEAT_INTERLEAVED", "FLUX",
                transformer_flux.FluxPosEmbed(int(theta), dims)(torch.tensor(ids)))
    return row


def flux2(service):
    row = Row("FLUX.2", "diffusers Flux2PosEmbed", within=1, why="float64 rounded to float32 once")
    ids = grid(2, 16, 12, 3)
    compare(service, row, settings([32] * 4, (2e3,)), ids, "REPEAT_INTERLEAVED", "FLUX",
            transformer_flux2.Flux2PosEmbed(2000, [32] * 4)(torch.tensor(ids)))
    return row


def wan(service):
    row = Row("Wan", "diffusers WanRotaryPosEmbed", within=1, why="float64 rounded to float32 once")
    for head_dim in (128, 64, 40):
        other = 2 * (head_dim // 6)
        tables = transformer_wan.WanRotaryPosEmbed(head_dim, (1, 2, 2), 1024)(torch.zeros(1, 1, 5, 32, 24))
        compare(service, row, settings([head_dim - 2 * other, other, other]), grid(5, 16, 12), "REPEAT_INTERLEAVED", "FLUX",
                [table[0, :, 0] for table in tables])
    return row


def lumina2(service):
    row = Row("Lumina 2", "diffusers Lumina2RotaryPosEmbed", within=1, of=ANGLE, why=FLOAT64)
    module = transformer_lumina2.Lumina2RotaryPosEmbed(10000, [32, 32, 32], [300, 512, 512])
    ids = grid(3, 40, 30)
    turns = module._get_freqs_cis(torch.tensor(ids, dtype=torch.int32)[None])[0]
    compare(service, row, settings([32, 32, 32]), ids, "HALF_WIDTH", "FLUX", (turns.real, turns.imag), FP64, 2.0**-53)
    return row


def cogvideox(service):
    row = Row("CogVideoX", "diffusers get_3d_rotary_pos_embed", within=1, of=ANGLE, why=FLOAT32)
    for kind, extra in (("linspace", {}), ("slice", {"max_size": (30, 45)})):
        tables = embeddings.get_3d_rotary_pos_embed(64, ((0, 0), (30, 45)), (30, 45), 13, grid_type=kind, **extra)
        compare(service, row, settings([16, 24, 24]), grid(13, 30, 45), "REPEAT_INTERLEAVED", "F32", tables)
    return row


def hunyuan_video(service):
    row = Row("HunyuanVideo", "diffusers HunyuanVideoRotaryPosEmbed", within=1, of=ANGLE, why=FLOAT32)
    tables = transformer_hunyuan_video.HunyuanVideoRotaryPosEmbed(2, 1, [16, 56, 56], 256.0)(torch.zeros(1, 1, 5, 64, 48))
    compare(service, row, settings([16, 56, 56], (256.0,)), grid(5, 32, 24), "REPEAT_INTERLEAVED", "F32", tables)
    return row


def hunyuan_dit(service):
    row = Row("HunyuanDiT", "diffusers get_2d_rotary_pos_embed", within=1, of=ANGLE, see=SEE,
              why=f"columns come first, in what the source calls emb_h; {FLOAT32}")
    for height, width in ((16, 16), (8, 24)):
        tables = embeddings.get_2d_rotary_pos_embed(88, ((0, 0), (height, width)), (height, width))
        compare(service, row, settings([44, 44]), grid(height, width)[:, ::-1], "REPEAT_INTERLEAVED", "F32", tables)
    return row


def cosmos(service):
    row = Row("Cosmos", "diffusers CosmosRotaryPosEmbed", within=1, of=ANGLE, why=FLOAT32)
    for scale, fps in (((2.0, 1.0, 1.0), None), ((1.0, 3.0, 3.0), 30)):
        module = transformer_cosmos.CosmosRotaryPosEmbed(128, rope_scale=scale)
        dims = [module.dim_t, module.dim_h, module.dim_w]
        thetas = tuple(1e4 * factor for factor in (module.t_ntk_factor, module.h_ntk_factor, module.w_ntk_factor))
        positions = grid(5, 16, 12)
        if fps:  # frames in float32, as the original has them
            positions[:, 0] = numpy.float32(positions[:, 0]) / numpy.float32(fps) * numpy.float32(module.base_fps)
        compare(service, row, settings(dims, thetas, "PAIRING_HALF_SPLIT"), positions, "DUPLICATED", "F32",
                module(torch.zeros(1, 1, 5, 32, 24), fps))
    return row


def cogview4(service):
    row = Row("CogView4", "diffusers CogView4RotaryPosEmbed", within=1, of=ANGLE, why=FLOAT32)
    for height, width in ((64, 64), (24, 40)):
        tables = transformer_cogview4.CogView4RotaryPosEmbed(128, 2, (256, 256))(torch.zeros(1, 1, 2 * height, 2 * width))
        positions = grid(height, width) * 256 // numpy.array([height, width])
        compare(service, row, settings([64, 64], pairing="PAIRING_HALF_SPLIT"), positions, "DUPLICATED", "F32", tables)
    return row


def qwen_image(service):
    row = Row("Qwen-Image", "diffusers QwenEmbedRope", within=1, of=ANGLE, why=FLOAT32)
    for centred in (False, True):
        module = transformer_qwenimage.QwenEmbedRope(10000, [16, 56, 56], scale_rope=centred)
        image, text = module((1, 33, 24), max_txt_seq_len=7)
        positions = grid(1, 33, 24) - (numpy.array([0, 33 - 33 // 2, 24 - 24 // 2]) if centred else 0)
        after = max(33 // 2, 24 // 2) if centred else 33
        for ids, turns in ((positions, image), (after + numpy.arange(7.0)[:, None].repeat(3, 1), text)):
            compare(service, row, settings([16, 56, 56]), ids, "HALF_WIDTH", "F32", (turns.real, turns.imag))
    return row

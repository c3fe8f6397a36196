"""Compares the position ids of diffusion models: what the classes and pipelines of diffusers compute, beside Positions."""

import json
from unittest import mock

import numpy
import torch
from diffusers.models.transformers import (
    transformer_hunyuan_video,
    transformer_hunyuan_video15,
    transformer_ltx,
    transformer_qwenimage,
    transformer_skyreels_v2,
    transformer_wan,
    transformer_wan_vace,
    transformer_z_image,
)
from diffusers.pipelines.bria.pipeline_bria import BriaPipeline
from diffusers.pipelines.chroma.pipeline_chroma import ChromaPipeline
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
from diffusers.pipelines.flux2.pipeline_flux2 import Flux2Pipeline
from table import Row
from tensors import array

INPUTS = 1000


def rows(service):
    for name, case_of in (("FluxTransformer2DModel", flux), ("ChromaTransformer2DModel", chroma),
                          ("BriaTransformer2DModel", bria), ("Flux2Transformer2DModel", flux2),
                          ("QwenImageTransformer2DModel", qwen_image), ("QwenImageTransformer2DModel", qwen_layers),
                          ("WanTransformer3DModel", wan), ("WanVACETransformer3DModel", wan_vace),
                          ("SkyReelsV2Transformer3DModel", skyreels), ("HunyuanVideoTransformer3DModel", hunyuan),
                          ("HunyuanVideo15Transformer3DModel", hunyuan15),
                          ("LTXVideoTransformer3DModel", ltx), ("ZImageTransformer2DModel", z_image)):
        row = Row(name, f"{INPUTS} inputs of {case_of.__name__}")
        random = numpy.random.default_rng(sum(case_of.__name__.encode()))
        for _ in range(INPUTS):
            fields, latents, theirs = case_of(random)
            answer = service.positions(json.dumps({"_class_name": name, **fields}).encode(), None, latents=latents)
            ours = array(answer.ids)[:, 0].T
            row.compare(ours.astype(theirs.numpy().dtype), theirs.numpy())
        yield row


def sizes(random, frames=1, count=1):
    return random.integers(1, (frames + 1, 9, 9), (count, 3))


def flux(random):
    grids, text = sizes(random, count=random.integers(1, 3)), int(random.integers(0, 9))
    images = [FluxPipeline._prepare_latent_image_ids(1, h, w, "cpu", torch.float32) for _, h, w in grids]
    for image in images[1:]:  # as FluxKontextPipeline marks its reference
        image[..., 0] = 1
    return {}, {"grid_thw": grids, "text_length": text}, torch.cat([torch.zeros(text, 3), *images])


def one_image(random, pipeline):
    """One image after text at 0, by a pipeline that has no references."""
    (grid,), text = sizes(random), int(random.integers(0, 9))
    image = pipeline._prepare_latent_image_ids(1, int(grid[1]), int(grid[2]), "cpu", torch.float32)
    return {}, {"grid_thw": grid[None], "text_length": text}, torch.cat([torch.zeros(text, 3), image.reshape(-1, 3)])


def chroma(random):
    return one_image(random, ChromaPipeline)


def bria(random):
    return one_image(random, BriaPipeline)


def flux2(random):
    grids, text = sizes(random, count=random.integers(1, 4)), int(random.integers(0, 9))
    images = [torch.zeros(1, 1, h, w) for _, h, w in grids]
    ids = [Flux2Pipeline._prepare_text_ids(torch.zeros(1, text, 1)), Flux2Pipeline._prepare_latent_ids(images[0])]
    if len(images) > 1:
        ids.append(Flux2Pipeline._prepare_image_ids(images[1:]))
    return {}, {"grid_thw": grids, "text_length": text}, torch.cat(ids, dim=1)[0]


def by_index(self, index, dim, theta=10000):
    """In place of the angles: the positions themselves."""
    return index[:, None].float()


def qwen_image(random, cls=transformer_qwenimage.QwenEmbedRope, **fields):
    grids, text = sizes(random, 3, random.integers(1, 4)), int(random.integers(1, 9))
    if fields:
        grids[-1][0] = 1  # the condition
    with mock.patch.object(cls, "rope_params", by_index):
        rope = cls(theta=10000, axes_dim=[2, 2, 2], scale_rope=True)
        image, words = rope([[tuple(int(side) for side in grid) for grid in grids]], max_txt_seq_len=text)
    return fields, {"grid_thw": grids, "text_length": text}, torch.cat([words, image])


def qwen_layers(random):
    return qwen_image(random, transformer_qwenimage.QwenEmbedLayer3DRope, use_layer3d_rope=True)


def wan(random, module=transformer_wan, rope_of=transformer_wan.WanRotaryPosEmbed):
    (grid,) = sizes(random, 4)

    def positions(dim, length, *_, **__):
        return torch.arange(length, dtype=torch.float32)[:, None].repeat(1, dim), torch.zeros(length, dim)

    with mock.patch.object(module, "get_1d_rotary_pos_embed", positions):
        rope = rope_of(12, (1, 2, 2), 64)
    cos = rope(torch.zeros(1, 1, grid[0], 2 * grid[1], 2 * grid[2]))[0][0, :, 0]
    columns = [0, rope.t_dim, rope.t_dim + rope.h_dim]
    return {}, {"grid_thw": grid[None]}, cos[:, columns]


def wan_vace(random):
    return wan(random, rope_of=transformer_wan_vace.WanRotaryPosEmbed)


def skyreels(random):
    return wan(random, transformer_skyreels_v2, transformer_skyreels_v2.SkyReelsV2RotaryPosEmbed)


def hunyuan(random, module=transformer_hunyuan_video, rope_of=transformer_hunyuan_video.HunyuanVideoRotaryPosEmbed):
    (grid,) = sizes(random, 4)

    def positions(dim, ids, *_, **__):
        return ids[:, None], ids[:, None]

    with mock.patch.object(module, "get_1d_rotary_pos_embed", positions):
        rope = rope_of(2, 1, [2, 2, 2])
        return {}, {"grid_thw": grid[None]}, rope(torch.zeros(1, 1, grid[0], 2 * grid[1], 2 * grid[2]))[0]


def hunyuan15(random):
    return hunyuan(random, transformer_hunyuan_video15, transformer_hunyuan_video15.HunyuanVideo15RotaryPosEmbed)


def ltx(random):
    (grid,) = sizes(random, 4)
    patch = {"patch_size": int(random.integers(1, 3)), "patch_size_t": int(random.integers(1, 3))}
    scale = [] if random.random() < 0.2 else [float(8 / random.integers(8, 60)), 32.0, 32.0]
    rope = transformer_ltx.LTXVideoRotaryPosEmbed(dim=6, **patch)
    coordinates = rope._prepare_video_coords(1, *(int(side) for side in grid), scale or None, "cpu")[0]
    return patch, {"grid_thw": grid[None], "rope_interpolation_scale": scale}, coordinates * 2 - 1


def z_image(random):
    (grid,), text = sizes(random), int(random.integers(1, 70))
    model = object.__new__(transformer_z_image.ZImageTransformer2DModel)
    image = torch.zeros(1, 1, 2 * grid[1], 2 * grid[2])
    _, _, _, images, captions, _, _ = transformer_z_image.ZImageTransformer2DModel.patchify_and_embed(
        model, [image], [torch.zeros(text, 4)], 2, 1)
    return {}, {"grid_thw": grid[None], "text_length": text}, torch.cat([images[0], captions[0][:text + -text % 32]]).float()

"""Rotary tables of diffusers' video transformers."""

import math
import types

import numpy
import torch
from diffusers.pipelines.allegro.pipeline_allegro import AllegroPipeline
from diffusers.pipelines.cogvideo.pipeline_cogvideox import CogVideoXPipeline
from diffusers.pipelines.consisid.pipeline_consisid import ConsisIDPipeline
from diffusers_original import (
    CPU, EXPONENTIALS, F, FLOAT64, H, ONCE, W, Expected, Original, alike, grid, mesh, of_latents, resized, table)

FIRST = 19  # index of the first frame after the history


def pipeline_of(model):
    """Returns a substitute for the pipeline, with the attributes that its method reads."""
    return types.SimpleNamespace(vae_scale_factor_spatial=1, transformer=model)


def allegro(model):
    """Follows its pipeline. Positions are divided by the scales."""
    config = model.config
    tables, indices = AllegroPipeline._prepare_rotary_positional_embeddings(
        pipeline_of(model), 1, H * config.patch_size, W * config.patch_size, F, CPU)
    turns = [torch.cat([axis[n][index[0]] for axis, index in zip(tables, indices)], 1) for n in (0, 1)]
    scales = [config.interpolation_scale_t, config.interpolation_scale_h, config.interpolation_scale_w]
    yield table(numpy.float32(grid(F, H, W)) / numpy.float32(scales), turns, "DUPLICATED")


def anyflow(model):
    turns = model.rope({"total_frames": F, "full_frame_shape": (H, W)}, CPU)
    yield table(grid(F, H, W), turns["query"])


def anyflow_far(model):
    """Compressed frames, then full ones. A compressed patch lies in the middle of the patches that it replaces."""
    compressed, config = 2, model.config
    times = [large // small for large, small in zip(config.compressed_patch_size, config.patch_size)]
    rows, columns = H // times[1], W // times[2]
    turns = model.rope({"total_frames": compressed + F, "num_compressed_frames": compressed,
                        "full_frame_shape": (H, W), "compressed_frame_shape": (rows, columns)}, CPU)
    before = grid(compressed, rows, columns) * times + (numpy.array(times) - 1) / 2
    yield table(numpy.concatenate([before, grid(F, H, W) + [compressed, 0, 0]]), turns["query"])


def cogvideox(pipeline):
    """Follows its pipeline: with patch_size_t (1.5) the grid is cut, without (1.0) it is resized to the sample."""
    def of(model):
        config = model.config
        patch, patch_t = config.patch_size, config.get("patch_size_t")
        turns = pipeline._prepare_rotary_positional_embeddings(
            pipeline_of(model), H * patch, W * patch, F * (patch_t or 1), CPU)
        _, lines = resized(config.sample_height // patch, config.sample_width // patch)
        yield table(grid(F, H, W) if patch_t else mesh(range(F), *lines), turns)
    return of


def easy_animate(model):
    patch = model.config.patch_size
    _, lines = resized(60 // patch, 90 // patch)
    yield table(mesh(range(F), *lines), model.rope_embedding(torch.zeros(1, 1, F, H * patch, W * patch)))


def cosmos(model):
    """Without and with a frame rate, by which frame positions are scaled in float32."""
    for fps in (None, 30):
        positions = numpy.float32(grid(F, H, W))
        if fps:
            positions[:, 0] = positions[:, 0] / numpy.float32(fps) * numpy.float32(model.rope.base_fps)
        yield table(positions, model.rope(torch.zeros(1, 1, F, 2 * H, 2 * W), fps), "DUPLICATED")


def cosmos3(model):
    positions = grid(F, H, W)
    yield table(positions, model.rotary_emb(torch.tensor(positions).T[:, None], CPU, torch.float32), "DUPLICATED")


def helios(model):
    turns = model.rope(torch.arange(FIRST, FIRST + F)[None], H, W, CPU)
    yield table(grid(F, H, W) + [FIRST, 0, 0], turns[0].flatten(1).T.chunk(2, 1))


def framepack(model):
    patch = model.config.patch_size
    turns = model.rope(torch.arange(FIRST, FIRST + F), H * patch, W * patch, CPU)
    yield table(grid(F, H, W) + [FIRST, 0, 0], turns)


def kandinsky5(model):
    scale = (1.0, 2.0, 2.0)
    turns = model.visual_rope_embeddings((1, F, H, W), [torch.arange(size) for size in (F, H, W)], scale)
    yield table(grid(F, H, W) / scale, turns)


def kandinsky6(model):
    scale = model.config.scale_factor
    turns = model.visual_rope_embeddings([torch.arange(size) for size in (F, H, W)], scale)
    yield table(grid(F, H, W) / scale, turns)


def around_middle(points, sizes):
    """Converts points [axes][tokens] in a video of that size to positions [tokens][axes] in -1 .. 1, in float32."""
    return (points.T / torch.tensor(sizes, dtype=torch.float32) * 2 - 1).numpy()


def ltx(model):
    """Patches have 8 frames, at 25 frames per second, and 32 x 32 pixels."""
    points = torch.tensor(grid(F, H, W) * [8 / 25, 32, 32], dtype=torch.float32).T
    turns = model.rope(torch.zeros(1), video_coords=points[None])
    yield table(around_middle(points, (20, 2048, 2048)), turns, largest=1e4 * math.pi / 2)


def ltx2(model):
    """Tables contain all heads side by side."""
    config = model.config
    points = model.rope.prepare_video_coords(1, F, H * config.patch_size, W * config.patch_size, CPU)
    positions = around_middle(points[0].mean(-1), (config.pos_embed_max_pos, config.base_height, config.base_width))
    largest = None if config.rope_double_precision else config.rope_theta * math.pi / 2
    turns = model.rope(points)
    if config.rope_type == "split":
        turns = [each.transpose(1, 2) for each in turns]
        yield table(positions, turns, "HALF_WIDTH", largest, "HALF_SPLIT")
    else:
        yield table(positions, turns, largest=largest)


def minimax_h3(model):
    """Positions are fractional."""
    positions = grid(F, H, W) * [1.25, 0.5, 0.5]
    yield table(positions, model.rope(torch.tensor(positions)), "DUPLICATED")


def sana_wm(model):
    yield table(grid(F, H, W), model.rope((F, H, W)))


def wan_animate2(model):
    """A reference image, placed after the video's frames and columns. Each axis's table begins at its offset."""
    offsets, half = (F, 0, W), model.config.dim // model.config.num_heads // 2
    tables = model._rope_freqs(offsets, CPU).split([half - half // 3 * 2, half // 3, half // 3], 1)
    cells = grid(F, H, W)
    turns = torch.cat([axis[index] for axis, index in zip(tables, torch.tensor(cells).long().T)], 1)
    yield table(cells + offsets, turns)


HEADS = ({"attention_head_dim": 64}, {"attention_head_dim": 40})
HUNYUAN = {"attention_head_dim": 64, "rope_axes_dim": (8, 28, 28), "rope_theta": 1e4}
ROTARY = {"use_rotary_positional_embeddings": True}
CUT = {"patch_size_t": 2, "sample_height": 300, "sample_width": 300}
LTX2 = "LTX2VideoTransformer3DModel SanaWMLTX2RefinerTransformer3DModel"
SINGLE = {"rope_double_precision": False, "num_attention_heads": 5, "attention_head_dim": 64, "rope_theta": 500.0}
PHASE = Expected(8, "1 + the largest phase", 2.0**-24,
                 "torch's float32 powers of theta may be places off, and are multiplied by pi / 2")

ORIGINALS = (
    *alike("SanaVideoTransformer3DModel SkyReelsV2Transformer3DModel WanTransformer3DModel WanAnimateTransformer3DModel"
           " WanVACETransformer3DModel", of_latents(), HEADS, expected=ONCE),
    Original("ChronoEditTransformer3DModel", of_latents(), ({"attention_head_dim": 96, "patch_size": (1, 1, 1)},),
             expected=ONCE),
    *alike("HunyuanVideoTransformer3DModel HunyuanVideo15Transformer3DModel", of_latents(), (HUNYUAN,)),
    Original("HunyuanVideoFramepackTransformer3DModel", framepack, (HUNYUAN,)),
    Original("MotifVideoTransformer3DModel", of_latents(), ({**HUNYUAN, "patch_size_t": 2},), expected=ONCE),
    Original("AllegroTransformer3DModel", allegro,
             ({"attention_head_dim": 48, "interpolation_scale_t": 1.5, "interpolation_scale_h": 3.0},)),
    Original("AnyFlowTransformer3DModel", anyflow, HEADS, expected=FLOAT64),
    Original("AnyFlowFARTransformer3DModel", anyflow_far,
             ({"attention_head_dim": 64, "compressed_patch_size": (2, 8, 4)},), expected=FLOAT64),
    Original("CogVideoXTransformer3DModel", cogvideox(CogVideoXPipeline), ({"attention_head_dim": 128}, CUT), ROTARY),
    Original("ConsisIDTransformer3DModel", cogvideox(ConsisIDPipeline), ({"attention_head_dim": 128},), ROTARY),
    Original("CosmosTransformer3DModel", cosmos, ({"attention_head_dim": 64, "rope_scale": (1.0, 3.0, 3.0)},)),
    Original("Cosmos3OmniTransformer", cosmos3, ({"head_dim": 64, "rope_axes_dim": (12, 10, 10), "rope_theta": 1e6},
                                                 {"rope_scaling": {"mrope_section": [32, 16, 16]}})),
    Original("EasyAnimateTransformer3DModel", easy_animate, ({"attention_head_dim": 128, "patch_size": 1},),
             {"patch_size": 2, "in_channels": 16, "out_channels": 16}),
    Original("HeliosTransformer3DModel", helios, ({"rope_dim": (16, 24, 24), "rope_theta": 256.0},)),
    Original("Kandinsky5Transformer3DModel", kandinsky5, ({"axes_dims": (32, 48, 48), "model_dim": 1792},),
             expected=EXPONENTIALS),
    Original("Kandinsky6Transformer3DModel", kandinsky6,
             ({"axes_dims": (16, 24, 24), "model_dim": 1024, "scale_factor": (1, 3.16, 3.16)},), expected=EXPONENTIALS),
    Original("Kandinsky6SRTransformer3DModel", kandinsky6,
             ({"axes_dims": (8, 28, 28), "scale_factor": (1.5, 3.0, 2.5)},), expected=EXPONENTIALS),
    Original("LTXVideoTransformer3DModel", ltx, ({"num_attention_heads": 5, "attention_head_dim": 32},),
             expected=PHASE),
    *alike(LTX2, ltx2, ({"rope_type": "split", "num_attention_heads": 8, "audio_num_attention_heads": 8},)),
    *alike(LTX2, ltx2, needs=SINGLE, expected=PHASE),
    Original("MiniMaxH3Transformer3DModel", minimax_h3,
             ({"rope_freq_dim": 10, "rope_theta": 300.0, "attention_head_dim": 64},)),
    Original("SanaWMTransformer3DModel", sana_wm, ({"linear_head_dim": 64, "hidden_size": 1280},)),
    Original("WanAnimate2Transformer3DModel", wan_animate2,
             ({"dim": 512, "num_heads": 8}, {"dim": 320, "num_heads": 8}), expected=FLOAT64),
)

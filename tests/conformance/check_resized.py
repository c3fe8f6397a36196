"""Compares learned tables that are resized to an image's patches: each class's own module beside GenerateEmbedding by its
config.json, in the class's roundings and exactly."""

import importlib
import inspect

import numpy
import torch
from table import Row, place_of
from tensors import BF16, FP32, tensor
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

INTERPOLATE = "torch's interpolate and grid_sample have other last bits on each processor"
EXACT = "the original in float64; a float32 next to the middle of two"
TARGETS = ((9, 14), (3, 5), (7, 7), (16, 10))
SMALL = {"hidden_size": 64, "image_size": 98, "patch_size": 14}

# Model types whose module has interpolate_pos_encoding(embeddings, height, width) of pixels, and their packages.
BY_METHOD = {
    "altclip_vision_model": "altclip", "blip_2_vision_model": "blip_2", "blip_vision_model": "blip",
    "bridgetower_vision_model": "bridgetower", "chinese_clip_vision_model": "chinese_clip",
    "clip_vision_model": "clip", "clipseg_vision_model": "clipseg", "deit": "deit", "dinov2": "dinov2",
    "dinov2_with_registers": "dinov2_with_registers", "flava_image_model": "flava", "git_vision_model": "git",
    "groupvit_vision_model": "groupvit", "ijepa": "ijepa", "instructblip_vision_model": "instructblip",
    "instructblipvideo_vision_model": "instructblipvideo", "internvl_vision": "internvl",
    "janus_vision_model": "janus", "kosmos_2_vision_model": "kosmos2", "metaclip_2_vision_model": "metaclip_2",
    "owlv2_vision_model": "owlv2", "owlvit_vision_model": "owlvit", "pixio": "pixio",
    "qianfan_ocr_vision": "qianfan_ocr", "rf_detr_dinov2": "rf_detr", "siglip_vision_model": "siglip",
    "step3p5_vision": "step3p7", "tipsv2_vision_model": "tipsv2", "vit": "vit", "vit_msn": "vit_msn",
    "xclip_vision_model": "x_clip",
}

# These compute in float32, whatever the table's type: there is no float64 to compare exact values with.
IN_FLOAT32 = {"cosmos3_edge_vision", "dinov2", "dinov2_with_registers", "glm4v_moe_vision", "glm4v_vision",
              "glm_image_vision", "hunyuan_vl_vision", "hy_v4_vl_vision", "inkling2_vision", "kimi_k25_vision", "paddleocr_vl_vision", "pixio",
              "rf_detr_dinov2", "siglip2_vision_model", "tipsv2_vision_model", "qwen3_vl_vision", "qwen3_vl_moe_vision",
              "qwen3_5_vision", "qwen3_5_moe_vision", "qwen3_omni_moe_vision_encoder", "qwen4_exp_vision",
              "cohere_compass_vision"}


def rows(service):
    torch.manual_seed(0)
    originals = [(name, by_method(name, package), 4) for name, package in BY_METHOD.items()]
    originals += [("hunyuan_vl_vision", hunyuan, 4), ("hy_v4_vl_vision", hunyuan, 4), ("siglip2_vision_model", siglip2, 4),
                  ("cosmos3_edge_vision", cosmos3_edge, 4), ("vilt", vilt, 4), ("dpt", dpt, 4),
                  ("timesformer", timesformer, 0), ("glm4v_vision", glm, 4), ("glm4v_moe_vision", glm, 4),
                  ("glm_image_vision", glm, 4), ("paddleocr_vl_vision", paddleocr, 0),
                  ("inkling2_vision", inkling2, 0), ("kimi_k25_vision", kimi, 0)]
    originals += [(name, by_encoder(package), 0) for name, package in (
        ("qwen3_vl_vision", "qwen3_vl"), ("qwen3_vl_moe_vision", "qwen3_vl_moe"), ("qwen3_5_vision", "qwen3_5"),
        ("qwen3_5_moe_vision", "qwen3_5_moe"), ("qwen3_omni_moe_vision_encoder", "qwen3_omni_moe"),
        ("qwen4_exp_vision", "qwen4_exp"), ("cohere_compass_vision", "cohere_compass"))]
    for name, original, within in originals:
        yield from compare(service, name, original, within)


@torch.no_grad()
def compare(service, name, original, within):
    """`original(name, dtype)` returns (config, table [N, D], f(height, width) -> [rows, D])."""
    rounded = Row(name, "its roundings", within=within, of="the table's largest element" if within else "",
                  why=INTERPOLATE if within else "")
    exact = Row(name, "in float64", within=1, why=EXACT)
    for dtype in (torch.float32, torch.bfloat16) if within == 0 else (torch.float32,):
        config, table, resize = original(name, dtype)
        sent = tensor(table.float().numpy(), BF16 if dtype == torch.bfloat16 else FP32)
        for height, width in targets_of(config):
            learned = {"table": sent, "resize": {"target": [height, width]},
                       "model": {"config_json": config.to_json_string(use_diff=False).encode()}}
            theirs = resize(height, width)
            ours = service.embedding("MODEL", BF16 if theirs.dtype == torch.bfloat16 else FP32, learned=learned)
            rounded.compare(ours, theirs.float().numpy(), unit=place_of(table.abs().max()) if within else None)
    yield rounded
    if name in IN_FLOAT32:
        return
    config, table, resize = original(name, torch.float64)
    for height, width in targets_of(config):
        learned = {"table": tensor(table.float().numpy(), FP32), "resize": {"target": [height, width]},
                   "model": {"config_json": config.to_json_string(use_diff=False).encode()}}
        exact.compare(service.embedding("EXACT", learned=learned), resize(height, width).numpy().astype(numpy.float32))
    yield exact


def targets_of(config):
    block = config.to_dict().get("spatial_merge_size", 1)
    return [(block * height, block * width) for height, width in TARGETS]


def configure(name, **more):
    config = CONFIG_MAPPING[name]()
    for field, value in (SMALL | more).items():
        if hasattr(config, field):
            setattr(config, field, value)
    return config


def randomize(parameter, dtype):
    """Gives a table random float32 numbers, the same for every type; returns it as [N, D]."""
    values = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    parameter.data = values
    return values.reshape(-1, values.shape[-1])


def modeling(package):
    return importlib.import_module(f"transformers.models.{package}.modeling_{package}")


def table_of(module):
    for name in ("position_embedding", "position_embeddings", "pos_embed"):
        found = getattr(module, name, None)
        if found is not None:
            return found.weight if isinstance(found, torch.nn.Embedding) else found
    raise AttributeError(type(module).__name__)


def by_method(name, package):
    def original(_, dtype):
        config = configure(name)
        if name == "internvl_vision" or name == "qianfan_ocr_vision":
            config.image_size, config.patch_size = [98, 98], [14, 14]
        classes = [found for _, found in inspect.getmembers(modeling(package), inspect.isclass)
                   if "interpolate_pos_encoding" in vars(found) and "Vision" in found.__name__ + "Vision"]
        made = None
        for found in classes:
            try:
                made = found(config)
                break
            except Exception:  # a class of another part of the model
                continue
        table = randomize(table_of(made), dtype)

        def resize(height, width):
            given = torch.zeros(1, table.shape[0], table.shape[1], dtype=dtype)
            return made.interpolate_pos_encoding(given, height * 14, width * 14)[0]
        return config, table, resize
    return original


def hunyuan(name, dtype):
    config = configure(name, max_image_size=98)
    found = next(found for _, found in inspect.getmembers(modeling(name.removesuffix("_vision")), inspect.isclass)
                 if "interpolate_pos_encoding" in vars(found))
    made = found(config)
    table = randomize(made.position_embedding.weight, dtype)

    def resize(height, width):
        cells = made.interpolate_pos_encoding(torch.zeros(1, dtype=dtype), height, width)[0]
        return torch.cat([table[:1].to(cells.dtype), cells])
    return config, table, resize


def siglip2(name, dtype):
    config = configure(name, num_patches=49)
    found = modeling("siglip2").Siglip2VisionEmbeddings
    table = randomize(torch.nn.Parameter(torch.zeros(49, 64)), dtype)
    return config, table, lambda height, width: found.resize_positional_embeddings(
        table.reshape(7, 7, -1), torch.tensor([[height, width]]), height * width)[0]


def cosmos3_edge(name, dtype):
    config = configure(name, num_patches=49)
    found = next(found for _, found in inspect.getmembers(modeling("cosmos3_edge"), inspect.isclass)
                 if hasattr(found, "resize_positional_embeddings"))
    table = randomize(torch.nn.Parameter(torch.zeros(49, 64)), dtype)
    return config, table, lambda height, width: found.resize_positional_embeddings(
        table.reshape(7, 7, -1), torch.tensor([[1, height, width]]), 2)


def vilt(name, dtype):
    config = configure(name)
    made = modeling("vilt").ViltEmbeddings(config).to(dtype)
    table = randomize(made.position_embeddings, dtype)
    made.cls_token.data.zero_()
    made.patch_embeddings.projection.weight.data.zero_()
    made.patch_embeddings.projection.bias.data.zero_()

    def resize(height, width):
        pixels = torch.zeros(1, 3, height * 14, width * 14, dtype=dtype)
        mask = torch.ones(1, height * 14, width * 14)
        rows, _, (cells, _) = made.visual_embed(pixels, mask, max_image_length=-1)  # in a random order
        order = torch.argsort(cells[0, :, 0] * width + cells[0, :, 1])
        return torch.cat([rows[0, :1], rows[0, 1:][order]])
    made.dropout.p = 0
    return config, table, resize


def dpt(name, dtype):
    config = configure(name, is_hybrid=False)
    made = modeling("dpt").DPTViTEmbeddings(config)
    table = randomize(made.position_embeddings, dtype)
    return config, table, lambda height, width: made._resize_pos_embed(made.position_embeddings, height, width)[0]


def timesformer(name, dtype):
    config = configure(name, attention_type="space_only")
    made = modeling("timesformer").TimesformerEmbeddings(config).to(dtype)
    table = randomize(made.position_embeddings, dtype)
    made.cls_token.data.zero_()
    made.patch_embeddings.projection.weight.data.zero_()
    made.patch_embeddings.projection.bias.data.zero_()
    made.pos_drop.p = 0
    return config, table, lambda height, width: made(torch.zeros(1, 1, 3, height * 14, width * 14, dtype=dtype))[0]


def in_blocks(height, width, size):
    """Rows and columns of the patches, in blocks of size x size."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    order = (height // size, size, width // size, size)
    return [x.reshape(order).permute(0, 2, 1, 3).reshape(-1) for x in (rows, columns)]


def glm(name, dtype):
    config = configure(name)
    package = name.removesuffix("_vision")
    found = next(found for _, found in inspect.getmembers(modeling(package), inspect.isclass)
                 if found.__name__.endswith("VisionEmbeddings"))
    made = found(config)
    table = randomize(made.position_embedding.weight, dtype)

    def resize(height, width):
        shapes = torch.tensor([[1, height, width]])
        rows, columns = in_blocks(height, width, config.spatial_merge_size)
        given = torch.zeros(height * width, table.shape[1], dtype=dtype)
        return made(given, [height * width], shapes, rows, columns)
    return config, table, resize


class Stop(Exception):
    pass


def by_encoder(package):
    """Runs a vision model up to the rotation, whose input is the sum of patches and table."""
    def original(name, dtype):
        config = configure(name, num_position_embeddings=49, depth=1, num_heads=2, intermediate_size=64)
        found = next(found for _, found in inspect.getmembers(modeling(package), inspect.isclass)
                     if "fast_pos_embed" in dir(found) or
                     (getattr(found, "config_class", None) or object) and hasattr(found, "forward")
                     and "interp_indices" in inspect.getsource(found.forward))
        made = found(config).to(dtype)
        table = randomize(made.pos_embed.weight, dtype)

        def stop(hidden, *_, **__):
            made.seen = hidden
            raise Stop

        def resize(height, width):
            made.patch_embed.forward = lambda hidden, *_, **__: torch.zeros(height * width, 64, dtype=dtype)
            made.rotary_pos_emb.forward = stop
            try:
                made(torch.zeros(height * width, 64, dtype=dtype), torch.tensor([[1, height, width]]))
            except Stop:
                return made.seen
            raise AssertionError(f"{name}: the rotary module was not called")
        return config, table, resize
    return original


def paddleocr(name, dtype):
    config = configure(name)
    made = modeling("paddleocr_vl").PaddleOCRVisionEmbeddings(config).to(dtype)
    table = randomize(made.position_embedding.weight, dtype)
    made.patch_embedding.weight.data.zero_()
    made.patch_embedding.bias.data.zero_()
    return config, table, lambda height, width: made(
        torch.zeros(1, height * width, 3, 14, 14, dtype=dtype), torch.tensor([[1, height, width]])).reshape(-1, 64)


def inkling2(name, dtype):
    config = configure(name, posemb_grid_size=7)
    found = next(found for _, found in inspect.getmembers(modeling("inkling2"), inspect.isclass)
                 if hasattr(found, "forward") and "interp_indices" in inspect.getsource(found.forward))
    made = found(config).to(dtype)
    table = randomize(made.position_embedding.weight, dtype)
    made.patch_embedding.weight.data.zero_()
    if getattr(made.patch_embedding, "bias", None) is not None:
        made.patch_embedding.bias.data.zero_()

    def resize(height, width):
        pixels = torch.zeros(height * width // 4, 4 * 14 * 14 * 3, dtype=dtype)
        grid = torch.tensor([[1, height, width]])
        pixels = pixels.reshape(-1, 2 * made.patch_size, 2 * made.patch_size, 3)
        return made(pixels, grid, torch.arange(1, height * width + 1))[1:]
    return config, table, resize


def kimi(name, dtype):
    config = configure(name, pos_emb_height=7, pos_emb_width=7)
    made = modeling("kimi_k25").Kimi_K25VisionPositionEmbeddings(config)
    table = randomize(made.position_embeddings, dtype)
    return config, table, lambda height, width: made(torch.zeros(height * width, 64, dtype=dtype),
                                                     torch.tensor([[1, height, width]]))

"""Compares rotations in which heads, tokens or the elements of a pair have entries of their own with the classes' code."""

import json

import numpy
import torch
from posenc.v1 import service_pb2
from table import Row
from tensors import BF16, FP32, array, tensor

WIDTH = 24
HEADS, TOKENS = 3, 40
EXPECTED = "torch's float32 frequencies may be a place off, which the position multiplies; with its own tables: equal"
DTYPES = (torch.float32, torch.bfloat16)


@torch.no_grad()
def rows(service):
    for original in (hunyuan_vl, vjepa2, ernie_image, lightglue, mochi, mixed):
        yield from original(service)


def rotate(service, rotary, q, positions=None, preset="MODEL", **more):
    """q is [1, heads, tokens, width], positions [tokens][axes]."""
    bits = tensor(q.float().numpy(), BF16 if q.dtype == torch.bfloat16 else FP32)
    request = {"rotary": rotary, "q": {"tensor": bits}, "layout": "LAYOUT_BHSD"} | more
    if positions is not None:
        request["positions"] = {"ids": numpy.asarray(positions, "f8"), "axis_dimension": "AXIS_DIMENSION_LAST"}
    return array(service.ask("ApplyRotary", service_pb2.ApplyRotaryRequest(), request, preset).q)


def settings(pairing, **more):
    return {"settings": {"input_pairing": f"PAIRING_{pairing}", **more}}


def given_table(pairing, cos, sin, form="PER_ELEMENT", **more):
    table = {"cos": cos.contiguous(), "sin": sin.contiguous(), "form": f"TABLE_FORM_{form}"} | more
    return settings(pairing, given_table=table)


def of_file(fields):
    return {"model": {"config_json": json.dumps(fields).encode()}}


def queries(width=WIDTH, heads=HEADS):
    for dtype in DTYPES:
        yield torch.randn(1, heads, TOKENS, width).to(dtype)


def compare(row, mine, theirs, largest):
    """float32 within the row's distance; bfloat16 within two places of the largest result."""
    unit = 2.0**-24 * (1 + largest) if theirs.dtype == torch.float32 else 2.0**-8 * float(theirs.abs().max()) / 2
    row.compare(mine, theirs.float().numpy(), unit=unit if row.within else None)


def pair_of_rows(name, what):
    return (Row(name, what, within=4, of="1 + the largest angle", why=EXPECTED), Row(f"{name}, its own tables", what))


def grid(*sizes):
    return numpy.stack([axis.ravel() for axis in numpy.indices(sizes)], -1).astype("f8")[:TOKENS]


def hunyuan_vl(service):
    from transformers.models.hunyuan_vl import modeling_hunyuan_vl as source
    file = {"model_type": "hunyuan_vl_text", "hidden_size": WIDTH * HEADS, "num_attention_heads": HEADS,
            "head_dim": WIDTH, "num_hidden_layers": 1}
    by_file, by_table = pair_of_rows("hunyuan_vl_text", "apply_rotary_pos_emb")
    for block in ({"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 4, 3]},
                  {"rope_type": "xdrope", "rope_theta": 1e4, "alpha": 1000.0, "factor": 1.0, "xdrope_section": [5, 1, 6]},
                  {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e3, "mrope_section": [4, 4, 4]}):
        config = source.HunYuanVLTextConfig(**{key: value for key, value in file.items() if key != "model_type"},
                                            rope_parameters=dict(block))
        embedding = source.HunYuanVLRotaryEmbedding(config)
        axes = len(embedding.mrope_section)
        positions = numpy.random.default_rng(1).integers(0, 300, (TOKENS, axes)).astype("f8")
        for q in queries():
            cos, sin = embedding(q, torch.tensor(positions).long().T[:, None])
            theirs = source.apply_rotary_pos_emb(q, q, cos, sin)[0]
            compare(by_file, rotate(service, of_file(file | {"rope_parameters": block}), q, positions), theirs, 300)
            mine = rotate(service, given_table("HALF_SPLIT", cos.float(), sin.float()), q, preset="VLLM")
            compare(by_table, mine, theirs, 300)
    yield from (by_file, by_table)


def vjepa2(service):
    from transformers.models.vjepa2 import modeling_vjepa2 as source
    by_file, by_table = pair_of_rows("vjepa2", "VJEPA2RopeAttention")
    positions = grid(3, 4, 4)
    for width in (WIDTH, WIDTH + 4, WIDTH + 6):  # the last elements do not turn, then one pair more of each axis does
        fields = {"hidden_size": width * HEADS, "num_attention_heads": HEADS}
        attention = source.VJEPA2RopeAttention(source.VJEPA2Config(**fields), width * HEADS, HEADS)
        file = {"model_type": "vjepa2"} | fields
        for q in queries(width):
            theirs = attention.apply_rotary_embeddings(q, [torch.tensor(axis).long() for axis in positions.T])
            if q.dtype == torch.float32:  # the class computes frequencies in the weights' type
                compare(by_file, rotate(service, of_file(file), q, positions), theirs, 4)
            cos, sin = vjepa2_tables(attention, positions, width, q.dtype)
            rotary = given_table("INTERLEAVED", cos.float(), sin.float())
            compare(by_table, rotate(service, rotary, q, preset="HF_EAGER"), theirs, 4)
    yield from (by_file, by_table)


def vjepa2_tables(attention, positions, width, dtype):
    """Takes the cosines and sines out of the function: they turn (1, 0) and (0, 1) in pairs."""
    def turned(first):
        unit = torch.zeros(1, 1, len(positions), width, dtype=dtype)
        unit[..., first::2] = 1
        return attention.apply_rotary_embeddings(unit, [torch.tensor(axis).long() for axis in positions.T])[0, 0]
    first, second = turned(0), turned(1)  # (cos_a, sin_b) and (-sin_a, cos_b)
    cos, sin = torch.empty_like(first), torch.empty_like(first)
    cos[:, 0::2], sin[:, 1::2] = first[:, 0::2], first[:, 1::2]
    sin[:, 0::2], cos[:, 1::2] = -second[:, 0::2], second[:, 1::2]
    turning = 3 * attention.d_dim
    return cos[None, :, :turning], sin[None, :, :turning]


def ernie_image(service):
    from diffusers.models.transformers import transformer_ernie_image as source
    axes = (4, 12, 8)
    file = {"_class_name": "ErnieImageTransformer2DModel", "hidden_size": WIDTH * HEADS, "num_attention_heads": HEADS,
            "rope_axes_dim": axes, "rope_theta": 256}
    by_file, by_table = pair_of_rows("ErnieImageTransformer2DModel", "its attention processor")
    positions = grid(2, 4, 5) + [7, 0, 0]
    angles = source.ErnieImageEmbedND3(WIDTH, 256, axes)(torch.tensor(positions).float()[None])
    for q in queries():
        theirs = ernie_rotation(source, q, angles)
        compare(by_file, rotate(service, of_file(file), q, positions), theirs, 10)
        cos, sin = (each[:, :, 0].float() for each in (angles.cos().to(q.dtype), angles.sin().to(q.dtype)))
        compare(by_table, rotate(service, given_table("HALF_SPLIT", cos, sin), q, preset="HF_EAGER"), theirs, 10)
    yield from (by_file, by_table)


def ernie_rotation(source, q, angles):
    """Runs the processor with projections that change nothing, and takes the query that attention gets."""
    class Attention:
        heads, norm_q, norm_k, to_out = HEADS, None, None, [torch.nn.Identity()]
        to_q = to_k = to_v = torch.nn.Identity()
    seen = []
    def attention(query, *_, **__):
        seen.append(query)
        return query
    kept, source.dispatch_attention_fn = source.dispatch_attention_fn, attention
    try:
        source.ErnieImageSingleStreamAttnProcessor()(Attention, q.transpose(1, 2).flatten(2), freqs_cis=angles)
    finally:
        source.dispatch_attention_fn = kept
    return seen[0].transpose(1, 2)


def lightglue(service):
    from transformers.models.lightglue import modeling_lightglue as source
    config = source.LightGlueConfig(descriptor_dim=WIDTH * HEADS, num_attention_heads=HEADS)
    encoder = source.LightGluePositionalEncoder(config)
    by_frequencies = Row("LightGlue: given_frequencies", "LightGluePositionalEncoder", within=4,
                         of="1 + the largest angle", why="torch adds the products with one rounding less")
    by_token = Row("LightGlue: rows by token", "LightGluePositionalEncoder")
    points = torch.rand(1, TOKENS, 2) * 2 - 1
    (cos, sin), angles = encoder(points, output_hidden_states=True)
    frequencies = settings("INTERLEAVED", given_frequencies={
        "inv_freq": encoder.projector.weight.double().ravel().tolist(), "axes": 2})
    for q in queries():
        theirs = source.apply_rotary_pos_emb(q, q, cos, sin)[0]
        mine = rotate(service, frequencies, q, points[0].double().numpy(), preset="F32")
        compare(by_frequencies, mine, theirs, float(angles.abs().max()))
        table = given_table("INTERLEAVED", cos, sin, "REPEAT_INTERLEAVED")
        compare(by_token, rotate(service, table, q, preset="F32"), theirs, 0)
    yield from (by_frequencies, by_token)


def mochi(service):
    from diffusers.models.transformers import transformer_mochi as source
    frequencies = torch.randn(3, HEADS, WIDTH // 2)
    rope = source.MochiRoPE()
    cos, sin = rope(frequencies, 2, 4, 5, dtype=torch.float32)
    positions = rope._get_positions(2, 4, 5, dtype=torch.float32)
    by_frequencies = Row("Mochi: given_frequencies", "MochiRoPE, MochiAttnProcessor2_0", within=4,
                         of="1 + the largest angle", why="torch adds the products in another order")
    by_table = Row("Mochi: a table per head", "MochiRoPE, MochiAttnProcessor2_0")
    given = settings("INTERLEAVED", given_frequencies={
        "inv_freq": frequencies.permute(1, 2, 0).double().ravel().tolist(), "heads": HEADS, "axes": 3})
    largest = float(positions.abs().max() * frequencies.abs().max() * 3)
    for q in queries():
        theirs = mochi_rotation(source, q, cos, sin)
        compare(by_frequencies, rotate(service, given, q, positions.numpy(), preset="F32"), theirs, largest)
        table = given_table("INTERLEAVED", cos, sin, "HALF_WIDTH", per_head=True)
        compare(by_table, rotate(service, table, q, positions=grid(TOKENS), preset="F32"), theirs, 0)
    yield from (by_frequencies, by_table)


def mochi_rotation(_, q, cos, sin):
    """The processor's inner function, which is not reachable alone, on q [1, heads, tokens, width]."""
    from diffusers.models import attention_processor
    code = next(constant for constant in attention_processor.MochiAttnProcessor2_0.__call__.__code__.co_consts
                if getattr(constant, "co_name", "") == "apply_rotary_emb")
    apply = type(mochi)(code, vars(attention_processor))
    return apply(q.transpose(1, 2), cos, sin).transpose(1, 2)


def mixed(service):
    from timm.layers import pos_embed_sincos as source
    rope = source.RotaryEmbeddingMixed(WIDTH * HEADS, depth=2, num_heads=HEADS, feat_shape=[5, 8])
    embedding = rope.get_embed([5, 8])
    by_frequencies = Row("RoPE-Mixed: given_frequencies", "timm, RotaryEmbeddingMixed", within=4,
                         of="1 + the largest angle", why="torch's cosine or sine may be a place off")
    by_table = Row("RoPE-Mixed: a table per head", "timm, RotaryEmbeddingMixed")
    positions = torch.stack([rope.t_x, rope.t_y], -1)
    for depth in range(2):
        frequencies = rope.freqs[:, depth].permute(1, 2, 0)  # [heads, pairs, axes]
        given = settings("INTERLEAVED", given_frequencies={
            "inv_freq": frequencies.double().ravel().tolist(), "heads": HEADS, "axes": 2})
        sin, cos = embedding[depth].chunk(2, -1)  # [heads, tokens, width]
        for q in queries():
            theirs = source.apply_rot_embed_cat(q, embedding[depth])
            compare(by_frequencies, rotate(service, given, q, positions.double().numpy(), preset="F32"), theirs, 12)
            table = given_table("INTERLEAVED", cos.transpose(0, 1), sin.transpose(0, 1), "REPEAT_INTERLEAVED",
                                per_head=True)
            compare(by_table, rotate(service, table, q, positions=grid(TOKENS), preset="F32"), theirs, 0)
    yield from (by_frequencies, by_table)

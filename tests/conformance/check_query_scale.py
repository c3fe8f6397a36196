"""Measures factors of queries by position: the classes' own functions and attention modules beside posenc."""

import functools
import json
import math

import torch
import transformers
from posenc.v1 import rotary_pb2, service_pb2
from table import Row
from tensors import BF16, FP16, FP32, array, tensor
from transformers.models.beam import modeling_beam
from transformers.models.llama4 import modeling_llama4
from transformers.models.ministral3 import modeling_ministral3
from transformers.models.mistral4 import modeling_mistral4

from service import fill

DTYPES = {torch.float32: FP32, torch.float16: FP16, torch.bfloat16: BF16}
HEADS, LENGTH = 2, 24
# First tokens of a call: before, across and after the first factors that are not 1, and far away.
FIRST = (0, 8180, 16370, 131060, 1048570, 10_000_000)
LOG_WHY = "of torch's float32 logarithms, up to 2 % are one place off"
ROTATED_WHY = "torch's cosines and sines may be one place off, which moves a rotated element by some places"


def ask(client, source, q, ids, cache_index=None, preset="MODEL"):
    """Rotates q [1, tokens, heads, width], and a copy of it as k, and returns q."""
    x = tensor(numbers(q), DTYPES[q.dtype])
    positions = {"ids": ids.numpy()} | ({} if cache_index is None else {"cache_index": cache_index})
    request = fill(service_pb2.ApplyRotaryRequest(), {
        "rotary": source, "positions": positions, "layout": "LAYOUT_BSHD",
        "precision": preset if isinstance(preset, dict) else {"preset": f"PRECISION_PRESET_{preset}"},
        "q": {"tensor": x}, "k": {"tensor": x}})
    return array(client.call("ApplyRotary", request).q)


def numbers(q):
    """An array of the elements, as ask() returns it."""
    return (q.float() if q.dtype == torch.bfloat16 else q).detach().contiguous().numpy()


def functions():
    """Yields (name, query_scale, the class's own product of q [1, heads, tokens, width] at ids [1, tokens])."""
    for beta, length in ((0.1, 16384), (0.1, 8192), (0.37, 1000), (1.5, 3)):
        def ministral(q, ids, module, beta=beta, length=length):
            return q * module.get_llama_4_attn_scale(ids, beta, length).to(q.dtype)
        for module in (modeling_ministral3, modeling_mistral4):
            yield (module.__name__.rsplit(".")[-1], {
                "function": "QUERY_SCALE_FUNCTION_MINISTRAL3", "llama_4_scaling_beta": beta,
                "original_max_position_embeddings": length, "rounds_factor": True},
                functools.partial(ministral, module=module))
    yield ("modeling_beam", {"function": "QUERY_SCALE_FUNCTION_BEAM"},
           lambda q, ids: (q.float() * modeling_beam.compute_attention_scaling(ids)).to(q.dtype))
    for length in (2048, 8192):
        # The lines of Qwen's modeling_qwen.py on the Hub (use_logn_attn).
        yield ("modeling_qwen", {"function": "QUERY_SCALE_FUNCTION_LOGN", "seq_length": length, "rounds_factor": True},
               lambda q, ids, length=length: q * torch.tensor(
                   [math.log(i, length) if i > length else 1 for i in (ids[0] + 1).tolist()])[None, None, :, None].type_as(q))


def row_of(title, dtype):
    is_wide = dtype == torch.float32
    return Row(title, "transformers", within=2 if is_wide else 0, why=LOG_WHY if is_wide else "")


def of_functions(client):
    rows = {}
    for name, scale, original in functions():
        for dtype in DTYPES:
            title = f"{name}: its factor alone, {str(dtype)[6:]}"
            row = rows.setdefault(title, row_of(title, dtype))
            for first in FIRST:
                ids = first + torch.arange(LENGTH)[None]
                q = torch.randn(1, HEADS, LENGTH, 10).to(dtype)
                precision = {"axes": {"frequencies": "FREQUENCY_ARITHMETIC_FLOAT32",
                                      "table_dtype": "TABLE_DTYPE_TENSOR", "rounding": "ROUNDING_EACH_OPERATION"}}
                ours = ask(client, {"settings": {"query_scale": scale}}, q.transpose(1, 2), ids, preset=precision)
                row.compare(ours, numbers(original(q, ids).transpose(1, 2)))
    return list(rows.values())


class Cache:
    """A cache that has `past` tokens, of which no attention is computed."""

    def __init__(self, past):
        self.past = past

    def get_seq_length(self, _layer=0):
        return self.past

    def update(self, k, v, *_, **__):
        return k, v


CONFIGS = {
    "llama4_text": (transformers.Llama4TextConfig, modeling_llama4.Llama4TextAttention,
                    modeling_llama4.Llama4TextRotaryEmbedding, {"use_qk_norm": False, "floor_scale": 100}),
    "ministral3": (transformers.Ministral3Config, modeling_ministral3.Ministral3Attention,
                   modeling_ministral3.Ministral3RotaryEmbedding, {}),
    "mistral4": (transformers.Mistral4Config, modeling_mistral4.Mistral4Attention,
                 modeling_mistral4.Mistral4RotaryEmbedding, {"qk_rope_head_dim": 16, "qk_nope_head_dim": 16,
                                                            "q_lora_rank": None, "kv_lora_rank": 16}),
    "beam": (transformers.BeamConfig, modeling_beam.BeamAttention, modeling_beam.BeamRotaryEmbedding, {}),
}
SMALL = {"hidden_size": 64, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "num_hidden_layers": 6,
         "head_dim": 32}


def modules():
    """Yields (model type, config, layer, dtype, and a function that returns q before and after the module's own code)."""
    def capture(module, query, _, value, *__, **___):
        module.captured = query
        return torch.zeros_like(value).transpose(1, 2), None
    transformers.AttentionInterface.register("capture", capture)
    for name, (config_class, attention_class, embedding_class, more) in CONFIGS.items():
        config = config_class(**SMALL, **more)
        config._attn_implementation = "capture"
        for layer in (2, 3, 5):
            for dtype in DTYPES:
                attention = attention_class(config, layer).to(dtype).eval()
                embedding = embedding_class(config)

                def run(ids, past, attention=attention, embedding=embedding, config=config, name=name, dtype=dtype):
                    before = []
                    hooked = getattr(attention, "q_norm", None) or attention.q_proj
                    handle = hooked.register_forward_hook(lambda _, __, out: before.append(out))
                    x = torch.randn(1, ids.shape[1], config.hidden_size).to(dtype)
                    labels = {"layer_type": config.layer_types[attention.layer_idx]} if name == "beam" else {}
                    rotates = not labels or config.rope_parameters[labels["layer_type"]] is not None
                    arguments = {"position_embeddings": embedding(x, ids, **labels) if rotates else None}
                    if labels:
                        arguments["attention_scaling"] = None if rotates else modeling_beam.compute_attention_scaling(ids)
                    else:
                        arguments["position_ids"] = ids
                    with torch.no_grad():
                        attention(x, attention_mask=None, cache=Cache(past), **arguments)
                    handle.remove()
                    return before[0].view(1, ids.shape[1], HEADS, -1), attention.captured.transpose(1, 2)
                yield name, config, layer, dtype, run


def of_modules(client):
    rows = {}
    for name, config, layer, dtype, run in modules():
        rotates = {"llama4_text": layer != 3, "beam": layer != 5}.get(name, True)
        title = f"{name}: its attention, {'rotated' if rotates else 'without rotation'}, {str(dtype)[6:]}"
        row = rows.setdefault(title, row_of(title, dtype))
        if rotates and dtype == torch.float32:
            row.within, row.why, row.of = 2, ROTATED_WHY, "the largest element"
        for first in FIRST[:4] if rotates else FIRST:
            ids = first + torch.arange(LENGTH)[None]
            past = first + 7 if name == "llama4_text" else first  # as after padding on the left
            before, after = run(ids, past)
            file = json.dumps(config.to_dict() | {"model_type": name}, default=str).encode()
            source = {"model": {"config_json": file, "layer_index": layer}}
            ours = ask(client, source, before, ids, past)
            row.compare(ours, numbers(after), float(after.abs().max()) * torch.finfo(dtype).eps if row.of else None)
    return list(rows.values())


def rows(service):
    yield from of_functions(service.client)
    yield from of_modules(service.client)

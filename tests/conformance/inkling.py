"""Runs the attention modules of Inkling's classes, and records the relative states, the bias and the queries."""

import dataclasses
import importlib

import numpy
import torch
import transformers
from tensors import tensor

SMALL = {"hidden_size": 48, "num_hidden_layers": 6, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
         "swa_num_attention_heads": 3, "swa_num_key_value_heads": 3, "swa_head_dim": 16, "d_rel": 8, "rel_extent": 20,
         "sliding_window_size": 12, "vocab_size": 32}
CLASSES = {"inkling_text": ("inkling", "Inkling"), "inkling2_text": ("inkling2", "Inkling2"),
           "inkling2_loop_text": ("inkling2_loop", "Inkling2Loop")}
SLIDING = "hybrid_sliding"


class Cache:
    """A cache that has `past` tokens, the first of them evicted, of which no attention is computed."""

    def __init__(self, past, evicted):
        self.past, self.evicted = past, evicted

    def get_mask_sizes(self, query_length, _layer):
        return self.past - self.evicted + query_length, self.evicted

    def get_query_offset(self, _layer):
        return self.past

    def get_conv_state(self, *_, **__):
        return None

    def update_conv_state(self, hidden, *_, **__):
        return hidden

    def update(self, k, v, *_, **__):
        return k, v


@dataclasses.dataclass
class Seen:
    """What a layer's attention computes: r [B, S, H, d_rel], bias [B, H, S, Sk], queries [B, S, H, D] without tau and
    with it, `projection` [d_rel, extent], and the positions that tau and the distances count."""
    states: torch.Tensor
    bias: torch.Tensor
    unscaled: torch.Tensor
    queries: torch.Tensor
    projection: torch.Tensor
    query_positions: numpy.ndarray
    key_positions: numpy.ndarray


def config_of(name, **fields):
    config_class = getattr(transformers, f"{CLASSES[name][1]}TextConfig")
    return config_class(**(SMALL | fields))


def attention_of(config, layer, dtype):
    package, prefix = CLASSES[config.model_type]
    module = importlib.import_module(f"transformers.models.{package}.modeling_{package}")
    kind = "" if prefix == "Inkling" else "Sliding" if config.layer_types[layer] == SLIDING else "Full"
    attention = getattr(module, f"{prefix}{kind}Attention")(config, layer)
    for weight in attention.parameters():
        weight.data.normal_()
    return attention.to(dtype).eval()


@torch.no_grad()
def run(config, layer, dtype, tokens, past, evicted=0, padding=0):
    """Returns what layer `layer` computes for `tokens` tokens. position_ids are `padding` less than the cache's index."""
    seen = {}

    def capture(_, query, __, value, *___, position_bias=None, **____):
        seen.update(query=query, bias=position_bias)
        return torch.zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[-1], dtype=query.dtype), None
    transformers.AttentionInterface.register("capture", capture)
    config._attn_implementation = "capture"
    attention = attention_of(config, layer, dtype)
    heads = attention.num_heads
    places, keys = torch.arange(past, past + tokens), torch.arange(evicted, past + tokens)
    hidden = torch.randn(1, tokens, config.hidden_size).to(dtype)

    def note(name, module, before=False):
        def hook(_, given, result=None):
            seen[name] = given[0] if before else result
        return module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook)
    ids = places - padding
    if config.model_type == "inkling_text":
        note("states", attention.r_proj)
        note("unscaled", attention.q_norm)
        attention(hidden, None, cache=Cache(past, evicted))
        module, counted = attention.rel_logits_proj, 0
    else:
        module, counted = attention.relative_position_bias, padding
        for name, norm in (("states", module.norm), ("unscaled", attention.q_proj.norm)):
            scale = getattr(norm, "log_scale", None)
            note(name, norm if scale is None else scale, before=scale is not None)
        more = {} if config.layer_types[layer] == SLIDING else {
            "key_hidden_states": hidden, "value_hidden_states": hidden}
        attention(hidden, attention_mask=None, relative_distance=places[:, None] - keys, position_ids=ids[None], **more)
    unscaled = seen["unscaled"].view(1, tokens, heads, -1)
    return Seen(seen["states"].view(1, tokens, heads, -1), seen["bias"], unscaled, seen["query"].transpose(1, 2),
                module.proj, (places - counted).numpy(), (keys - counted).numpy())


def scores(service, seen, inkling, dtype, preset):
    """Returns posenc's bias for what an attention saw. `inkling`: fields of the message, without the projection."""
    geometry = {"query_positions": seen.query_positions, "key_positions": seen.key_positions,
                "key_length": len(seen.key_positions)}
    return service.scores(preset, dtype, method={"inkling": inkling | {"projection": seen.projection.float()}},
                          layout="LAYOUT_BSHD", content=False, q=tensor(numbers(seen.states), dtype), geometry=geometry)


def numbers(x):
    """An array of the elements, as the client returns them."""
    return (x.float() if x.dtype == torch.bfloat16 else x).detach().contiguous().numpy()

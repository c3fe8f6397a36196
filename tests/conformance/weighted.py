"""Compares posenc with the release's modules for model types whose weights come with the request."""

import contextlib
import importlib
import inspect
import pathlib
import sys
import unittest.mock

import torch
from transformers import PreTrainedModel
from transformers.models.fastspeech2_conformer import modeling_fastspeech2_conformer
from transformers.models.gemma3n import modeling_gemma3n
from transformers.models.gemma4 import modeling_gemma4
from transformers.models.nemotron_asr_streaming import modeling_nemotron_asr_streaming
from transformers.models.parakeet import modeling_parakeet
from transformers.models.seamless_m4t import modeling_seamless_m4t
from transformers.models.seamless_m4t_v2 import modeling_seamless_m4t_v2
from transformers.models.sew_d import modeling_sew_d
from transformers.models.vits import modeling_vits

import original

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import transformers_relative_scores as recorders  # noqa: E402
from relative_scores import (  # noqa: E402
    config_json, heads_first, projection, random_weights, randomize, softmax_arguments)


@torch.no_grad()
def parakeet(tokens, module, prefix, heads=2, dim=8):
    config = module.__dict__[f"{prefix}Config"](hidden_size=heads * dim, num_attention_heads=heads)
    config._attn_implementation = "eager"
    attention = randomize(getattr(module, f"{prefix}Attention")(config, layer_idx=0))
    hidden = random_weights(2, tokens, heads * dim)
    with softmax_arguments() as scores:
        attention(hidden, getattr(module, f"{prefix}RelPositionalEncoding")(config)(hidden))
    method = {"position": projection(attention.relative_k_proj), "position_bias": attention.bias_v,
              "content_bias": attention.bias_u}
    return {"config": config_json(config), "method": {"transformer_xl": method}, "past": 0, "scores": scores[0],
            "q": heads_first(attention.q_proj(hidden), heads), "k": heads_first(attention.k_proj(hidden), heads)}


def seamless(tokens):
    return recorders.wav2vec2_conformer(
        tokens, model="seamless_m4t", heads_field="speech_encoder_attention_heads",
        attention=modeling_seamless_m4t.SeamlessM4TConformerSelfAttention,
        positions=modeling_seamless_m4t.SeamlessM4TConformerRelPositionalEmbedding)


def seamless_v2(tokens, left, right):
    return recorders.wav2vec2_bert(
        tokens, left, right, model="seamless_m4t_v2", heads_field="speech_encoder_attention_heads",
        attention=modeling_seamless_m4t_v2.SeamlessM4Tv2ConformerSelfAttention)


@torch.no_grad()
def fastspeech2(tokens, heads=2, dim=8):
    module = modeling_fastspeech2_conformer
    config = module.FastSpeech2ConformerConfig(hidden_size=heads * dim, encoder_num_attention_heads=heads)
    settings = {"num_attention_heads": heads, "attention_dropout_rate": 0.0, "positional_dropout_rate": 0.0}
    attention = randomize(module.FastSpeech2ConformerAttention(config, settings))
    hidden, positions = module.FastSpeech2ConformerRelPositionalEncoding(config, settings).eval()(
        random_weights(2, tokens, heads * dim))
    with softmax_arguments() as scores:
        attention(hidden, pos_emb=positions)
    method = {"position": projection(attention.linear_pos), "position_bias": attention.pos_bias_v,
              "content_bias": attention.pos_bias_u}
    return {"config": {"model_type": "fastspeech2_conformer", "hidden_size": heads * dim,
                       "encoder_num_attention_heads": heads},
            "method": {"transformer_xl": method}, "past": 0, "scores": scores[0],
            "q": heads_first(attention.linear_q(hidden), heads), "k": heads_first(attention.linear_k(hidden), heads)}


@torch.no_grad()
def gemma3n_audio(chunk=5, left=3, right=1, heads=2, dim=8):
    config = modeling_gemma3n.Gemma3nAudioConfig(
        hidden_size=heads * dim, conf_num_attention_heads=heads, conf_attention_chunk_size=chunk,
        conf_attention_context_left=left, conf_attention_context_right=right)
    positions = randomize(modeling_gemma3n.Gemma3nAudioRelativePositionEmbedding(config))
    q, k = random_weights(2, 1, chunk, heads, dim), random_weights(2, 1, chunk + left - 1 + right, heads, dim)
    said = {"model_type": "gemma3n_audio", "hidden_size": heads * dim, "conf_num_attention_heads": heads}
    return of_window(said, positions.pos_proj, q, k, positions(q, k)[:, :, 0], left - 1, right)


@torch.no_grad()
def gemma4_audio(chunk=4, left=5, heads=2, dim=8):
    config = modeling_gemma4.Gemma4AudioConfig(
        hidden_size=heads * dim, num_attention_heads=heads, attention_chunk_size=chunk, attention_context_left=left,
        attention_context_right=0)
    attention = modeling_gemma4.Gemma4AudioAttention(config, 0)
    attention.relative_k_proj = randomize(attention.relative_k_proj)
    encoding = modeling_gemma4.Gemma4AudioRelPositionalEncoding(config)(random_weights(1))
    q, k = random_weights(2, 1, chunk, heads, dim), random_weights(2, 1, chunk + left - 1, heads, dim)
    rows = attention.relative_k_proj(encoding).view(-1, heads, dim)
    content = torch.einsum("buwhd,buchd->bhuwc", q, k)
    scores = content + attention._rel_shift(torch.einsum("buwhd,fhd->bhuwf", q, rows))
    said = {"model_type": "gemma4_audio", "hidden_size": heads * dim, "num_attention_heads": heads,
            "attention_chunk_size": chunk, "attention_context_left": left, "attention_context_right": 0}
    return of_window(said, attention.relative_k_proj, q, k, scores[:, :, 0], left - 1, 0)


def of_window(config, projected, q, k, scores, before, after):
    """Returns a record of one block of queries, each of which sees the keys of its window."""
    distance = torch.arange(q.shape[2])[:, None] + before - torch.arange(k.shape[2])
    return {"config": config, "method": {"transformer_xl": {"position": projection(projected)}}, "past": before,
            "scale": 1, "q": q[:, 0].transpose(1, 2), "k": k[:, 0].transpose(1, 2), "scores": scores,
            "seen": (distance <= before) & (distance >= -after)}


@torch.no_grad()
def granite_speech(name, tokens, heads=2, dim=8):
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    kind = "".join(word.capitalize() for word in name.split("_"))
    config = module.__dict__[f"{kind}EncoderConfig"](
        hidden_dim=heads * dim, num_heads=heads, dim_head=dim, context_size=tokens, max_pos_emb=tokens + 2)
    attention = randomize(module.__dict__[f"{kind}ConformerAttention"](config))
    places = torch.arange(tokens)
    hidden, seen = random_weights(2, tokens, heads * dim), []

    def attend(q, k, v, attn_mask, scale):
        seen.extend((q, k, q @ k.transpose(2, 3) * scale + attn_mask))
        return v

    with unittest.mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", attend):
        attention(hidden, places[:, None] - places + config.max_pos_emb)
    return {"config": {"model_type": f"{name}_encoder", "hidden_dim": heads * dim, "num_heads": heads, "dim_head": dim,
                       "max_pos_emb": tokens + 2},
            "method": {"shaw": {"table": attention.rel_pos_emb.weight}}, "past": 0, "q": seen[0], "k": seen[1],
            "scores": seen[2]}


@torch.no_grad()
def vits(tokens, window, heads=2, dim=8):
    config = modeling_vits.VitsConfig(hidden_size=heads * dim, num_attention_heads=heads, window_size=window)
    attention = randomize(modeling_vits.VitsAttention(config))
    hidden = random_weights(2, tokens, heads * dim)
    with softmax_arguments() as scores:
        attention(hidden)
    table = torch.nn.functional.pad(attention.emb_rel_k[0], (0, 0, 1, 1))
    return {"config": {"model_type": "vits", "hidden_size": heads * dim, "num_attention_heads": heads,
                       "window_size": window},
            "method": {"shaw": {"table": table}}, "past": 0, "scores": scores[0].unflatten(0, (2, heads)),
            "q": heads_first(attention.q_proj(hidden), heads), "k": heads_first(attention.k_proj(hidden), heads)}


# Attention with random weights, by model type.
SCORES = {
    "deberta": lambda: recorders.deberta(tokens=6, span=4),
    "deberta-v2": lambda: recorders.deberta_v2(tokens=12, buckets=6, largest=8, share=True),
    "fastspeech2_conformer": lambda: fastspeech2(tokens=6),
    "gemma3n_audio": gemma3n_audio,
    "gemma4_audio": gemma4_audio,
    "granite_speech_encoder": lambda: granite_speech("granite_speech", tokens=7),
    "granite_speech_plus_encoder": lambda: granite_speech("granite_speech_plus", tokens=7),
    "nemotron_asr_streaming_encoder": lambda: parakeet(
        6, modeling_nemotron_asr_streaming, "NemotronAsrStreamingEncoder"),
    "parakeet_encoder": lambda: parakeet(6, modeling_parakeet, "ParakeetEncoder"),
    "seamless_m4t": lambda: seamless(tokens=6),
    "seamless_m4t_v2": lambda: seamless_v2(tokens=7, left=4, right=1),
    "sew-d": lambda: recorders.deberta_v2(tokens=12, buckets=6, largest=8, share=True, model="sew-d",
                                          encoder_class=modeling_sew_d.SEWDTransformerEncoder),
    "speecht5": lambda: recorders.speecht5(tokens=7, length=3),
    "vits": lambda: vits(tokens=7, window=2),
    "wav2vec2-bert": lambda: recorders.wav2vec2_bert(tokens=7, left=4, right=1),
    "wav2vec2-conformer": lambda: recorders.wav2vec2_conformer(tokens=6),
    "xlnet": lambda: recorders.xlnet(tokens=4, past=0),
}
SCORE_TOLERANCE = 3e-6  # for scores around 1, which torch sums in float32
TOKENS = [5, 6, 7]
LENGTH = 200
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers")
NO_TABLE = "its text's table is in a model of its own, and another parameter is called a position's"
# Types whose table is not among the parameters of the model that from_config makes.
ELSEWHERE = {"blip_2_qformer": "Blip2ForImageTextRetrieval has it",
             "speech-encoder-decoder": NO_TABLE,
             "omdet-turbo": NO_TABLE}


def compare_scores(posenc, name):
    """Returns how posenc's scores differ from those of a module with random weights; None without such a module."""
    if name not in SCORES:
        return None
    record = SCORES[name]()
    seen = record.get("seen", torch.ones(1, 1, dtype=torch.bool))
    mine, theirs = posenc.scores(record) * seen, record["scores"] * seen
    if not torch.allclose(mine, theirs, rtol=0, atol=SCORE_TOLERANCE):
        return f"scores differ by {(mine - theirs).abs().max():.2g}"
    return ""


def compare_table(posenc, config, text):
    """Returns how the rows that posenc and the model take from a table differ, or "" if they are the same."""
    if config.model_type in ELSEWHERE:
        raise original.CannotRun(ELSEWHERE[config.model_type])
    model = small_model(config)
    of_text = "input_ids" in inspect.signature(model.forward).parameters  # then the table is an Embedding's
    tables = [rows(weight) for name, weight in model.named_parameters() if is_table(name, weight)]
    tables.sort(key=lambda table: (table.ndim == 3) == of_text)
    if not tables:  # GPT's
        tables = [weight for name, weight in model.named_parameters() if name.endswith("wpe.weight")]
    if not tables:
        raise original.CannotRun("no table of positions was found among the parameters")
    table = torch.randn_like(tables[0].squeeze(0))
    taken = rows_looked_up(model, tables[0])
    mine = posenc.learned_rows(text, table, len(taken))
    return "" if torch.equal(mine, table[taken]) else f"the model takes the rows {taken}"


def is_table(name, weight):
    """Returns whether a parameter is a table of absolute positions, not a weight matrix, by its name and shape."""
    of_images = weight.ndim == 4 and weight.shape[0] == 1 and name.endswith("pos_embed")  # [1, height, width, D]
    return "pos" in name and "rel_pos" not in name and (of_images or weight.squeeze(0).ndim == 2)


def rows(weight):
    return weight.flatten(1, 2) if weight.ndim == 4 else weight


@torch.no_grad()
def compare_stack(posenc, config, text):
    """Returns how T5's bias in a model of one stack differs from posenc's for the same table, or "" if it does not."""
    table, theirs = next(filter(None, map(buckets_of, small_model(config).modules())))
    mine = posenc.bias(text, table, LENGTH)
    return "" if torch.equal(mine, theirs.squeeze(0)) else "the bias differs"


def buckets_of(module):
    """Returns the module's table [buckets, heads] and the bias that it makes from it; None without a table."""
    if hasattr(module, "rel_attn_embed"):  # WavLM's
        return module.rel_attn_embed.weight, module.compute_bias(LENGTH, LENGTH)
    table = getattr(module, "relative_attention_bias", None)
    if table is None:
        return None
    if hasattr(module, "num_segments"):  # CPM-Ant's, which has rows for other segments after these
        tokens = torch.zeros(1, LENGTH, dtype=torch.int64)
        return table[:module.num_buckets], module(tokens, tokens, tokens, tokens)
    if hasattr(module, "compute_bias"):
        return table.weight, module.compute_bias(LENGTH, LENGTH)
    if getattr(module, "scaling_factor", 1) != 1:
        return None  # UDOP's by places of boxes
    if hasattr(module, "compute_position_bias"):
        return table.weight, module.compute_position_bias(torch.zeros(1, LENGTH, 1))
    return table.weight, module(torch.ones(1, LENGTH), None)  # UDOP's by distance of tokens


def compare_windows(config, layers):
    """Returns how Swin v2's windows, by layer, differ from those of its attention, or "" if they do not."""
    attention = [module for module in small_model(config).modules() if hasattr(module, "pretrained_window_size")]
    for layer in layers:
        said = layer["info"]["plan"]["bias"]["swin_v2"]
        for name, field in (("window_size", "window"), ("pretrained_window_size", "pretrained_window")):
            mine = tuple(int(said.get(f"{field}_{side}", 0)) for side in ("height", "width"))
            for n in layer["layer_index"]:
                if mine != tuple(getattr(attention[n], name)):
                    return f"layer {n}: {name} is {getattr(attention[n], name)}, not {mine}"
    return "" if sum(len(layer["layer_index"]) for layer in layers) == len(attention) else "another number of layers"


def small_model(config):
    for name in LAYERS:
        if isinstance(getattr(config, name, None), int):
            with contextlib.suppress(AttributeError, NotImplementedError):
                setattr(config, name, 1)
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    candidates = [item for _, item in inspect.getmembers(module, inspect.isclass)
                  if issubclass(item, PreTrainedModel) and item.config_class is type(config)
                  and item.__module__ == module.__name__ and not item.__name__.endswith("PreTrainedModel")]
    for candidate in sorted(candidates, key=lambda item: ("For" in item.__name__, len(item.__name__))):
        with contextlib.suppress(Exception):
            return candidate(config).eval()
    raise original.CannotRun("no model of this config could be made")


@torch.no_grad()
def rows_looked_up(model, table):
    """Returns the rows that the model looks up for TOKENS; for images, which use the whole table, the first rows."""
    if table.ndim == 3 or "input_ids" not in inspect.signature(model.forward).parameters:
        return list(range(len(TOKENS)))
    seen, embedding = [], torch.nn.functional.embedding

    def note(ids, weight, *arguments, **named):
        if weight is table:
            seen.append(ids.reshape(-1)[:len(TOKENS)].tolist())
        return embedding(ids, weight, *arguments, **named)

    with unittest.mock.patch.object(torch.nn.functional, "embedding", note), contextlib.suppress(Exception):
        model(input_ids=torch.tensor([TOKENS]))
    if not seen:
        raise original.CannotRun("the model looks no position up")
    return seen[0]

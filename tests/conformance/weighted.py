"""Model types whose weights come with the request: posenc's answers to config.json and weights, and the release's modules'."""

import contextlib
import importlib
import inspect
import pathlib
import sys
import unittest.mock

import torch
from transformers import PreTrainedModel
from transformers.models.nemotron_asr_streaming import modeling_nemotron_asr_streaming
from transformers.models.parakeet import modeling_parakeet
from transformers.models.seamless_m4t import modeling_seamless_m4t
from transformers.models.seamless_m4t_v2 import modeling_seamless_m4t_v2
from transformers.models.sew_d import modeling_sew_d

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


# Attention with random weights, by model type.
SCORES = {
    "deberta": lambda: recorders.deberta(tokens=6, span=4),
    "deberta-v2": lambda: recorders.deberta_v2(tokens=12, buckets=6, largest=8, share=True),
    "nemotron_asr_streaming_encoder": lambda: parakeet(
        6, modeling_nemotron_asr_streaming, "NemotronAsrStreamingEncoder"),
    "parakeet_encoder": lambda: parakeet(6, modeling_parakeet, "ParakeetEncoder"),
    "seamless_m4t": lambda: seamless(tokens=6),
    "seamless_m4t_v2": lambda: seamless_v2(tokens=7, left=4, right=1),
    "sew-d": lambda: recorders.deberta_v2(tokens=12, buckets=6, largest=8, share=True, model="sew-d",
                                          encoder_class=modeling_sew_d.SEWDTransformerEncoder),
    "speecht5": lambda: recorders.speecht5(tokens=7, length=3),
    "wav2vec2-bert": lambda: recorders.wav2vec2_bert(tokens=7, left=4, right=1),
    "wav2vec2-conformer": lambda: recorders.wav2vec2_conformer(tokens=6),
    "xlnet": lambda: recorders.xlnet(tokens=4, past=0),
}
SCORE_TOLERANCE = 3e-6  # of scores around 1, which torch sums in float32
TOKENS = [5, 6, 7]
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers")
# Of these the model's own table is not among the parameters of what from_config makes.
ELSEWHERE = {"blip_2_qformer": "Blip2ForImageTextRetrieval has it",
             "omdet-turbo": "its text's table is in a model of its own, and another parameter is called a position's"}


def compare_scores(posenc, name):
    """How posenc's scores differ from those of a module with random weights, or None where there is none to run."""
    if name not in SCORES:
        return None
    record = SCORES[name]()
    mine = posenc.scores(record)
    if not torch.allclose(mine, record["scores"], rtol=0, atol=SCORE_TOLERANCE):
        return f"scores differ by {(mine - record['scores']).abs().max():.2g}"
    return ""


def compare_table(posenc, config, text):
    """How the rows that posenc takes of a table of that size differ from those that the model takes; "": not at all."""
    if config.model_type in ELSEWHERE:
        raise original.CannotRun(ELSEWHERE[config.model_type])
    model = small_model(config)
    tables = [weight for name, weight in model.named_parameters() if "pos" in name and weight.squeeze(0).ndim == 2]
    if not tables:  # GPT's
        tables = [weight for name, weight in model.named_parameters() if name.endswith("wpe.weight")]
    if not tables:
        raise original.CannotRun("no table of positions was found among the parameters")
    table = torch.randn_like(tables[0].squeeze(0))
    rows = rows_looked_up(model, tables[0])
    mine = posenc.learned_rows(text, table, len(rows))
    return "" if torch.equal(mine, table[rows]) else f"the model takes the rows {rows}"


def compare_windows(config, layers):
    """How Swin v2's windows, by layer, differ from those of its attention."""
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
    """Of the first tokens of a text, which torch looks up; of an image, which has the whole table, the first rows."""
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

"""Frequencies and cosine/sine tables of each model's own rotary embedding module."""

import json
import sys

import torch
from torch.overrides import TorchFunctionMode
from transformers import MODEL_MAPPING, AutoConfig
from transformers.models.gptj import modeling_gptj

from golden_json import numbers, origin

POSITIONS = (0, 1, 2, 5, 17, 100, 1023, 4095, 8191, 32767, 131071)

NOTES = {
    "c4ai-command-r-v01": "The module repeats each angle twice (interleaved) instead of putting two halves side by"
    " side. model_max_length 131072 is read by nothing here.",
    "deepseek-v2-lite": "The module returns one complex number a pair; cos and sin are its real and imaginary parts."
    " mscale equals mscale_all_dim, so the tables are not scaled (1.0); the attention module scales the softmax.",
    "deepseek-v3": "mscale equals mscale_all_dim, so the tables are not scaled (1.0); see deepseek_v3.json for the"
    " softmax.",
    "gemma-3-1b-it": "rope_theta goes to full_attention, rope_local_base_freq to sliding_attention.",
    "gemma-3-4b-it": "The file names neither head_dim nor heads nor a theta: 256, 8, 1e6 and 1e4 are the class's"
    " defaults. The linear scaling reaches full_attention only.",
    "glm-4-9b-chat-hf": "The file has no partial_rotary_factor: 0.5 is the class's default. The tables are two equal"
    " halves; apply_rotary_pos_emb takes the first half and pairs neighbours.",
    "gpt-j-6b": "There is no rotary module: create_sinusoidal_positions makes one table of n_positions rows, sine"
    " first. inv_freq is the operand of its only tensor product, caught while it ran. Positions end at n_positions.",
    "gpt-neox-20b": "rotary_pct and rotary_emb_base are this model type's spellings; head_dim 96, 12 pairs.",
    "gpt-oss-20b": "truncate is false: the ramp's ends are not rounded. The module returns one entry a pair.",
    "hunyuan-7b-instruct": "The file says dynamic, but alpha makes it a fixed base, theta*alpha^(d/(d-2)); the"
    " module renames it ntk_alpha and the length has no effect. transformers warns about alpha and the rest.",
    "internlm2_5-7b-chat": "transformers has no internlm2: the file needs the repository's own code.",
    "internlm3-8b-instruct": "transformers runs internlm3 with Llama's modules. Above max_position_embeddings the"
    " new base is computed in float32.",
    "llama-2-7b-dynamic": "Llama-2-7B's file with the rope_scaling block users add for longer texts. Every record is"
    " a fresh module; one that has seen a longer text keeps the grown base until a length below (not at)"
    " max_position_embeddings.",
    "ministral-3-3b-reasoning-2512": "The rope block is in text_config, in the new spelling, with type and rope_type"
    " both present. llama_4_scaling_beta scales the queries in the attention module, not the tables.",
    "mistral-7b-v0.1": "sliding_window does not touch the positions.",
    "olmo-3.1-32b-instruct": "The yarn block reaches full_attention only, with its attention_factor verbatim."
    " sliding_attention keeps the class's theta 500000, which here equals the file's.",
    "phi-2": "head_dim 80, partial_rotary_factor 0.4: 16 pairs.",
    "phi-3-mini-128k-instruct": "The short factors serve up to and including original_max_position_embeddings. The"
    " table's scale comes from max_position_embeddings / original_max_position_embeddings = 32 for both sets.",
    "phi-4-mini-instruct": "head_dim 128, partial_rotary_factor 0.75: 48 pairs, as many as factors.",
    "phi-4-mini-instruct.transformers-5": "The file transformers saves holds partial_rotary_factor and"
    " original_max_position_embeddings both outside and inside the block, and type beside rope_type.",
    "pythia-410m": "rotary_pct and rotary_emb_base are this model type's spellings; head_dim 64, 8 pairs.",
    "qwen2.5-7b-instruct-yarn": "The block is the one the model's README tells users to add.",
    "vicuna-7b-v1.5-16k": "max_sequence_length is read by nothing here; max_position_embeddings stays 4096.",
}


def rotary_file(config_path):
    """The golden file of one config.json."""
    settings = json.loads(config_path.read_text())
    name = config_path.stem
    content = {"origin": origin(NOTES.get(name, "")), "config": config_path.name, "model_type": settings["model_type"]}
    try:
        config = AutoConfig.for_model(**settings).get_text_config()
    except (KeyError, ValueError) as error:
        return content | {"refused": str(error).split(". ")[0]}
    if config.model_type == "gptj":
        return content | {"records": [gptj_record(config)]}
    return content | {"records": [record(config, *case) for case in cases(config)]}


def uses_rotary(config_path):
    return json.loads(config_path.read_text())["model_type"] not in ("bloom", "mpt", "falcon", "t5")


def rotary_class(config):
    """Returns the rotary embedding class from the module of the model that transformers builds for this config."""
    module = sys.modules[MODEL_MAPPING[type(config)].__module__]
    return next(item for name, item in vars(module).items() if name.endswith("RotaryEmbedding"))


def cases(config):
    """Returns (layer_type, seq_len) of every record; seq_len None means that the length has no effect."""
    module = rotary_class(config)(config)
    if isinstance(module.rope_type, dict):
        return [(layer_type, None) for layer_type in module.rope_type]
    longest = config.max_position_embeddings
    if module.rope_type == "dynamic":
        return [(None, length) for length in (1024, longest, longest + 1, 3 * longest + 17, 4 * longest)]
    if module.rope_type == "longrope":
        trained = config.rope_parameters["original_max_position_embeddings"]
        return [(None, length) for length in (1024, trained, trained + 1, longest, longest + 1, 4 * longest)]
    return [(None, None)]


def record(config, layer_type, seq_len):
    """Runs a fresh module once, on positions of which the largest is seq_len - 1."""
    module = rotary_class(config)(config)
    parameters = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
    positions = chosen_positions(config.max_position_embeddings, parameters, seq_len)
    arguments = {} if layer_type is None else {"layer_type": layer_type}
    result = module(torch.zeros(1, dtype=torch.float32), torch.tensor([positions]), **arguments)
    prefix = "" if layer_type is None else f"{layer_type}_"
    inv_freq = getattr(module, f"{prefix}inv_freq")
    layout, cos, sin = one_entry_a_pair(result, inv_freq.numel())
    return {
        "layer_type": layer_type,
        "rope_type": module.rope_type if layer_type is None else module.rope_type[layer_type],
        "seq_len": positions[-1] + 1,
        "seq_len_matters": seq_len is not None,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        "rotary_width": 2 * inv_freq.numel(),
        "table_layout": layout,
        "attention_scaling": getattr(module, f"{prefix}attention_scaling"),
        "inv_freq": numbers(inv_freq),
        "positions": positions,
        "cos": numbers(cos),
        "sin": numbers(sin),
    }


def chosen_positions(longest, parameters, seq_len):
    """Returns the common positions and those around the config's lengths, below seq_len if it is given."""
    trained = parameters.get("original_max_position_embeddings", longest)
    wanted = set(POSITIONS) | {trained - 1, trained, longest - 1, longest}
    if seq_len is not None:
        wanted = {position for position in wanted if position < seq_len} | {seq_len - 1}
    return sorted(wanted)


def one_entry_a_pair(result, pairs):
    """Returns (layout, cos, sin) with one column per pair, from any shape that a module returns."""
    if torch.is_tensor(result):
        return "complex", result[0].real, result[0].imag
    cos, sin = (table[0] for table in result)
    if cos.shape[-1] == pairs:
        return "single", cos, sin
    if torch.equal(cos[:, :pairs], cos[:, pairs:]) and torch.equal(sin[:, :pairs], sin[:, pairs:]):
        return "halves", cos[:, :pairs], sin[:, :pairs]
    assert torch.equal(cos[:, ::2], cos[:, 1::2]) and torch.equal(sin[:, ::2], sin[:, 1::2])
    return "repeated", cos[:, ::2], sin[:, ::2]


class CatchProduct(TorchFunctionMode):
    """Keeps the second operand of the tensor product that runs inside it."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function.__name__ in ("mul", "__mul__"):
            self.operand = arguments[1]
        return function(*arguments, **(keywords or {}))


def gptj_record(config):
    with CatchProduct() as caught:
        table = modeling_gptj.create_sinusoidal_positions(config.n_positions, config.rotary_dim)
    sin, cos = table.split(config.rotary_dim // 2, dim=1)
    positions = chosen_positions(config.n_positions, {}, config.n_positions)
    return {
        "layer_type": None,
        "rope_type": "default",
        "seq_len": config.n_positions,
        "seq_len_matters": False,
        "head_dim": config.n_embd // config.n_head,
        "rotary_width": config.rotary_dim,
        "table_layout": "single",
        "attention_scaling": 1.0,
        "inv_freq": numbers(caught.operand),
        "positions": positions,
        "cos": numbers(cos[positions]),
        "sin": numbers(sin[positions]),
    }

"""Finds the fields that a configuration class and its model read, and changes them in a small config.json."""

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import math
import pathlib
import random
import re
import typing

from transformers import PreTrainedConfig

import check_model_types
import release
from mutation_originals import copied

ABSENT = type("Absent", (), {"__repr__": lambda _: "absent"})()
LAYERS = 6
# Fields that make a model small, where its class has them.
SIZES = {
    "bos_token_id": 1, "d_model": 64, "embed_dim": 64, "eos_token_id": 2, "ffn_dim": 24, "head_dim": 32, "hidden_size": 64,
    "index_head_dim": 64, "index_n_heads": 2, "intermediate_size": 24, "kv_lora_rank": 16, "max_position_embeddings": 4096,
    "mamba_d_head": 32, "mamba_d_state": 4, "mamba_n_heads": 4, "memory_attention_downsample_rate": 1,
    "memory_attention_hidden_size": 64, "memory_attention_num_attention_heads": 1, "mlp_hidden_size": 24, "moe_intermediate_size": 16, "n_embd": 64, "n_group": 1, "n_head": 2, "n_heads": 2,
    "n_layer": LAYERS, "n_layers": LAYERS, "n_positions": 4096, "n_routed_experts": 4, "num_attention_heads": 2,
    "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": LAYERS, "num_key_value_heads": 2,
    "num_heads": 2, "num_layers": LAYERS, "projection_dim": 64, "num_local_experts": 4, "pad_token_id": 0, "q_lora_rank": 16,
    "shared_expert_intermediate_size": 16, "sliding_window": 16, "topk_group": 1, "vocab_size": 32,
}
LATENT = {"qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}
WIDE = {"hidden_size": 256}  # two heads of 128 elements, which mrope_section's defaults divide
# What single types need beside SIZES, or instead (ABSENT), to run.
NEEDS = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "codegen": {"n_ctx": 4096, "n_embd": 128, "n_head": 4, "rotary_dim": 16},
    "cohere_compass_text": WIDE | {"head_dim": 128},
    "cosmos3_edge_text": WIDE | {"head_dim": 128},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2}, "max_seq_len": 4096},
    "deepseek_v4": {"head_dim": 128, "hidden_size": 256},
    "dory": {"n_input_layers": 2, "n_output_layers": 2},
    "dots1": {"n_shared_experts": 1, "first_k_dense_replace": 1},
    "dots3_note_audio_encoder": {"adapter_input_size": 64},
    "dots3_note_vision_encoder": {"adapter_in_dim": 64, "mlp_layer_types": ["dense"] * LAYERS},
    "ernie4_5_vl_moe_text": WIDE | {"moe_intermediate_size": [16, 16]},
    "efficientloftr": {"hidden_size": ABSENT, "num_attention_heads": 8},
    "esm": {"mask_token_id": 3},
    "falcon_h1": {"mamba_d_head": ABSENT, "mamba_n_heads": ABSENT, "mamba_d_state": ABSENT},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "glm4v_moe_text": WIDE | {"head_dim": 128},
    "glm4v_text": WIDE,
    "glm_image_text": WIDE,
    "glm_ocr_text": WIDE | {"rope_parameters": check_model_types.SECTIONS | {"partial_rotary_factor": 0.5}},
    "gptj": {"rotary_dim": 16},
    "gradium_phonon_tts": {"hidden_size": 768},
    "granitemoehybrid": {"layer_types": ["attention"] * LAYERS},
    "hy_v4_vl_text": {"qk_rope_head_dim": 64},  # which the sections fill
    "hunyuan_vl_text": WIDE | {"head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 3},
    "llama4_text": {"floor_scale": 2},  # so that the factors of its queries are not 1
    "longcat_flash": {"head_dim": 16},
    "moonshine_streaming": {"num_key_value_heads": ABSENT},
    "nemotron3_5_transcribe_word_timestamp": {"blank_token_id": 3},
    "paddleocr_vl_text": WIDE | {"head_dim": 128},
    "pocket_tts": {"hidden_size": 1024},
    "qwen2_5_omni_talker": WIDE | {"head_dim": 128},
    "qwen2_5_omni_text": WIDE,
    "qwen2_5_vl_text": WIDE,
    "qwen2_vl_text": WIDE,
    "qwen3_5_moe_text": WIDE | {"head_dim": 256},
    "qwen3_5_text": WIDE | {"head_dim": 256},
    "qwen3_omni_moe_talker_text": WIDE | {"shared_expert_intermediate_size": 16, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [24, 20, 20]}},
    "qwen3_omni_moe_text": WIDE,
    "qwen3_vl_moe_text": WIDE | {"head_dim": 128},
    "qwen3_vl_text": WIDE | {"head_dim": 128},
    "qwen4_exp_text": WIDE | {"head_dim": 256, "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 256,
                              "indexer_budget": 8, "indexer_compress_ratio": 4},
    "zamba2": {"layer_types": ["linear_attention", "hybrid"] * 3},
    "zaya": {"num_experts_per_tok": 1},
}
# Spellings that many classes map from older files, or pass on to the scaling block.
OLDER = ("rope_theta", "rotary_emb_base", "rotary_pct", "partial_rotary_factor", "rotary_dim", "head_dim",
         "original_max_position_embeddings", "rope_interleave", "sliding_window_pattern", "rope_local_base_freq",
         "global_rope_theta", "local_rope_theta", "layer_types")
OF_POSITIONS = re.compile("rope|rotary|theta|head|dim|layer|window|pattern|position|max_|interleav|interval|every|alibi")
# Names for fields with text.
TEXTS = {
    "position_embedding_type": ("rope", "rotary", "nope", "absolute", "relative_key"),
    "position_embeddings_type": ("rotary", "relative", "relative_key"),
    "hidden_act": ("relu",),
}
LAYER_TYPES = ("full_attention", "sliding_attention")

# A legal block of each rope_type, and other values of its fields.
BLOCKS = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    "longrope": {"original_max_position_embeddings": 64},  # with lists of factors
    "proportional": {"partial_rotary_factor": 0.5},
    "axial": {},
}
IN_BLOCK = {
    "rope_theta": (500.0, 123456.0, 1000000),
    "partial_rotary_factor": (0.25, 0.5, 1.0),
    "factor": (0.5, 1.0, 2, 32.0),
    "original_max_position_embeddings": (16, 1024, 4096, 8192),
    "attention_factor": (0.5, 1.0, 1.5),
    "beta_fast": (16, 64.0),
    "beta_slow": (2, 0.5),
    "mscale": (0.0, 0.707, 1.0),
    "mscale_all_dim": (0.0, 0.707, 1.0),
    "truncate": (True, False),
    "low_freq_factor": (0.5, 2.0),
    "high_freq_factor": (2.0, 8.0),
}
READ_BY = {
    "default": ("rope_theta", "partial_rotary_factor"),
    "linear": ("rope_theta", "partial_rotary_factor", "factor"),
    "dynamic": ("rope_theta", "partial_rotary_factor", "factor"),
    "yarn": ("rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings", "attention_factor",
             "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "llama3": ("rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings", "low_freq_factor",
               "high_freq_factor"),
    "longrope": ("rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings", "attention_factor"),
    "proportional": ("rope_theta", "partial_rotary_factor", "factor"),
    "axial": ("rope_theta", "partial_rotary_factor"),
}
# Types that read mrope_section.
SEVERAL_AXES = {name for name, config_class in release.config_classes().items()
                if "mrope_section" in release.source_of(config_class)}
# What classes require in any block: Ministral's factor of queries, with a length below the greatest position.
SCALED = {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 64}
ALSO_IN_BLOCK = {"ministral3": SCALED, "mistral4": SCALED}
BETAS = {rope_type: {"llama_4_scaling_beta": (0.2, 1.0)} for rope_type in BLOCKS}
OF_ONE_CLASS = {"ministral3": BETAS, "mistral4": BETAS,
                "phimoe": {"longrope": {"short_mscale": (1.0, 1.25), "long_mscale": (1.0, 1.25)}},
                "hunyuan_v1_dense": {"dynamic": {"alpha": (2.0, 1000.0)}},
                "hunyuan_v1_moe": {"dynamic": {"alpha": (2.0, 1000.0)}},
                "hunyuan_vl_text": {"dynamic": {"alpha": (2.0, 1000.0)}}}


@dataclasses.dataclass(frozen=True)
class Change:
    """Sets one field of a file: the path of keys, and the value. `beside` sets others that it needs."""
    path: tuple
    value: object
    beside: tuple = ()  # pairs of path and value

    @property
    def field(self):
        return ".".join(self.path)

    def apply(self, file):
        changed = copied(file)
        for path, value in (*self.beside, (self.path, self.value)):
            below = changed
            for key in path[:-1]:
                below = below.setdefault(key, {}) if isinstance(below.get(key), dict) or key not in below else below[key]
            if value is ABSENT:
                below.pop(path[-1], None)
            else:
                below[path[-1]] = copied(value)
        return changed

    def __str__(self):
        others = "".join(f", {'.'.join(path)} = {short(value)}" for path, value in self.beside)
        return f"{self.field} = {short(self.value)}{others}"


def as_json(file):
    return json.dumps(file).encode()


def short(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def small_file(name, config_class):
    """Returns a config.json of a small model, with what its class needs."""
    defaults, fields = config_class(), fields_of_class(config_class)
    needs = NEEDS.get(name, {})
    sizes = SIZES | LATENT if "qk_rope_head_dim" in fields else SIZES
    file = {"model_type": name}
    for field, value in sizes.items():
        if field == "head_dim" and "qk_rope_head_dim" in fields:
            continue
        field = getattr(config_class, "attribute_map", {}).get(field, field)
        given = default_of(defaults, field)
        own = getattr(config_class, field, None)
        if isinstance(own, property) and own.fset is None:  # computed from other fields
            continue
        if type(given) is int or field in fields and given is None:
            file[field] = value
    file |= {field: value for field, value in check_model_types.INSTEAD.get(name, {}).items() if field not in file}
    file |= needs
    return {field: value for field, value in file.items() if value is not ABSENT}


def default_of(config, field):
    try:
        return getattr(config, field, None)
    except Exception:  # a property that the configuration refuses to give
        return None


def fields_of_class(config_class):
    """Returns {name: field} of the class's own signature."""
    common = set(PreTrainedConfig.__dataclass_fields__)
    return {name: field for name, field in config_class.__dataclass_fields__.items() if name not in common}


@functools.cache
def older_spellings(config_class):
    """Returns the names that the classes of a configuration take from a file beside their signature."""
    names = set(getattr(config_class, "attribute_map", {}))
    for each in config_class.__mro__:
        if each.__module__.startswith("transformers.models"):
            source = pathlib.Path(inspect.getsourcefile(each)).read_text()
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (
                        "pop", "get") and node.args and isinstance(node.args[0], ast.Constant):
                    names.add(node.args[0].value)
    return {name for name in names if isinstance(name, str)}


@functools.cache
def read_by_model(config_class):
    """Returns the names of the attributes of configurations that the modeling code beside this class reads."""
    names = set(re.findall(r"config\.(\w+)", release.source_of(config_class)))
    names |= set(re.findall(r'getattr\(\w*\.?config, "(\w+)"', release.source_of(config_class)))
    return {name for name in names if OF_POSITIONS.search(name) and not name.startswith("_")}


def fields_of(config_class):
    """Returns the fields that the class or its model may read, without the scaling blocks."""
    own = fields_of_class(config_class)
    more = (older_spellings(config_class) | read_by_model(config_class) | set(OLDER)) - set(own)
    names = [*own, *sorted(name for name in more if not hasattr(PreTrainedConfig, name))]
    subs = getattr(config_class, "sub_configs", None) or {}
    return [name for name in names if name not in ("rope_parameters", "rope_scaling", "model_type", *subs)]


@functools.cache
def small_config(config_class, text):
    return config_class.from_dict(json.loads(text))


def values_of(name, config_class, file):
    """Returns other legal values of a field."""
    field = fields_of_class(config_class).get(name)
    given = file.get(name, default_of(small_config(config_class, as_json(file)), name))
    kinds = str(field.type) if field is not None else "int | float"
    if name in ("layer_types", "layers_block_type"):
        return layer_lists(given, file)
    if name in TEXTS:
        return list(TEXTS[name])
    if isinstance(given, bool) or given is None and "bool" in kinds:
        return [True, False]
    if isinstance(given, int):
        return unlike(given, (2 * given, given // 2, 1, 3) if OF_POSITIONS.search(name) else (2 * given, 1))
    if isinstance(given, float):
        return unlike(given, (2 * given, given / 2, 0.25) if OF_POSITIONS.search(name) else (2 * given,))
    if isinstance(given, (list, tuple)) and given:
        return lists_like(list(given))
    if isinstance(given, str):
        literal = field is not None and typing.get_origin(field.type) is typing.Literal
        return unlike(given, typing.get_args(field.type)) if literal else []
    if given is not None:
        return []
    if name.startswith("use_"):
        return [True, False]
    if "theta" in name or "base" in name:
        return [500.0, 123456.0]
    if "pct" in name or "factor" in name or "ratio" in name:
        return [0.25, 0.5, 1.0]
    if "list" in kinds:
        return [[1, 0] * (LAYERS // 2), [0] * LAYERS, [1, 3]]
    if "str" in kinds and "int" not in kinds:
        return []
    if name in ("rope_interleave",):
        return [True, False]
    return [1, 3, 16] if "int" in kinds else [0.5, 1.0, 2.0]


def unlike(given, values):
    return [value for value in dict.fromkeys(values) if value != given and value > 0] if not isinstance(
        given, str) else [value for value in values if value != given]


def lists_like(given):
    if any(isinstance(item, float) and not math.isfinite(item) for item in given):
        return []  # not JSON
    lists = [given[::-1], given[:-1], [given[0]] * len(given)]
    if all(type(item) in (int, float) for item in given):
        lists += [[2 * item for item in given], [1 - item if item in (0, 1) else item for item in given]]
    return [item for n, item in enumerate(lists) if item and item != given and item not in lists[:n]]


def layer_lists(given, file):
    """Returns lists of layer types: those of the class in another order, and the usual ones."""
    count = next((file[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if name in file), LAYERS)
    names = list(dict.fromkeys([*(given or ()), *LAYER_TYPES]))
    lists = [[name] * count for name in names]
    lists += [list(itertools.islice(itertools.cycle(pair), count)) for pair in itertools.permutations(names, 2)][:6]
    lists.append([names[0]] * (count - 1))
    return [item for n, item in enumerate(lists) if item != given and item not in lists[:n]]


def changes(name, config_class, file, labels, pairs):
    """Returns all single Changes. `labels`: layer types with blocks of their own; `pairs`: rotated pairs of a head."""
    found = []
    for field in fields_of(config_class):
        values = values_of(field, config_class, file)
        if field in file:
            values.append(ABSENT)
        spelling = getattr(config_class, "attribute_map", {}).get(field)  # another name of this field
        beside = (((spelling,), ABSENT),) if spelling in file else ()
        found += [Change((field,), value, beside) for value in (*values, None)]
        given = file.get(field)
        if isinstance(given, dict):
            found += [Change((field, key), value) for key, value in nested_values(given)]
    return found + block_changes(name, labels, pairs)


def nested_values(given):
    for key, value in given.items():
        if isinstance(value, bool):
            yield key, not value
        elif isinstance(value, (int, float)):
            yield from ((key, 2 * value), (key, value / 2 if isinstance(value, float) else value + 1))
        yield key, ABSENT


def block_changes(name, labels, pairs):
    """Returns Changes of the scaling blocks: in both spellings, of one block, and of one for each layer type."""
    found = []
    for rope_type in BLOCKS:
        block = legal_block(rope_type, pairs) | ALSO_IN_BLOCK.get(name, {})
        old = {"type": rope_type} | {key: value for key, value in block.items() if key != "rope_type"}
        found += [Change(("rope_scaling",), old), Change(("rope_parameters",), block)]
        found.append(Change(("rope_scaling",), without(old, "rope_theta"), ((("rope_theta",), 54321.0),)))
        spellings = itertools.cycle((("rope_scaling", old), ("rope_parameters", block)))
        for (key, value), (spelling, whole) in zip(values_in_block(name, rope_type, block, pairs), spellings):
            found.append(Change((spelling, key), value, (((spelling,), whole),)))
        for label in labels:
            # The other layer types keep a block of their own, with another theta.
            whole = {other: block if other == label else {"rope_type": "default", "rope_theta": 7000.0} for other in labels}
            found.append(Change(("rope_parameters",), whole))
            for key, value in values_in_block(name, rope_type, block, pairs):
                found.append(Change(("rope_parameters", label, key), value, ((("rope_parameters",), whole),)))
    for label in labels:
        whole = {other: {"rope_type": "default", "rope_theta": 7000.0} for other in labels}
        found += [Change(("rope_parameters", label), value, ((("rope_parameters",), whole),)) for value in (None, ABSENT)]
    return found + [Change((name,), value) for name in ("rope_scaling", "rope_parameters") for value in (None, {})]


def legal_block(rope_type, pairs):
    block = {"rope_type": rope_type, "rope_theta": 20000.0} | BLOCKS[rope_type]
    if rope_type == "longrope":
        block |= {"short_factor": [1.0 + n / pairs for n in range(pairs)],
                  "long_factor": [2.0 + n / pairs for n in range(pairs)]}
    return block


def sections_of(name, pairs):
    """Returns values of mrope_section: several for models with axes, one for others, which do not read it."""
    sections = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    return [sections, sections[::-1], [pairs, 0, 0], [pairs // 2, pairs // 2], None] if name in SEVERAL_AXES else [sections]


def without(block, name):
    return {key: value for key, value in block.items() if key != name}


def values_in_block(name, rope_type, block, pairs):
    """Yields (key, other value) for the fields of a block."""
    of_class = OF_ONE_CLASS.get(name, {}).get(rope_type, {})
    for key in (*READ_BY[rope_type], *of_class):
        for value in (*of_class.get(key, IN_BLOCK.get(key, ())), None, *([ABSENT] if key in block else [])):
            if value is ABSENT or block.get(key, ABSENT) != value:
                yield key, value
    if rope_type == "longrope":
        for key in ("short_factor", "long_factor"):
            yield from ((key, [3.0 + n for n in range(pairs)]), (key, ABSENT))
    yield from (("mrope_section", value) for value in sections_of(name, pairs))
    for key in ("mrope_interleaved", "interleaved") if name in SEVERAL_AXES else ():
        yield from ((key, True), (key, False))


def pairs_of(singles, count, seed):
    """Samples pairs of changes of different fields."""
    chosen, found = random.Random(seed), []
    if len(singles) < 2:
        return found
    for _ in range(8 * count):
        one, other = chosen.sample(singles, 2)
        blocks = {one.path[0], other.path[0]} == {"rope_scaling", "rope_parameters"}  # two spellings of one block
        if one.path[0] != other.path[0] and not blocks and len(found) < count:
            found.append((one, other))
    return found

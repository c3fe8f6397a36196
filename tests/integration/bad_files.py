"""config.json files that are broken or contradict themselves, each with the error that names its field.

REFUSED holds cases (name, file, field, reason, value, limit, more): `field` follows config_json in the error's path,
`limit` is a part of the error's limit, and `more` holds further details of the error and fields of the ModelConfig.
NOTED holds cases (name, file, code, field): the file is read, and a note with this code names the field.
"""

import json

FILE = "config_json"
LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 2,
         "max_position_embeddings": 8192}
GEMMA = {"model_type": "gemma3_text", "hidden_size": 2304, "num_attention_heads": 8, "num_hidden_layers": 6}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 2,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
QWEN_VL = {"model_type": "qwen2_vl_text", "hidden_size": 1024, "num_attention_heads": 8}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64, "factor": 4.0,
            "original_max_position_embeddings": 2048}
TYPE = {"rope_type": "default", "rope_theta": 10000.0}


def llama(**changes):
    return {**LLAMA, **changes}


def scaled(block, **changes):
    return llama(rope_scaling=block, **changes)


def without(block, *names):
    return {name: value for name, value in block.items() if name not in names}


def text(file):
    return file if isinstance(file, bytes) else json.dumps(file, indent=1).encode()


def of_tomorrow(**changes):
    """A file of unknown model_type, which is read by the general rules."""
    return {"model_type": "of_tomorrow", "head_dim": 128, "num_hidden_layers": 2, "rope_theta": 1e4, **changes}


def with_text(file, old, new):
    """The file's text with a piece replaced by what Python's json would not write."""
    whole = text(file).decode()
    assert old in whole, (old, whole)
    return whole.replace(old, new).encode()


def at(line, column, **more):
    return {"line": str(line), "column": str(column), **more}


REFUSED = [
    # Text that the parser refuses: the path, the line and the column at which it stops.
    ("empty", b"", "", "MISSING", "absent", "must be given", {}),
    ("blank", b" \n\n ", "", "MALFORMED", "the end of the file", "valid JSON", {"line": "3"}),
    ("too long", b" " * (2 << 20), "", "OUT_OF_RANGE", "2097152 bytes", "must be at most 1048576 bytes", {}),
    ("overflow", b'{\n "model_type": "llama",\n "rope_theta": 1e400}', "rope_theta", "MALFORMED", "1e400", "float64",
     at(3, 16)),
    ("overflow in a block", b'{"rope_scaling": {"factor": -1e999 }}', "rope_scaling.factor", "MALFORMED", "-1e999",
     "float64", at(1, 29)),
    ("overflow in a list", b'{"rope_scaling": {"short_factor": [1, 2, 1e400]}}', "rope_scaling.short_factor[2]",
     "MALFORMED", "1e400", "float64", at(1, 42)),
    ("NaN", b'{"rope_theta": NaN}', "rope_theta", "MALFORMED", None, "valid JSON", at(1, 16)),
    ("Infinity", b'{"a": 1,\n"rope_theta": Infinity}', "rope_theta", "MALFORMED", None, "valid JSON", at(2, 15)),
    ("UTF-16", json.dumps(LLAMA).encode("utf-16"), "", "MALFORMED", "UTF-16 or UTF-32", "must be UTF-8", at(1, 1)),
    ("UTF-16 without a mark", json.dumps(LLAMA).encode("utf-16-le"), "", "MALFORMED", "UTF-16 or UTF-32",
     "must be UTF-8", at(1, 1)),
    ("UTF-32", json.dumps(LLAMA).encode("utf-32-be"), "", "MALFORMED", "UTF-16 or UTF-32", "must be UTF-8", at(1, 1)),
    ("NUL", b'{\n"a": 1}\0', "", "MALFORMED", "text with a NUL byte", "without NUL", at(2, 8)),
    ("not UTF-8", b'{"model_type": "ll\xff"}', "model_type", "MALFORMED", None, "UTF-8", at(1, 19)),
    ("duplicate", b'{"rope_theta": 1,\n  "rope_theta": 2}', "rope_theta", "MALFORMED", "given twice", "once", at(2, 3)),
    ("duplicate in a block", b'{"rope_scaling": {"factor": 2, "factor": 4}}', "rope_scaling.factor", "MALFORMED",
     "given twice", "once", at(1, 32)),
    ("duplicate with an escape", b'{"a\\"b": 1, "a\\"b": 2}', 'a"b', "MALFORMED", "given twice", "once", at(1, 13)),
    ("truncated", b'{"model_type": "llama", "rope_theta": ', "rope_theta", "MALFORMED", "the end of the file",
     "valid JSON", {"line": "1"}),
    ("comment", b'// a comment\n{}', "", "MALFORMED", None, "valid JSON", at(1, 1)),
    ("trailing comma", b'{"model_type": "llama",}', None, "MALFORMED", None, "valid JSON", at(1, 24)),
    ("two values", b'{} {}', "", "MALFORMED", None, "valid JSON", at(1, 4)),
    ("single quotes", b"{'model_type': 'llama'}", "", "MALFORMED", None, "valid JSON", at(1, 2)),
    ("control character", b'{"model_type": "lla\x01ma"}', "model_type", "MALFORMED", None, "valid JSON", at(1, 20)),
    ("deep", b'{"a": ' + b"[" * 100, None, "MALFORMED", "more than 64 levels deep", "at most 64 levels", at(1, 70)),
    ("array", b"[]", "", "MALFORMED", "array", "must be a JSON object", {}),
    ("null", b"null", "", "MALFORMED", "null", "must be a JSON object", {}),

    # Missing fields.
    ("no width", {"model_type": "llama", "hidden_size": 4096}, "head_dim", "MISSING", "absent", "must be given", {}),
    ("no heads", {"model_type": "llama", "num_attention_heads": 0, "hidden_size": 64}, "head_dim", "MISSING", "absent",
     "num_attention_heads above 0", {}),
    ("no factor", scaled({"type": "linear"}), "rope_scaling.factor", "MISSING", "absent", 'rope_type "linear"', {}),
    ("no factor of yarn", scaled(without(YARN, "factor")), "rope_scaling.factor", "MISSING", "absent", "must be given",
     {}),
    ("no low_freq_factor", scaled(without(LLAMA3, "low_freq_factor")), "rope_scaling.low_freq_factor", "MISSING",
     "absent", 'rope_type "llama3"', {}),
    ("no high_freq_factor", llama(rope_parameters=without(LLAMA3, "high_freq_factor")),
     "rope_parameters.high_freq_factor", "MISSING", "absent", 'rope_type "llama3"', {}),
    ("no length of dynamic", without(scaled({"type": "dynamic", "factor": 2.0}), "max_position_embeddings"),
     "max_position_embeddings", "MISSING", "absent", 'rope_type "dynamic"', {}),
    ("no list of longrope", scaled(without(LONGROPE, "long_factor")), "rope_scaling.long_factor", "MISSING",
     "absent", "64", {}),
    ("no block of a layer type", {"model_type": "gemma4_text", "num_hidden_layers": 6,
                                  "rope_parameters": {"full_attention": TYPE}},
     "rope_parameters.sliding_attention", "MISSING", "absent", "must be given", {"layer_type": "sliding_attention"}),
    ("no block of a listed layer type", llama(layer_types=["full_attention", "sliding_attention"],
                                              rope_parameters={"full_attention": TYPE}),
     "rope_parameters.sliding_attention", "MISSING", "absent", "must be given", {}),
    ("no _class_name", {"axes_dims_rope": [16, 56, 56]}, None, "MISSING", "absent", "PAIRING_INTERLEAVED", {}),

    # Wrong types and values.
    ("text for a number", llama(hidden_size="4096"), "hidden_size", "OUT_OF_RANGE", '"4096"', "whole number", {}),
    ("text for theta", llama(rope_theta="1e4"), "rope_theta", "OUT_OF_RANGE", '"1e4"', "a number", {}),
    ("flag for theta", llama(rope_theta=True), "rope_theta", "OUT_OF_RANGE", "true", "a number", {}),
    ("list for theta", llama(rope_theta=[1]), "rope_theta", "OUT_OF_RANGE", "[1]", "a number", {}),
    ("fraction of a head", llama(head_dim=64.5), "head_dim", "OUT_OF_RANGE", "64.5", "whole number", {}),
    ("negative width", llama(head_dim=-64), "head_dim", "OUT_OF_RANGE", "-64", "whole number", {}),
    ("huge width", llama(head_dim=2**41), "head_dim", "OUT_OF_RANGE", str(2**41), "2^40", {}),
    ("wide head", llama(head_dim=2**30), "head_dim", "OUT_OF_RANGE", str(2**30), "must be 1 .. ", {}),
    ("number for a type", llama(model_type=5), "model_type", "OUT_OF_RANGE", "5", "a string", {}),
    ("theta 0", llama(rope_theta=0), "rope_theta", "OUT_OF_RANGE", "0", "above 0", {}),
    ("theta 0 in a block", scaled({**YARN, "rope_theta": 0}), "rope_scaling.rope_theta", "OUT_OF_RANGE", "0", "above 0",
     {}),
    ("theta below 0 by another name", {"model_type": "gpt_neox", "hidden_size": 512, "num_attention_heads": 8,
                                       "rotary_emb_base": -1}, "rotary_emb_base", "OUT_OF_RANGE", "-1", "above 0", {}),
    ("theta of layers", {**GEMMA, "rope_local_base_freq": 0}, "rope_local_base_freq", "OUT_OF_RANGE", "0", "above 0",
     {"layer_type": "sliding_attention"}),
    ("odd head", llama(head_dim=63), "head_dim", "OUT_OF_RANGE", "63", "even", {}),
    ("odd head of two fields", llama(hidden_size=63 * 32), "hidden_size", "OUT_OF_RANGE",
     "63 = hidden_size / num_attention_heads", "even", {"other_field": "num_attention_heads"}),
    ("odd rotary part", {**DEEPSEEK, "qk_rope_head_dim": 63}, "qk_rope_head_dim", "OUT_OF_RANGE", "63", "even", {}),
    ("share above 1", {"model_type": "gpt_neox", "hidden_size": 512, "num_attention_heads": 8, "rotary_pct": 1.5},
     "rotary_pct", "OUT_OF_RANGE", "1.5", "at most 1", {}),
    ("share of 0", {"model_type": "phi", "hidden_size": 512, "num_attention_heads": 8, "partial_rotary_factor": 0},
     "partial_rotary_factor", "OUT_OF_RANGE", "0", "above 0", {}),
    ("share of an odd width", {"model_type": "phi", "hidden_size": 512, "num_attention_heads": 8,
                               "partial_rotary_factor": 0.33}, "partial_rotary_factor", "OUT_OF_RANGE", "0.33", "even",
     {"other_field": "hidden_size"}),
    ("block is text", scaled("linear"), "rope_scaling", "OUT_OF_RANGE", '"linear"', "an object", {}),
    ("block is a list", scaled([1]), "rope_scaling", "OUT_OF_RANGE", "[1]", "an object", {}),
    ("factor is text", scaled({"type": "linear", "factor": "8"}), "rope_scaling.factor", "OUT_OF_RANGE", '"8"',
     "a number", {}),
    ("factor 0", scaled({"type": "linear", "factor": 0}), "rope_scaling.factor", "OUT_OF_RANGE", "0", "above 0", {}),
    ("factor 0 in a new block", llama(rope_parameters={"rope_type": "linear", "factor": 0}), "rope_parameters.factor",
     "OUT_OF_RANGE", "0", "above 0", {}),
    ("factor 0 in a layer's block", {**GEMMA, "rope_parameters": {
        "sliding_attention": TYPE, "full_attention": {"rope_type": "linear", "factor": 0}}},
     "rope_parameters.full_attention.factor", "OUT_OF_RANGE", "0", "above 0", {"layer_type": "full_attention"}),
    ("factor 0 in a part", {"model_type": "llava", "text_config": scaled({"type": "linear", "factor": 0})},
     "text_config.rope_scaling.factor", "OUT_OF_RANGE", "0", "above 0", {"component": "text"}),
    ("type of a scaling", scaled({"type": "quantum", "factor": 2}), "rope_scaling.type", "UNKNOWN_VALUE", "quantum",
     'must be one of "default"', {}),
    ("rope_type of a scaling", scaled({"rope_type": "quantum", "factor": 2}), "rope_scaling.rope_type", "UNKNOWN_VALUE",
     "quantum", 'must be one of "default"', {}),
    ("unknown field", scaled({"type": "linear", "factor": 2, "warp": 9}), "rope_scaling.warp", "UNKNOWN_FIELD", "9",
     'rope_type "linear"', {}),
    ("misspelled field", scaled({**YARN, "bets_fast": 16}), "rope_scaling.bets_fast", "UNKNOWN_FIELD", "16", "yarn",
     {}),
    ("field of another scaling", scaled({"type": "linear", "factor": 2, "beta_fast": 32}), "rope_scaling.beta_fast",
     "NOT_READ", "present", "linear", {}),
    ("short list", scaled({**LONGROPE, "short_factor": [1.0]}), "rope_scaling.short_factor", "MISMATCH", "1 values",
     "64", {}),
    ("every 0th layer", {"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 6,
                         "global_attn_every_n_layers": 0}, "global_attn_every_n_layers", "OUT_OF_RANGE", "0", "at least 1",
     {"layer_type": "full_attention"}),
    ("every 0th layer without", {"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 4,
                                 "no_rope_layer_interval": 0}, "no_rope_layer_interval", "OUT_OF_RANGE", "0", "at least 1",
     {}),
    ("text in a list", scaled({**LONGROPE, "long_factor": [1.0, "2"]}), "rope_scaling.long_factor[1]", "OUT_OF_RANGE",
     '"2"', "a number", {}),
    ("0 in a list", scaled({**LONGROPE, "long_factor": [2.0] * 63 + [0]}), "rope_scaling.long_factor[63]",
     "OUT_OF_RANGE", "0", "above 0", {}),
    ("two sections", {**QWEN_VL, "rope_scaling": {"type": "mrope", "mrope_section": [32, 32]}},
     "rope_scaling.mrope_section", "MISMATCH", "2 values", "must be 3 values", {}),
    ("no sections", {**QWEN_VL, "rope_scaling": {"type": "mrope", "mrope_section": []}}, "rope_scaling.mrope_section",
     "MISMATCH", "0 values", "must be 3 values", {}),
    ("half a section", {**QWEN_VL, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24.5, 23.5]}},
     "rope_scaling.mrope_section[1]", "OUT_OF_RANGE", "24.5", "whole number", {}),
    ("sections of another width", {**QWEN_VL, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 25]}},
     "rope_scaling.mrope_section[2]", "OUT_OF_RANGE", "25", "rotary_dim/2 = 64", {}),
    ("sections of a model with one axis", scaled({"type": "default", "mrope_section": [16, 24, 24]}),
     "rope_scaling.mrope_section", "UNKNOWN_FIELD", "[16,24,24]", "must be absent", {}),
    ("unknown layer type", {**GEMMA, "layer_types": ["full_attention"] * 5 + ["lateral_attention"]}, "layer_types[5]",
     "UNKNOWN_VALUE", "lateral_attention", "layer type", {"layer_type": "full_attention"}),
    ("number for a layer type", {**GEMMA, "layer_types": ["full_attention", 1]}, "layer_types[1]", "OUT_OF_RANGE", "1",
     "a string", {}),
    ("one rotation of too few layers", {"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 4,
                                        "no_rope_layers": [1, 0]}, "no_rope_layers", "MISMATCH", "2 entries", "4", {}),
    ("too many layers", llama(num_hidden_layers=10**6), "num_hidden_layers", "OUT_OF_RANGE", "1000000",
     "at most 100000", {}),
    ("rotary embedding switched off", {"model_type": "zamba2", "attention_head_dim": 64, "use_mem_rope": False},
     "use_mem_rope", "UNSUPPORTED", "false", "must be true", {}),
    ("model without rotary embedding", {"model_type": "mamba"}, "model_type", "UNSUPPORTED", "mamba", "must have", {}),
    ("model with a bias", {"model_type": "bloom", "n_head": 8}, None, "UNSUPPORTED", "present", "GenerateBias", {}),

    # Two fields that contradict each other.
    ("low above high", scaled({**LLAMA3, "low_freq_factor": 4.0, "high_freq_factor": 1.0}),
     "rope_scaling.high_freq_factor", "OUT_OF_RANGE", "1", "low_freq_factor, 4",
     {"other_field": "rope_scaling.low_freq_factor"}),
    ("slow above fast", scaled({**YARN, "beta_fast": 1, "beta_slow": 32}), "rope_scaling.beta_fast", "OUT_OF_RANGE",
     "1", "beta_slow, 32", {"other_field": "rope_scaling.beta_slow"}),
    ("two types", scaled({"type": "linear", "rope_type": "dynamic", "factor": 2}), "rope_scaling.type", "CONFLICT",
     "linear", "dynamic", {"other_field": "rope_scaling.rope_type"}),
    ("two blocks", scaled({"type": "linear", "factor": 2}, rope_parameters={"rope_type": "linear", "factor": 4}),
     "rope_scaling", "CONFLICT", None, "rope_parameters", {"other_field": "rope_parameters"}),
    ("one block for layer types", {"model_type": "gemma4_text", "num_hidden_layers": 6, "rope_parameters": TYPE},
     "rope_parameters", "CONFLICT", "one block", "per layer type", {}),
    ("widths of a layer type", {"model_type": "gemma4_text", "num_hidden_layers": 3, "rope_parameters": {
        "sliding_attention": TYPE, "full_attention": TYPE}, "layer_types": ["sliding_attention"] * 3, "per_layer_config": {
            "0": {"head_dim": 64}, "1": {"head_dim": 128}}}, "per_layer_config.1.head_dim", "CONFLICT", "128",
     "must be 64", {"other_field": "per_layer_config.0.head_dim"}),

    # Files of unknown model types.
    ("DeepSeek's fields, no class", {**without(DEEPSEEK, "model_type"), "model_type": "kimi_of_tomorrow"}, None,
     "MISSING", "absent", "multi-head latent attention", {}),
    ("nothing known", {"model_type": "of_tomorrow", "head_dim": 64}, "model_type", "UNSUPPORTED", "of_tomorrow",
     "rope_theta", {"input_pairing": 2}),
    ("unknown type in many bytes", {"model_type": "\ufffd" * 20, "head_dim": 64}, "model_type", "UNSUPPORTED",
     "\ufffd" * 20, "rope_theta", {"input_pairing": 2}),
    # A scaling that the general rules do not know: the layers would rotate by other frequencies than the model's.
    ("Mistral's block", {"head_dim": 128, "rope_theta": 1e6, "yarn": {"factor": 36, "beta": 32, "alpha": 1,
                                                                      "original_max_position_embeddings": 8192}},
     "yarn", "UNSUPPORTED", None, "rope_scaling or rope_parameters", {"input_pairing": 1}),
    ("scaling beside the block", of_tomorrow(rope_scaling_type="yarn"), "rope_scaling_type", "UNSUPPORTED", '"yarn"',
     "no other scaling", {"input_pairing": 2}),
    ("block of another name", of_tomorrow(position_scaling={"original_max_position_embeddings": 4096, "factor": 4}),
     "position_scaling", "UNSUPPORTED", None, "no other scaling", {"input_pairing": 2}),
    ("unknown diffusers class", {"_class_name": "TransformerOfTomorrow"}, "_class_name", "UNSUPPORTED",
     "TransformerOfTomorrow", "must be a known class", {}),
    ("diffusers theta", {"_class_name": "BriaTransformer2DModel", "rope_theta": 0}, "rope_theta", "OUT_OF_RANGE", "0",
     "above 0", {}),
    ("odd axis of a diffusers file", {"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 55, 57]},
     "axes_dims_rope[1]", "OUT_OF_RANGE", "55", "even", {}),
    ("odd axes of a diffusers file", {"_class_name": "CogView4Transformer2DModel", "attention_head_dim": 30},
     "attention_head_dim", "OUT_OF_RANGE", "15 elements per axis", "even", {}),
    ("odd head of a diffusers file", {"_class_name": "AceStepTransformer1DModel", "head_dim": 63}, "head_dim",
     "OUT_OF_RANGE", "63", "even", {}),
    ("odd axes of an image", {"model_type": "pixtral", "head_dim": 30}, "head_dim", "OUT_OF_RANGE",
     "15 elements per axis", "even", {}),
    ("diffusers widths", {"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, "56", 56]},
     "axes_dims_rope[1]", "OUT_OF_RANGE", '"56"', "a number", {}),
]

# Errors about the choice within a good file, named in the request: (name, file, choice, field, reason, value, limit).
CHOICES = [
    ("no choice of layers", GEMMA, {}, "layer_type", "MISSING", "absent", '"sliding_attention", "full_attention"'),
    ("layer type", GEMMA, {"layer_type": "lateral"}, "layer_type", "UNKNOWN_VALUE", "lateral",
     '"sliding_attention", "full_attention"'),
    ("layer index", GEMMA, {"layer_index": 6}, "layer_index", "OUT_OF_RANGE", "6", "must be 0 .. 5"),
    ("layer index that lies in two groups", {"model_type": "ultrabert", "hidden_size": 512, "num_attention_heads": 8},
     {"layer_index": 1}, "layer_index", "NOT_READ", "1", "must be absent"),
    ("part", LLAMA, {"component": "vision"}, "component", "UNKNOWN_VALUE", "vision", '"text"'),
    ("part of a diffusers file", {"_class_name": "FluxTransformer2DModel"}, {"component": "text"}, "component",
     "UNKNOWN_VALUE", "text", "must be absent"),
    ("pairing", {"model_type": "of_tomorrow", "head_dim": 64, "rope_theta": 1e4}, {}, "input_pairing", "MISSING",
     "absent", "PAIRING_INTERLEAVED or PAIRING_HALF_SPLIT"),
]

NOTED = [
    ("heads that do not divide the width", llama(hidden_size=100, num_attention_heads=6), "ROUNDED_DOWN",
     "hidden_size"),
    ("ALiBi beside a rotary embedding", {"model_type": "falcon", "alibi": True, "num_attention_heads": 8,
                                         "hidden_size": 512, "rope_theta": 10000.0}, "NOT_USED", "rope_theta"),
    ("ALiBi of a class without", llama(alibi=True), "NOT_USED", "alibi"),
    ("ALiBi beside a scaling", {"model_type": "falcon", "alibi": True, "num_attention_heads": 8, "hidden_size": 512,
                                "rope_scaling": {"type": "linear", "factor": 2.0}}, "NOT_USED", "rope_scaling"),
    ("chunks", llama(dual_chunk_attention_config={"chunk_size": 262144}), "NOT_USED", "dual_chunk_attention_config"),
    ("unknown vision part", llama(vision_config={"model_type": "of_tomorrow", "hidden_size": 64}), "NOT_READ",
     "vision_config"),
    ("vision part of another spelling", llama(visual={"layers": 24, "width": 1664}), "NOT_READ", "visual"),
    ("factor of other lengths", scaled({**YARN, "factor": 8.0}), "LENGTHS_DISAGREE", "rope_scaling.factor"),
    ("factor of longrope's other lengths", scaled({**LONGROPE, "factor": 2.0}), "LENGTHS_DISAGREE",
     "rope_scaling.factor"),
    ("default block of a layer type", {**GEMMA, "rope_parameters": {"full_attention": TYPE}}, "DEFAULTED",
     "rope_parameters.sliding_attention"),
    ("types of fewer layers", {**GEMMA, "layer_types": ["full_attention"] * 4}, "LAYERS_DISAGREE", "layer_types"),
    ("DeepSeek by its code", {**without(DEEPSEEK, "model_type"), "model_type": "kimi_k2", "auto_map": {
        "AutoConfig": "configuration_deepseek.DeepseekV3Config"}}, "RECOGNIZED", "model_type"),
    ("Llama by its class", {**without(LLAMA, "model_type"), "architectures": ["LlamaForCausalLM"]}, "RECOGNIZED",
     "model_type"),
    ("a ratio of tomorrow", of_tomorrow(rope_ratio=8), "NOT_USED", "rope_ratio"),
    ("layers of tomorrow", of_tomorrow(no_rope_layers=[1, 0]), "NOT_USED", "no_rope_layers"),
    ("local theta of tomorrow", of_tomorrow(rope_local_base_freq=1e4), "NOT_USED", "rope_local_base_freq"),
    ("layers by theta of tomorrow", of_tomorrow(layer_rope_theta=[1e4, 0]), "NOT_USED", "layer_rope_theta"),
    ("types of layers of tomorrow", of_tomorrow(first_k_dense_replace=1), "NOT_USED", "first_k_dense_replace"),
    ("two widths of tomorrow", of_tomorrow(partial_rotary_factor=0.25, rotary_dim=64), "NOT_USED", "rotary_dim"),
    ("rotary_dim of a class without", llama(rotary_dim=64), "NOT_USED", "rotary_dim"),
    ("rotary_dim of MiniMax", {"model_type": "minimax", "head_dim": 128, "rotary_dim": 64}, "NOT_USED", "rotary_dim"),
    ("Nomic's factor", {"model_type": "nomic_bert", "hidden_size": 768, "num_attention_heads": 12,
                       "rotary_scaling_factor": 2}, "NOT_USED",
     "rotary_scaling_factor"),
    ("tower with two encodings", {"model_type": "qwen3_vl_vision", "hidden_size": 1152, "num_heads": 16},
     "NOT_PART_OF_ROTATION", "model_type"),
    ("number beside the blocks", {**GEMMA, "rope_parameters": {
        "sliding_attention": TYPE, "full_attention": TYPE, "original_max_position_embeddings": 4096}}, "NOT_USED",
     "rope_parameters.original_max_position_embeddings"),
    ("two thetas", scaled({"type": "default", "rope_theta": 5e5}, rope_theta=1e6), "NOT_USED", "rope_theta"),
    ("odd share of a head", {"model_type": "gpt_neox", "hidden_size": 512, "num_attention_heads": 8, "rotary_pct": 0.33},
     "WIDTH_ROUNDED_UP", "rotary_pct"),
]

"""Compares model types whose code comes with their weights, by the config.json of a release: with vLLM's own classes, and
with results of the released code, which remote_code.json keeps.

Each entry of that file has the name of the code's file, the config.json, positions (one list, or one per axis), the length
seq_len of the sequence, and the result for one head of queries by recorded_queries(). It was run with torch 2.15 on a CPU in
float32; TeleChat2's own rounding of tables to float16 was left out."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
from posenc.v1 import service_pb2
from safetensors import safe_open
from table import Row
from tensors import FP32, array, tensor

RECORDED = "the released code, run once in float32: remote_code.json"
WHY = "vLLM's classes in float32; torch's frequencies may be a place off, which the position multiplies"
POSITIONS = [0, 1, 2, 7, 40, 129, 250, 300]
LONG = [0, 5, 300, 4097, 20000, 32000]

HEAD = {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 4}  # of 128 elements
LATENT = HEAD | {"kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                 "v_head_dim": 128}
GLM = {"model_type": "chatglm", "hidden_size": 256, "num_attention_heads": 2, "kv_channels": 128, "num_layers": 4,
       "multi_query_attention": True, "multi_query_group_num": 2, "original_rope": True, "seq_length": 32768}
YARN = {"factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1, "type": "yarn"}
PARAMS = {"dim": 256, "n_layers": 4, "head_dim": 128, "hidden_dim": 512, "n_heads": 2, "n_kv_heads": 2, "norm_eps": 1e-5,
          "vocab_size": 64, "rope_theta": 1e6}
MINISTRAL = PARAMS | {"max_position_embeddings": 262144,
                      "llama_4_scaling": {"original_max_position_embeddings": 16384, "beta": 0.1}}
LONG_FACTORS = {"short_factor": [1 + n / 64 for n in range(64)], "long_factor": [1 + n / 4 for n in range(64)]}
STEP = HEAD | {"model_type": "step3p5", "head_dim": 128, "max_position_embeddings": 262144,
               "rope_theta": [5e6, 1e4, 1e4, 1e4],
               "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0], "yarn_only_types": ["full_attention"],
               "layer_types": ["full_attention"] + 3 * ["sliding_attention"],
               "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 131072,
                                "low_freq_factor": 1.0, "high_freq_factor": 32.0}}
V4 = {"model_type": "deepseek_v4", "hidden_size": 1024, "num_attention_heads": 2, "num_hidden_layers": 4, "head_dim": 512,
      "qk_rope_head_dim": 64, "max_position_embeddings": 1048576, "rope_theta": 10000, "compress_rope_theta": 160000,
      "rope_scaling": YARN, "compress_ratios": [0, 0, 4, 128]}

# (name, config.json, what the call adds). A part: "component"; a layer: "layer_index".
CASES = (
    ("chatglm: ChatGLM2", GLM, {}),
    ("chatglm: ChatGLM3-32k", GLM | {"rope_ratio": 50}, {}),
    ("chatglm: GLM-4 chat", GLM | {"rope_ratio": 500, "seq_length": 131072}, {}),
    ("chatglm: CogAgent", GLM | {"original_rope": False, "seq_length": 8192}, {}),
    ("internlm2: InternLM2", HEAD | {"model_type": "internlm2", "rope_theta": 1e6, "max_position_embeddings": 32768}, {}),
    ("internlm2: linear", HEAD | {"model_type": "internlm2", "rope_theta": 1e6, "max_position_embeddings": 32768,
                                  "rope_scaling": {"type": "linear", "factor": 2.0}}, {}),
    ("minicpm: MiniCPM-2B", HEAD | {"model_type": "minicpm", "max_position_embeddings": 4096}, {}),
    ("minicpm: MiniCPM4", HEAD | {"model_type": "minicpm", "max_position_embeddings": 65536, "rope_theta": 10000.0,
                                  "rope_scaling": LONG_FACTORS | {
                                      "rope_type": "longrope", "original_max_position_embeddings": 32768}},
     {"max_model_len": 65536}),
    ("minicpm3: MiniCPM3", LATENT | {
        "model_type": "minicpm3", "qk_rope_head_dim": 32, "max_position_embeddings": 32768, "rope_theta": 10000.0,
        "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 32768,
                         **{name: values[:16] for name, values in LONG_FACTORS.items()}}}, {}),
    ("exaone: EXAONE 3.5", HEAD | {
        "model_type": "exaone", "rope_theta": 1e6, "max_position_embeddings": 32768, "head_dim": 128,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}}, {}),
    ("telechat: TeleChat2", {"model_type": "telechat", "hidden_size": 256, "n_head": 2, "n_layer": 4,
                             "training_seqlen": 8192, "base_seqlen": 8192}, {}),
    ("telechat3: TeleChat3-36B", HEAD | {
        "model_type": "telechat3", "head_dim": 128, "max_position_embeddings": 32768, "rope_theta": 1e6,
        "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 4.0, "original_max_position_embeddings": 8192,
                         "rope_type": "telechat3-yarn", "type": "telechat3-yarn"}}, {}),
    ("bailing_moe: Ling-lite", HEAD | {"model_type": "bailing_moe", "head_dim": 128, "max_position_embeddings": 32768,
                                       "rope_theta": 600000, "rope_scaling": None}, {}),
    ("bailing_moe_v2: Ling-mini-2.0", HEAD | {
        "model_type": "bailing_moe_v2", "head_dim": 128, "max_position_embeddings": 32768, "rope_theta": 600000,
        "partial_rotary_factor": 0.5}, {}),
    ("bailing_moe_v2: Ling-2.0 with YaRN", HEAD | {
        "model_type": "bailing_moe_v2", "head_dim": 128, "max_position_embeddings": 32768, "rope_theta": 600000,
        "partial_rotary_factor": 0.5,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, {}),
    ("bailing_hybrid: Ling-2.5", LATENT | {
        "model_type": "bailing_hybrid", "max_position_embeddings": 131072, "rope_theta": 6e6, "partial_rotary_factor": 0.5,
        "head_dim": 128, "layer_group_size": 4}, {"layer_index": 3, "interleaved": True}),
    ("PanguEmbedded: openPangu-Embedded-7B", HEAD | {"model_type": "PanguEmbedded", "max_position_embeddings": 32768,
                                                     "rope_theta": 16e6}, {}),
    ("pangu_ultra_moe: openPangu-Ultra-MoE", LATENT | {"model_type": "pangu_ultra_moe", "max_position_embeddings": 131072,
                                                       "rope_theta": 25600000}, {"interleaved": True}),
    ("kimi_vl: Kimi-VL", {"model_type": "kimi_vl", "text_config": LATENT | {
        "model_type": "deepseek_v3", "max_position_embeddings": 131072, "rope_theta": 800000.0}},
     {"component": "text", "interleaved": True}),
    ("kimi_vl: vision", {"model_type": "kimi_vl", "text_config": LATENT | {"model_type": "deepseek_v3"}, "vision_config": {
        "model_type": "moonvit", "hidden_size": 144, "num_attention_heads": 2, "num_hidden_layers": 2, "patch_size": 14}},
     {"component": "vision", "axes": 2}),
    ("deepseek_vl_v2: small", {"model_type": "deepseek_vl_v2", "language_config": LATENT | {
        "model_type": "deepseek_v2", "max_position_embeddings": 4096}}, {"component": "language", "interleaved": True}),
    ("deepseek_vl_v2: tiny", {"model_type": "deepseek_vl_v2", "language_config": HEAD | {
        "model_type": "deepseek_v2", "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "use_mla": False, "v_head_dim": 0,
        "kv_lora_rank": None, "max_position_embeddings": 4096}}, {"component": "language"}),
    ("step3_vl: Step3", {"model_type": "step3_vl", "text_config": {
        "model_type": "step3_text", "hidden_size": 512, "num_attention_heads": 2, "num_attention_groups": 1,
        "num_hidden_layers": 4, "head_dim": 256, "share_q_dim": 256, "max_position_embedding": 65536, "rope_theta": 500000}},
     {"component": "text"}),
    ("step3p5: full attention", STEP, {"layer_index": 0}),
    ("step3p5: sliding attention", STEP, {"layer_index": 1}),
    ("orion: Orion-14B", HEAD | {"model_type": "orion", "max_position_embeddings": 4096, "rope_theta": 10000.0}, {}),
    *((f"plamo3: layer {layer}", HEAD | {
        "model_type": "plamo3", "head_dim": 128, "window_size": 2048, "sliding_window_pattern": 4, "rope_theta": 1000000,
        "rope_local_theta": 10000, "max_position_embeddings": 4096}, {"layer_index": layer}) for layer in (0, 3)),
    ("Keye: text", HEAD | {"model_type": "Keye", "head_dim": 128, "max_position_embeddings": 40960, "rope_theta": 1e6,
                           "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default", "type": "default"}},
     {"axes": 3}),
    ("Keye: vision", HEAD | {"model_type": "Keye", "head_dim": 128, "max_position_embeddings": 40960, "rope_theta": 1e6,
                             "vision_config": {"model_type": "Keye", "hidden_size": 144, "num_attention_heads": 2,
                                               "num_hidden_layers": 2, "patch_size": 14, "image_size": 384}},
     {"component": "vision", "axes": 2}),
    ("molmo: Molmo-7B-D", HEAD | {"model_type": "molmo", "max_position_embeddings": 4096, "rope_theta": 1e6,
                                  "qkv_bias": True, "attention_layer_norm": False, "layer_norm_eps": 1e-6}, {}),
    ("params.json: Mistral 7B", PARAMS | {"sliding_window": 4096}, {"permuted": True}),
    ("params.json: Ministral 3", MINISTRAL | {
        "yarn": {"original_max_position_embeddings": 16384, "factor": 16, "apply_scale": False, "beta": 32, "alpha": 1}},
     {"far": True, "permuted": True}),
    ("params.json: yarn with its scale", PARAMS | {
        "max_position_embeddings": 131072,
        "yarn": {"original_max_position_embeddings": 8192, "factor": 4, "beta": 32, "alpha": 1}}, {"permuted": True}),
    *((f"deepseek_v4: layer {layer}", V4, {"layer_index": layer, "offset": 448}) for layer in (0, 2, 3)),
    ("deepseek_v4: layer 2, the output turned back", V4, {"layer_index": 2, "offset": 448, "inverse": True}),
)


def rows(service):
    yield from vllm_rows(service)
    for case in json.loads(pathlib.Path(__file__).with_name("remote_code.json").read_text()):
        yield compare_recorded(service, case)


def recorded_queries(tokens, width):
    return numpy.random.default_rng(7).standard_normal((1, 1, tokens, width)).astype("f4")


def compare_recorded(service, case):
    row = Row(case["name"], case["origin"], within=4, of="1 + the largest angle", why=RECORDED)
    positions = case["positions"] if isinstance(case["positions"][0], list) else [case["positions"]]
    before = recorded_queries(len(positions[0]), case["width"])
    more = {name: case[name] for name in ("component", "layer_index", "offset", "inverse", "seq_len", "half_split") if name in case}
    after = numpy.array(case["after"], "f4").reshape(before.shape)
    compare_with(row, service, case["config"], before, positions, more, after)
    return row


def vllm_rows(service):
    with tempfile.TemporaryDirectory() as directory:
        given, out = pathlib.Path(directory) / "cases.json", pathlib.Path(directory) / "rotations.safetensors"
        given.write_text(json.dumps([as_vllm(name, config, more) for name, config, more in CASES]))
        program = pathlib.Path(__file__).with_name("vllm_rotations.py")
        python = os.environ.get("VLLM_PYTHON", sys.executable)
        subprocess.run([python, program, given, out], check=True, capture_output=True)
        with safe_open(out, "numpy") as tensors:
            for name, config, more in CASES:
                yield compare(service, name, config, more, tensors)


def positions_of(more):
    """[axes][tokens]; with several axes, each has its own order."""
    ids = LONG if more.get("far") else POSITIONS
    return [ids[axis:] + ids[:axis] for axis in range(more.get("axes", 1))]


def as_vllm(name, config, more):
    return {"name": name, "config": config, "component": more.get("component", ""),
            "layer": more.get("layer_index", 0), "positions": positions_of(more),
            "max_model_len": more.get("max_model_len", 512), "inverse": more.get("inverse", False)}


def compare(service, name, config, more, tensors):
    row = Row(name, "vLLM's attention class", within=4, of="1 + the largest angle", why=WHY)
    if f"{name}.error" in tensors.keys():
        row.fail(f"vLLM: {bytes(tensors.get_tensor(f'{name}.error')).decode()}")
        return row
    before, after = (tensors.get_tensor(f"{name}.{which}") for which in ("before", "after"))
    compare_with(row, service, config, before, positions_of(more), more, after)
    return row


def compare_with(row, service, config, before, positions, more, after):
    try:
        mine = ask(service, config, before, positions, more)
    except Exception as error:  # a type without a row
        row.fail(f"posenc: {' '.join(str(error).split())[:200]}")
        return
    row.compare(mine, after, unit=2.0**-24 * (1 + max(map(max, positions))))


def ask(service, config, q, positions, more):
    model = {"config_json": json.dumps(config).encode()}
    model |= {field: more[field] for field in ("component", "layer_index") if field in more}
    if more.get("permuted"):
        model["input_pairing"] = "PAIRING_HALF_SPLIT"  # vLLM permutes wq and wk when it loads them
    if more.get("half_split"):
        model["output_pairing"] = "PAIRING_HALF_SPLIT"
    if more.get("interleaved"):
        model["output_pairing"] = "PAIRING_INTERLEAVED"  # vLLM leaves the pairs where they are
    request = {"rotary": {"model": model}, "q": {"tensor": tensor(q, FP32)}, "layout": "LAYOUT_BHSD",
               "positions": {"ids": numpy.asarray(positions, "f8").T, "axis_dimension": "AXIS_DIMENSION_LAST"}}
    if "offset" in more:
        request["q"]["rotary_offset"] = more["offset"]
    length = more.get("seq_len", more.get("max_model_len"))  # vLLM selects longrope's list by max_model_len
    if length:
        request["positions"] |= {"scaling_length_rule": "SCALING_LENGTH_RULE_GIVEN", "seq_len": [length]}
    if more.get("inverse"):
        request["direction"] = "DIRECTION_INVERSE"
    return array(service.ask("ApplyRotary", service_pb2.ApplyRotaryRequest(), request, "F32").q)

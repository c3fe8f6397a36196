"""Tests model types whose code comes with their weights: rotations of the released code, recorded in
tests/conformance/remote_code.json, and files that are refused."""

import json
import pathlib

import grpc
import numpy
import pytest
from posenc.v1 import rotary_pb2, service_pb2
from tensors import FP32, INT64, array, tensor

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "conformance" / "remote_code.json").read_text())
HEAD = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4}


def request_for(config, q, positions, case):
    request = service_pb2.ApplyRotaryRequest(layout=rotary_pb2.LAYOUT_BHSD)
    request.precision.preset = rotary_pb2.PRECISION_PRESET_F32
    model = request.rotary.model
    model.config_json = json.dumps(config).encode()
    model.component = case.get("component", "")
    if case.get("half_split"):
        model.output_pairing = rotary_pb2.PAIRING_HALF_SPLIT
    if "layer_index" in case:
        model.layer_index = case["layer_index"]
    several = isinstance(positions[0], list)
    if several:
        request.positions.axis_dimension = rotary_pb2.AXIS_DIMENSION_FIRST
    ids = numpy.asarray(positions)
    request.positions.ids.CopyFrom(tensor(ids[:, None] if several else ids[None], INT64))
    if "seq_len" in case:
        request.positions.scaling_length_rule = rotary_pb2.SCALING_LENGTH_RULE_GIVEN
        request.positions.seq_len.append(case["seq_len"])
    if case.get("inverse"):
        request.direction = rotary_pb2.DIRECTION_INVERSE
    request.q.tensor.CopyFrom(tensor(q, FP32))
    if "offset" in case:
        request.q.rotary_offset = case["offset"]
    return request


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["name"].replace(" ", "-"))
def test_the_rotation_is_that_of_the_released_code(client, case):
    positions = case["positions"]
    tokens = len(positions[0] if isinstance(positions[0], list) else positions)
    q = numpy.random.default_rng(7).standard_normal((1, 1, tokens, case["width"])).astype("f4")
    answer = array(client.call("ApplyRotary", request_for(case["config"], q, positions, case)).q)
    # torch computes frequencies in float32: a place of one is multiplied by the position.
    bound = 4 * 2.0**-24 * (1 + numpy.max(positions))
    assert numpy.abs(answer.ravel() - numpy.array(case["after"], "f4")).max() <= bound
    assert numpy.abs(answer - q).max() > 0.1


@pytest.mark.parametrize("config, words", (
    (HEAD | {"model_type": "chatglm", "position_encoding_2d": True}, ("position_encoding_2d", "half_split_parts 2")),
    (HEAD | {"model_type": "baichuan"}, ("max_position_embeddings", "13B, ALiBi")),
    (HEAD | {"model_type": "qwen", "use_dynamic_ntk": True}, ("seq_length", "must be given beside use_dynamic_ntk")),
    (HEAD | {"model_type": "bailing_moe", "rope_scaling": {"type": "3D"}}, ("rope_scaling.type", "3D")),
    (HEAD | {"model_type": "git", "architectures": ["Grok1ForCausalLM"], "rope_type": "yarn"}, ("rope_type", "original")),
    ({"dim": 64, "n_heads": 4, "n_layers": 4, "qk_rope_head_dim": 64}, ("qk_rope_head_dim", "config.json")),
    ({"dim": 64, "n_heads": 4, "n_layers": 4, "use_scaled_rope": True}, ("use_scaled_rope", "config.json")),
    ({"dim": 64, "n_heads": 4, "n_layers": 4, "llama_4_scaling": {"alpha": 1}}, ("llama_4_scaling.alpha", "beta")),
    (HEAD | {"model_type": "chatglm", "rope_ratio": -5}, ("rope_ratio", "is -5", "above 0")),
    ({"dim": 64, "n_heads": 4, "n_layers": 4, "yarn": {"factor": 4, "mscale": 1}}, ("yarn.mscale", "apply_scale"))),
    ids=lambda value: value.get("model_type", "params.json") if isinstance(value, dict) else "")
def test_what_cannot_be_said_is_refused_with_its_field(client, config, words):
    q = numpy.zeros((1, 4, 2, 16), "f4")
    refusal = client.refusal("ApplyRotary", request_for(config, q, [0, 1], {}))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert all(word in refusal.message for word in words), refusal.message

"""Tests Positions and `posenc positions`: the commands of docs/positions.md, faults that engines had, rotations by
description, and the same answers in process and on a server."""

import json
import re

import numpy
import pytest
from posenc.v1 import positions_pb2, rotary_pb2, service_pb2
from tensors import FP32, FP64, INT64, array, tensor

from conftest import ROOT

PAGE = (ROOT / "docs" / "positions.md").read_text()
MODEL = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1]


def transcript():
    """The page's commands, each with its output."""
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            yield command, output


def test_the_commands_of_the_page(posenc, tmp_path):
    (tmp_path / "config.json").write_text(MODEL)
    steps = list(transcript())
    assert len(steps) >= 3
    for command, output in steps:
        assert posenc(*command.split()[1:], exit_code=(0, 1)).stdout == output, command


def config(model_type, **fields):
    return rotary_pb2.ModelConfig(config_json=json.dumps({"model_type": model_type, **fields}).encode())


def request(model_type, kinds, **fields):
    """Fields are tensors' values by name; lists of pairs of sides are grids."""
    described = positions_pb2.TokenDescription(mm_token_type_ids=tensor(kinds, INT64))
    for name, value in fields.items():
        getattr(described, name).CopyFrom(tensor(value, FP64 if name == "second_per_grid_ts" else INT64))
    return service_pb2.PositionsRequest(model=config(model_type), tokens=described)


TWO_IMAGES = [[0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0]]
GRIDS = [[1, 4, 4], [1, 4, 4]]


def of_images(**fields):
    return request("qwen2_vl", TWO_IMAGES, image_grid_thw=GRIDS, **fields)


def counters(ids):
    """All axes count tokens (gLLM pull request 115, mlx-lm pull request 1768)."""
    return numpy.broadcast_to(numpy.arange(ids.shape[2]), ids.shape)


def first_image_only(ids):
    """Images after the first have positions of text (mlx-vlm pull request 1282)."""
    wrong = ids.copy()
    wrong[:, :, 8:] = wrong[0, 0, 7] + 1 + numpy.arange(5)
    return wrong


def by_tokens(ids):
    """Text after an image continues by its tokens (llama.cpp pull request 13141 on n_past)."""
    wrong = ids.copy()
    wrong[:, :, 6:] += 2
    wrong[:, :, 12:] += 2
    return wrong


def one_before(ids):
    """One too small from an image on (vLLM pull request 16878)."""
    wrong = ids.copy()
    wrong[:, :, 6:] -= 1
    return wrong


def exchanged(ids):
    """Columns before rows."""
    return ids[[0, 2, 1]]


@pytest.mark.parametrize("change, fault, words", [
    (counters, "COUNTERS", "all axes count tokens one by one"),
    (first_image_only, "COUNTERS", "after the first 1 are counted as text"),
    (by_tokens, "SPAN_COUNTED", "continues by its number of tokens"),
    (one_before, "OFFSET", "from token 6 of sequence 0 on, positions are -1 off"),
    (exchanged, "AXES_EXCHANGED", "axes h and w are exchanged"),
])
def test_faults_that_engines_had(client, change, fault, words):
    asked = of_images()
    ids = array(client.call("Positions", asked).ids)
    asked.given.ids.CopyFrom(tensor(change(ids), INT64))
    found = client.call("Positions", asked).comparison
    assert positions_pb2.PositionFault.Name(found.fault) == f"POSITION_FAULT_{fault}" and not found.same
    assert words in found.sentence


def test_a_delta_that_is_not_carried_into_decoding(client):
    """mlx-vlm issue 1619: the first decoded token got position 0, and later ones their index."""
    asked = of_images()
    answer = client.call("Positions", asked)
    asked.given.ids.CopyFrom(answer.ids)
    asked.given.rope_deltas.CopyFrom(tensor([0], INT64))
    found = client.call("Positions", asked).comparison
    assert found.fault == positions_pb2.POSITION_FAULT_DELTA and "+4 off" in found.sentence


def test_seconds_that_are_ignored(client):
    """SGLang issue 3674, transformers issue 41152."""
    fields = {"video_grid_thw": [[4, 2, 2]]}
    kinds = [[0, 2, 2, 2, 2, 0]]
    asked = request("qwen2_5_vl", kinds, second_per_grid_ts=[2.0], **fields)
    assert array(client.call("Positions", asked).ids)[0, 0].tolist() == [0, 1, 9, 17, 25, 2]
    asked.given.ids.CopyFrom(client.call("Positions", request("qwen2_vl", kinds, **fields)).ids)
    found = client.call("Positions", asked).comparison
    assert found.fault == positions_pb2.POSITION_FAULT_SECONDS_IGNORED


def test_padding_that_is_counted(client):
    """unsloth pull request 4078: one row of positions for all sequences of a left-padded batch."""
    described = positions_pb2.TokenDescription(attention_mask=tensor([[0, 0, 1, 1], [1, 1, 1, 1]], INT64))
    asked = service_pb2.PositionsRequest(tokens=described)
    assert array(client.call("Positions", asked).ids)[0].tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
    asked.given.ids.CopyFrom(tensor([[0, 1, 2, 3], [0, 1, 2, 3]], INT64))
    found = client.call("Positions", asked).comparison
    assert found.fault == positions_pb2.POSITION_FAULT_PADDING_COUNTED


def test_a_rotation_by_description(client):
    """q is rotated at the ids that Positions answers with."""
    text = {"model_type": "qwen2_vl_text", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    asked = of_images()
    asked.model.CopyFrom(config("qwen2_vl", text_config=text))
    ids = client.call("Positions", asked).ids
    q = tensor(numpy.random.default_rng(7).standard_normal((1, 13, 4, 16)), FP32)
    rotation = service_pb2.ApplyRotaryRequest(layout=rotary_pb2.LAYOUT_BSHD, q=rotary_pb2.RotaryOperand(tensor=q))
    rotation.rotary.model.CopyFrom(asked.model)
    rotation.rotary.model.component = "text"
    rotation.positions.tokens.CopyFrom(asked.tokens)
    described = client.call("ApplyRotary", rotation)
    rotation.positions.CopyFrom(rotary_pb2.Positions(ids=ids, axis_dimension=rotary_pb2.AXIS_DIMENSION_FIRST))
    assert client.call("ApplyRotary", rotation).q.data == described.q.data != q.data


def test_the_same_answer_in_process_and_on_a_server(posenc, address, tmp_path):
    (tmp_path / "config.json").write_text(MODEL)
    flags = ("positions", "--json", "--model", "config.json", "--mm-token-type-ids", "0,1*4,0", "--image-grid-thw", "1x4x4")
    answers = [posenc(*where, *flags).stdout for where in ((), ("--server", address))]
    assert answers[0] == answers[1]
    answer = json.loads(answers[0])
    assert answer["rule"] == "qwen2_5_vl" and len(answer["spans"]) == 3
    assert answer["ids"]["data"] == [0, 1, 1, 1, 1, 3, 0, 1, 1, 2, 2, 3, 0, 1, 2, 1, 2, 3]


def test_explain_says_how_a_model_counts(posenc, tmp_path):
    (tmp_path / "config.json").write_text(MODEL)
    said = posenc("explain", "--model", "config.json", "--component", "text").stdout
    assert "Positions by qwen2_5_vl: Text has one position on all axes" in " ".join(said.split())

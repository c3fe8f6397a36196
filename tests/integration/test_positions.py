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


OMNI = {"vision_start_token_id": 1, "audio_start_token_id": 2, "video_token_id": 3, "audio_token_id": 4, "image_token_id": 5}


@pytest.mark.parametrize("model_type", ["qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"])
def test_many_audios_before_an_image(client, model_type):
    """The search for the image takes no time that grows with the audios before it."""
    audios = 20000
    described = positions_pb2.TokenDescription(
        input_ids=tensor([[2, 4, 6] * audios + [1, 5, 5, 5, 5, 6]], INT64), image_grid_thw=tensor([[1, 4, 4]], INT64),
        audio_seqlens=tensor([4] * audios, INT64))
    answer = client.call("Positions", service_pb2.PositionsRequest(model=config(model_type, **OMNI), tokens=described))
    ids, begin = array(answer.ids)[:, 0], 3 * audios
    assert (ids[:, :begin] == numpy.arange(begin)).all()
    assert (ids[:, begin:] - begin).tolist() == [[0, 1, 1, 1, 1, 3], [0, 1, 1, 2, 2, 3], [0, 1, 2, 1, 2, 3]]


def test_many_videos_with_frames(client):
    videos = 5000
    asked = request("qwen3_vl", [[0, 2, 0, 2] * videos], video_grid_thw=[[2, 2, 2]] * videos)
    spans = [span for span in client.call("Positions", asked).spans if span.kind == positions_pb2.SPAN_KIND_VIDEO]
    assert [(span.grid, span.frame) for span in spans] == [(video, frame) for video in range(videos) for frame in (0, 1)]


def of_text(model_type, tokens=None, **fields):
    described = positions_pb2.TokenDescription(**(tokens or {"input_ids": tensor([[7]], INT64)}))
    return service_pb2.PositionsRequest(model=config(model_type, **fields), tokens=described)


def of_seconds(per_second, seconds):
    asked = request("qwen2_5_vl", [[0, 2, 2, 0]], video_grid_thw=[[2, 2, 2]], second_per_grid_ts=[seconds])
    asked.model.CopyFrom(config("qwen2_5_vl", vision_config={"tokens_per_second": per_second}))
    return asked


def after_cache(delta, **tokens):
    return of_text("qwen2_vl", {"length": 1, "cache_length": 2, "rope_deltas": tensor([delta], FP64), **tokens})


def of_latents(name, grid, component="", **fields):
    file = json.dumps({"_class_name": name, **fields}).encode()
    return service_pb2.PositionsRequest(model=rotary_pb2.ModelConfig(config_json=file, component=component),
                                        latents=positions_pb2.LatentDescription(grid_thw=tensor([grid], INT64)))


LTX = "LTXVideoTransformer3DModel"


@pytest.mark.parametrize("asked, field", [
    (of_seconds(-1, 1.0), "model.config_json.vision_config.tokens_per_second"),
    (of_seconds(1e17, 1.0), "model.config_json.vision_config.tokens_per_second"),
    (of_seconds(1e15, 1e3), "model.config_json.vision_config.tokens_per_second"),
    (after_cache(numpy.nan), "tokens.rope_deltas[0]"),
    (after_cache(numpy.inf), "tokens.rope_deltas[0]"),
    (after_cache(1e300), "tokens.rope_deltas[0]"),
    (after_cache(1.5), "tokens.rope_deltas[0]"),
    (of_text("qwen2_5_omni_thinker", **OMNI, position_id_per_seconds=-1), "model.config_json.position_id_per_seconds"),
    (of_text("qwen3_omni_moe_thinker", **OMNI, position_id_per_seconds=1e30), "model.config_json.position_id_per_seconds"),
    (of_text("qwen2_5_omni_thinker", **OMNI, seconds_per_chunk=9e15), "model.config_json.seconds_per_chunk"),
    (of_text("qwen2_5_omni_thinker", **OMNI, vision_config={"spatial_merge_size": 0}),
     "model.config_json.vision_config.spatial_merge_size"),
    (of_text("qwen3_omni_moe_thinker", **OMNI, audio_config={"n_window": 0}), "model.config_json.audio_config.n_window"),
    (of_latents(LTX, [1, 2, 3], patch_size=0), "model.config_json.patch_size"),
    (of_latents(LTX, [1, 2, 3], patch_size_t=1e300), "model.config_json.patch_size_t"),
    (of_latents("FluxTransformer2DModel", [2, 2, 3]), "latents.grid_thw[0]"),
    (of_latents("Flux2Transformer2DModel", [2, 2, 3]), "latents.grid_thw[0]"),
    (after_cache(0, length=2**63 - 1, attention_mask=tensor([[1, 1, 1]], INT64)), "tokens.length"),
])
def test_numbers_that_are_no_positions(client, asked, field):
    refusal = client.refusal("Positions", asked)
    assert (refusal.reason, refusal.field) == ("OUT_OF_RANGE", field)


def test_a_part_of_a_file_of_diffusers(client):
    refusal = client.refusal("Positions", of_latents(LTX, [1, 2, 3], component="text"))
    assert (refusal.reason, refusal.field) == ("UNKNOWN_VALUE", "model.component")


def test_too_many_tokens(client):
    described = positions_pb2.TokenDescription(length=2**31 - 1)
    refusal = client.refusal("Positions", service_pb2.PositionsRequest(tokens=described))
    assert (refusal.reason, refusal.field) == ("TOO_LARGE", "tokens.length")


def test_a_cache_that_is_forgotten(client):
    """Decoding that begins at position 0 again, of a model that counts tokens."""
    asked = service_pb2.PositionsRequest(tokens=positions_pb2.TokenDescription(length=4, cache_length=10))
    assert array(client.call("Positions", asked).ids)[0].tolist() == [[10, 11, 12, 13]]
    asked.given.ids.CopyFrom(tensor([[0, 1, 2, 3]], INT64))
    found = client.call("Positions", asked).comparison
    assert found.fault == positions_pb2.POSITION_FAULT_OFFSET and "all positions are -10 off" in found.sentence
    # A delta that is ignored: the tokens have their index.
    asked = after_cache(-1)
    asked.given.ids.CopyFrom(tensor([[2]], INT64))
    assert client.call("Positions", asked).comparison.fault == positions_pb2.POSITION_FAULT_COUNTERS


@pytest.mark.parametrize("kinds, grids, field, value", [
    ([0, 2, 0, 2, 0, 2, 2, 2], [[2, 2, 2], [1, 4, 4]], "tokens.video_grid_thw[1]", "[1, 4, 4]"),
    ([0, 2, 0, 2, 0, 2, 2, 2, 2, 0, 2], [[2, 2, 2], [3, 4, 4]], "tokens.video_grid_thw[1]", "[3, 4, 4]"),
    ([0, 2, 0, 2, 0, 2, 2], [[2, 2, 2], [1, 3, 4]], "tokens.video_grid_thw[1]", "[1, 3, 4]"),
    ([0, 2, 0], [[2, 2, 2], [1, 4, 4]], "tokens.video_grid_thw", "2 grids with 3 frames"),
    ([0, 2, 0, 2, 0, 2], [[2, 2, 2]], "tokens.video_grid_thw", "1 grids with 2 frames"),
])
def test_errors_name_the_video_of_a_frame(client, kinds, grids, field, value):
    refusal = client.refusal("Positions", request("qwen3_vl", [kinds], video_grid_thw=grids))
    assert (refusal.reason, refusal.field, refusal.value) == ("MISMATCH", field, value)


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


def test_ids_of_one_sequence_as_a_list(posenc):
    assert "differ" not in posenc("positions", "--length", "3", "--given-ids", "0,1,2").stdout
    assert "1 of 3 ids differ" in posenc("positions", "--length", "3", "--given-ids", "0,1,3", exit_code=1).stdout


def test_a_report_of_packed_sequences(posenc):
    report = posenc("positions", "--length", "3", "--cu-seqlens", "0,1,3", "--token-begin", "1").stdout
    assert report.splitlines()[1:] == ["sequence 0, delta 0", "sequence 1, delta 0", "  text, tokens 0..1: 0..1"]
    report = posenc("positions", "--cu-seqlens", "0,3,8", "--token-begin", "4", "--token-count", "2").stdout
    assert report.splitlines()[-1] == "  text, tokens 1..2: 1..2"


def test_a_report_of_keys_and_of_tokens_to_come(posenc, tmp_path):
    report = posenc("positions", "--length", "1", "--cache-length", "9", "--cache-size", "6", "--cache-sinks", "2").stdout
    assert report.splitlines()[1:] == ["sequence 0, delta 0", "  text, token 0: 9", "  keys: 0..1, 6..9"]
    (tmp_path / "config.json").write_text('{"model_type": "glm_image"}')
    report = posenc("positions", "--model", "config.json", "--input-ids", "5,16384", "--image-grid-thw", "1x2x3").stdout
    assert report.splitlines()[-1] == "  decode_ids, 7 tokens: 2..5"


def test_a_file_of_all_that_the_answer_has(posenc, tmp_path):
    flags = ("positions", "--length", "1", "--cache-length", "9", "--cache-size", "6", "-o", "all.safetensors")
    assert posenc(*flags).stdout.splitlines() == [
        "all.safetensors: ids INT64 [1, 1, 1]", "all.safetensors: rope_deltas INT64 [1]",
        "all.safetensors: key_ids INT64 [1, 1, 6]"]
    ids = posenc("positions", "--length", "3", "-o", "ids.npy").stdout
    assert ids == "ids.npy: ids INT64 [1, 1, 3]\n"
    posenc("table", "--positions", "ids.npy", "--axis-dimension", "first", "--rotary-dim", "8", "--rope-type", "default",
           "--rope-theta", "100", "--input-pairing", "half-split", "--form", "half-width", "--dtype", "fp32", "-o", "t.safetensors")


@pytest.mark.parametrize("flags, said", [
    ("--length 3 --given-deltas 1", "--given-ids: must be given"),
    ("--length 3 --cache-sinks 2", "missing: --cache-size"),
    ("--length 3 --cache-sinks 2 --cache-size 1", "--cache-size: is 1; must be more than"),
    ("--length 3 --sequences 100000000", "--sequences: is 100000000 sequences; must be at most 65536"),
    ("--attention-mask 1*3 --sequences 2", "must be [2, 3]"),
    ("--model flux.json --length 3", "--grid-thw"),
    ("--model text.json --length 3 --layer-index 0", "--layer-index: must be absent"),
])
def test_errors_name_the_flag(posenc, tmp_path, flags, said):
    (tmp_path / "flux.json").write_text('{"_class_name": "FluxTransformer2DModel"}')
    (tmp_path / "text.json").write_text('{"model_type": "qwen2_vl"}')
    assert said in posenc("positions", *flags.split(), exit_code=(2, 3)).stderr

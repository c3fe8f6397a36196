"""Broken config.json files: each is refused with its own field's path, value and limit, or read with a note."""

import bad_files
import grpc
import pytest
import samples
from posenc.v1 import rotary_pb2, service_pb2

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def cases(table):
    return [pytest.param(*case[1:], id=case[0].replace(" ", "-")) for case in table]


def request_of(file, more=None):
    options = {name: value for name, value in (more or {}).items() if name in rotary_pb2.ModelConfig.DESCRIPTOR.fields_by_name}
    return samples.model_table(bad_files.text(file), **options)


def path(prefix, field):
    return f"{prefix}.{bad_files.FILE}{'.' if field else ''}{field}"


@pytest.mark.parametrize("file, field, reason, value, limit, more", cases(bad_files.REFUSED))
def test_a_broken_file_is_refused_by_its_own_field(client, file, field, reason, value, limit, more):
    refusal = client.refusal("GenerateTable", request_of(file, more))
    assert refusal.code == INVALID
    assert reason in (None, refusal.reason), refusal
    if field is not None:
        assert refusal.field == path("rotary.model", field), refusal
    assert value in (None, refusal.value), refusal
    assert limit in refusal.limit, refusal
    other = more.get("other_field", "")
    assert refusal.other_field == (path("rotary.model", other) if other else ""), refusal
    for place in ("line", "column"):
        if place in more:
            assert getattr(refusal, place) == more[place], refusal
    assert bool(refusal.line) == (refusal.reason == "MALFORMED" and "must be a JSON object" not in refusal.limit)


def test_every_way_to_give_a_file_has_the_same_paths(client):
    file = bad_files.text(bad_files.scaled({"type": "linear", "factor": 0}))
    by_text = samples.model_table(b"")
    by_text.rotary.model.config_json_text = file.decode()
    requests = [
        ("GenerateTable", request_of(file), "rotary.model"),
        ("GenerateTable", by_text, "rotary.model"),
        ("Explain", service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(config_json=file)), "model"),
        ("Compare", samples.comparison(rotary_pb2.ModelConfig(config_json=file), samples.rope_settings()), "a.model"),
    ]
    for method, request, prefix in requests:
        refusal = client.refusal(method, request)
        assert (refusal.reason, refusal.field) == ("OUT_OF_RANGE", path(prefix, "rope_scaling.factor")), method


@pytest.mark.parametrize("file, choice, field, reason, value, limit", cases(bad_files.CHOICES))
def test_a_choice_that_is_missing_or_wrong(client, file, choice, field, reason, value, limit):
    refusal = client.refusal("GenerateTable", request_of(file, choice))
    assert (refusal.code, refusal.reason, refusal.field) == (INVALID, reason, f"rotary.model.{field}")
    assert refusal.value == value and limit in refusal.limit, refusal


@pytest.mark.parametrize("file, code, field", cases(bad_files.NOTED))
def test_a_file_that_contradicts_itself_is_read_with_a_note(client, file, code, field):
    unknown = {"input_pairing": rotary_pb2.PAIRING_HALF_SPLIT} if file.get("model_type") == "of_tomorrow" else {}
    answer = client.call("Explain", service_pb2.ExplainRequest(
        model=rotary_pb2.ModelConfig(config_json=bad_files.text(file), **unknown)))
    notes = {(note.code, note.field) for layer in answer.layers for note in layer.info.notes}
    assert (code, path("", field).lstrip(".")) in notes, notes


def test_the_advice_of_an_error_leads_to_the_models_answer(client):
    # A file of DeepSeek-V3's shape and of an unknown model_type is read as DeepSeek-V3's, or by the request's pairing.
    file = {**bad_files.DEEPSEEK, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                                                   "original_max_position_embeddings": 4096}}
    known = client.call("Explain", service_pb2.ExplainRequest(
        model=rotary_pb2.ModelConfig(config_json=bad_files.text(file)))).layers[0].info
    unknown = {**file, "model_type": "kimi_k2"}
    by_code = {**unknown, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}}
    for renamed, options in ((by_code, {}), (unknown, {"input_pairing": rotary_pb2.PAIRING_INTERLEAVED,
                                                       "output_pairing": rotary_pb2.PAIRING_HALF_SPLIT})):
        answer = client.call("Explain", service_pb2.ExplainRequest(
            model=rotary_pb2.ModelConfig(config_json=bad_files.text(renamed), **options))).layers[0].info
        assert answer.rotary_dim == known.rotary_dim == 64
        assert answer.plan.softmax_scale_factor == known.plan.softmax_scale_factor > 1
        assert answer.plan_fingerprint == known.plan_fingerprint

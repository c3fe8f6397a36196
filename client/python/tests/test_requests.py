"""Models and arguments, the errors that they cause, and the wire's bytes compared with protobuf's."""

import json
import os
import pathlib
import time
import types

import google.protobuf.descriptor_pb2
import google.protobuf.descriptor_pool
import google.protobuf.message_factory
import numpy as np
import pytest
import gguf_file
from conftest import LLAMA

import posenc
from posenc import _tensors
from posenc._descriptors import api
from posenc._model import SHORTHANDS, model_of
from posenc._wire import Encoder, join, new_message

Q = np.arange(1 * 2 * 1 * 128, dtype=np.float32).reshape(1, 2, 1, 128)
WHOLE = {**LLAMA, "num_attention_heads": 4}


def test_models(client, llama):
    expected = client.rope(Q, model=LLAMA, positions=3, layout="BSHD").q

    class Config:
        def to_json_string(self, use_diff=True):
            assert not use_diff  # the defaults count
            return json.dumps(LLAMA)

    for model in (llama, str(llama), llama.parent, types.MappingProxyType(LLAMA), Config(), posenc.Model(LLAMA),
                  posenc.Model(llama)):
        assert (client.rope(Q, model=model, positions=3, layout="BSHD").q == expected).all()


def test_a_changed_file_is_read_again(local, llama):
    first = local.rope(Q, model=llama, positions=3, layout="BSHD").q
    llama.write_text(json.dumps({**LLAMA, "rope_theta": 20000.0}))
    assert (local.rope(Q, model=llama, positions=3, layout="BSHD").q != first).any()


def test_a_changed_dict_is_read_again(local):
    changing = {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    answers = []
    for factor in (2.0, 4.0, 2.0):
        changing["rope_scaling"]["factor"] = factor
        for _ in range(2):
            answers.append(local.rope(Q, model=changing, positions=3, layout="BSHD").q)
    first, again, second, _, third, _ = answers
    assert (first == again).all() and (first == third).all() and (first != second).any()


def test_equal_contents_of_another_type_are_another_dict():
    theta = np.float64(20000.0)
    for value in (theta, theta.tobytes(), np.frombuffer(theta.tobytes(), np.int64)[0]):  # marshal writes the same for these
        if value is theta:
            assert model_of({**LLAMA, "rope_theta": value}).config["rope_theta"] == 20000.0
        else:
            with pytest.raises(TypeError):
                model_of({**LLAMA, "rope_theta": value})
    assert model_of({**LLAMA, "tie": 1}).encoded.data != model_of({**LLAMA, "tie": True}).encoded.data


def test_a_file_is_read_again_if_its_time_and_size_are_kept(llama):
    os.utime(llama, (1, 1))
    time.sleep(0.06)
    first = model_of(llama)
    assert model_of(llama) is first, "an unchanged file is read once"
    llama.write_text(llama.read_text().replace("500000.0", "300000.0"))
    os.utime(llama, (1, 1))
    assert model_of(llama).config["rope_theta"] == 300000.0


def test_a_folder_gets_a_gguf(llama, gguf):
    time.sleep(0.06)
    first = model_of(llama.parent)
    assert model_of(llama.parent) is first
    os.link(gguf, llama.parent / "model.gguf")
    llama.unlink()
    with pytest.raises(ValueError, match="no config.json"):
        model_of(llama.parent).config


@pytest.fixture
def gguf(tmp_path):
    """A GGUF with a tokenizer and 8 MiB of other tensors, more than a server takes."""
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "llama.gguf"
    path.write_bytes(gguf_file.model("llama", {"rope_freqs.weight": gguf_file.llama3_factors()}, padding=8 << 20,
                                     rope__freq_base=500000.0))
    return path


def test_ggufs(client, gguf, tmp_path):
    q = np.random.default_rng(1).standard_normal((1, 2, 3, 128)).astype(np.float32)
    config = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000.0,
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                               "original_max_position_embeddings": 8192}}
    expected = client.rope(q, model=posenc.Model(config, input_pairing="INTERLEAVED", output_pairing="INTERLEAVED"),
                           positions=700, layout="BSHD").q
    without_suffix = tmp_path / "blob"
    without_suffix.symlink_to(gguf)
    for model in (gguf, str(gguf), gguf.parent, posenc.Model(gguf), without_suffix):
        answer = client.rope(q, model=model, positions=700, layout="BSHD")
        assert np.allclose(answer.q, expected, rtol=0, atol=1e-3)  # the file's factors are float32
    assert len(posenc.Model(gguf).encoded.data) < 2000
    with pytest.raises(ValueError, match="no config.json"):
        posenc.Model(gguf).config
    assert not client.compare(gguf, LLAMA).same
    bloom = tmp_path / "bloom.gguf"
    bloom.write_bytes(gguf_file.model("bloom"))
    bias = client.bias(model=bloom, geometry={"query_length": 2, "key_length": 2}, form="DENSE", dtype="FP32").bias
    assert bias.shape == (32, 2, 2)


def test_a_snapshot_of_the_hugging_face_cache(client, tmp_path):
    cache = tmp_path / "models--meta--llama"
    (cache / "snapshots" / "abcd").mkdir(parents=True)
    (cache / "snapshots" / "abcd" / "config.json").write_text(json.dumps(LLAMA))
    expected = client.rope(Q, model=LLAMA, positions=3, layout="BSHD").q
    assert (client.rope(Q, model=cache, positions=3, layout="BSHD").q == expected).all()


def test_bad_files_of_models(local, gguf, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(gguf.read_bytes()[:100])
    (tmp_path / "empty").mkdir()
    (gguf.parent / "config.json").write_text("{}")
    for path, field, message in ((tmp_path / "broken.gguf", "model.gguf.", "broken.gguf: "),
                                 (tmp_path / "empty", "model", "has no config.json and no .gguf"),
                                 (gguf.parent, "model", "several model files"),
                                 (tmp_path / "none.gguf", "model", "No such file")):
        with pytest.raises(posenc.InvalidArgument, match=message) as caught:
            local.rope(Q, model=path, positions=3, layout="BSHD")
        assert caught.value.field.startswith(field) and str(path) in caught.value.message


def test_what_is_no_file_is_not_read(local, tmp_path):
    """A reader would wait for a writer, or never reach the end."""
    os.mkfifo(tmp_path / "config.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    (tmp_path / "loop.json").symlink_to("loop.json")
    with open(tmp_path / "sparse.json", "wb") as file:
        file.truncate(64 << 30)
    for name, message in (("config.json", "regular file"), (".", "regular file"), ("zero.json", "regular file"),
                          ("loop.json", "symbolic links"), ("sparse.json", "more than")):
        with pytest.raises(posenc.InvalidArgument, match=message):
            local.rope(Q, model=tmp_path / name, positions=3, layout="BSHD")
        with pytest.raises(OSError, match="Is a directory" if name == "." else message):
            posenc.TLS(ca=tmp_path / name).contents()
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(posenc.InvalidArgument, match="64 levels"):
        posenc.Model({"model_type": "llama", "x": deep})


def test_layers(client):
    gemma = {"model_type": "gemma3_text", "hidden_size": 512, "num_attention_heads": 4, "head_dim": 128,
             "num_hidden_layers": 6, "sliding_window": 512}
    by_type = [client.rope(Q, model=gemma, layer=layer, positions=3, layout="BSHD") for layer in
               ("sliding_attention", "full_attention")]
    by_index = [client.rope(Q, model=gemma, layer=layer, positions=3, layout="BSHD") for layer in (0, 5)]
    assert (by_type[0].q == by_index[0].q).all() and (by_type[1].q == by_index[1].q).all()
    assert (by_type[0].q != by_type[1].q).any()
    other = posenc.Model(posenc.Model(gemma, layer=0), layer="full_attention")
    assert (client.rope(Q, model=other, positions=3, layout="BSHD").q == by_type[1].q).all()
    assert [answer.info.layer_type for answer in by_type] == ["sliding_attention", "full_attention"]
    with pytest.raises(posenc.InvalidArgument, match="layer"):
        client.rope(Q, model=gemma, positions=3, layout="BSHD")


@pytest.mark.parametrize("model", ["/no/such/config.json", 7, None])
def test_bad_models(client, model):
    with pytest.raises(posenc.InvalidArgument):
        client.rope(Q, model=model, positions=3, layout="BSHD")


# Arguments of rope, and the error's field, value and reason.
WRONG = {
    "enum": ({"layout": "BSDH"}, "layout", "BSDH", "UNKNOWN_VALUE"),
    "enum number": ({"layout": 77}, "layout", "77", "UNKNOWN_VALUE"),
    "field": ({"layuot": "BSHD"}, "layuot", "BSHD", "UNKNOWN_FIELD"),
    "inner field": ({"precision": {"axis": 1}}, "precision.axis", "1", "UNKNOWN_FIELD"),
    "string": ({"hints": {"request_id": 7}}, "hints.request_id", "int", "UNSUPPORTED"),
    "whole number": ({"positions": {"offset": 1.5}}, "positions.offset", "1.5", "UNSUPPORTED"),
    "range": ({"positions": 2**63}, "positions.offset", str(2**63), "OUT_OF_RANGE"),
    "boolean": ({"hints": {"return_plan": 1}}, "hints.return_plan", "1", "UNSUPPORTED"),
    "message": ({"hints": "now"}, "hints", "now", "UNSUPPORTED"),
    "list": ({"positions": {"offset": 0, "seq_len": 7}}, "positions.seq_len", "7", "UNSUPPORTED"),
    "missing": ({"layout": None}, "layout", "absent", "MISSING"),
    "preset": ({"precision": "exactly"}, "precision.preset", "EXACTLY", "UNKNOWN_VALUE"),
    "width": ({"q": Q[..., :126]}, "q.tensor.shape", "[1, 2, 1, 126]", "MISMATCH"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_field_and_value(client, name):
    arguments, field, value, reason = WRONG[name]
    arguments = {"model": LLAMA, "positions": 0, "layout": "BSHD", "q": Q, **arguments}
    with pytest.raises(posenc.InvalidArgument) as caught:
        client.rope(arguments.pop("q"), **arguments)
    error = caught.value
    assert isinstance(error, ValueError) and isinstance(error, posenc.Error)
    assert (error.field, error.value, error.reason) == (field, value, reason)
    assert error.limit.startswith("must ") and error.field in str(error)


def test_errors_of_a_config(client):
    with pytest.raises(posenc.InvalidArgument) as caught:
        client.explain({**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": -1}})
    assert caught.value.field.startswith("model.config_json.rope_scaling")
    with pytest.raises(posenc.InvalidArgument) as caught:
        client.call("Explain", {"model": {"config_json": b'{"a":\n 7,}'}})
    assert caught.value.line == "2"


def test_time_limits(client):
    q = np.ones((1, 4096, 64, 128), np.float32)
    with pytest.raises(posenc.DeadlineExceeded) as caught:
        client.rope(q, model=LLAMA, positions=0, layout="BSHD", timeout=1e-4)
    assert isinstance(caught.value, TimeoutError)


def test_limits_of_local_calls():
    with posenc.local(threads=1, max_output_bytes=1000) as client:
        with pytest.raises(posenc.TooLarge):
            client.rope(Q, model=LLAMA, positions=0, layout="BSHD")
    with pytest.raises(ValueError):
        posenc.local(threads=-1)


def test_calls_by_name(client):
    assert client.call("GetServerInfo", {}).version
    for name in ("StreamTable", "NoSuchCall"):
        with pytest.raises(ValueError, match=name):
            client.call(name, {})


@pytest.fixture(scope="module")
def protobuf():
    """The messages as pip's protobuf makes them from the same descriptors."""
    pool = google.protobuf.descriptor_pool.DescriptorPool()
    data = pathlib.Path(posenc.__file__).with_name("api.binpb").read_bytes()
    for file in google.protobuf.descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return lambda name: google.protobuf.message_factory.GetMessageClass(pool.FindMessageTypeByName(f"posenc.v1.{name}"))


FULL = {
    "rotary": {"settings": {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 2.5, "truncate": False, "beta_fast": 0, "short_factor": [1.5, -0.0, 2],
        "mrope_section": [1, 300, 2**62], "longrope_branch": "LONG"}, "rotary_dim": -5, "input_pairing": "PAIRING_INTERLEAVED"}},
    "positions": {"segments": {"segment": [{"line": {"count": 3, "start": 0.5}}, {"grid": {"size": [1, 2], "step": [0.25, 4]}}]},
                  "cu_seqlens": np.array([0, 2], np.int32), "seq_len": [7, 1 << 40], "scaling_length_rule": "GIVEN"},
    "layout": 3, "direction": "INVERSE", "precision": {"axes": {"frequencies": "EXACT", "rounding": "ONCE"}},
    "hints": {"request_id": "é" * 200, "return_plan": True},
    "q": {"rotary_offset": 3, "output": {"token": b"\x00\xff" * 8, "offset": 9, "byte_size": 10}, "tensor": Q},
    "k": np.zeros((0, 3), np.float16),
}


def encoded(name, fields, inline=True):
    pieces, size = Encoder(SHORTHANDS, inline).message(api().messages[f"posenc.v1.{name}"], fields, "")
    data = join(pieces)
    assert len(data) == size
    return data


def test_protobuf_reads_the_bytes(protobuf):
    message = protobuf("ApplyRotaryRequest").FromString(encoded("ApplyRotaryRequest", FULL))
    parameters = message.rotary.settings.rope_parameters
    assert (parameters.rope_type, parameters.factor, parameters.truncate) == ("yarn", 2.5, False)
    assert parameters.HasField("truncate") and parameters.HasField("beta_fast") and not parameters.HasField("mscale")
    assert list(parameters.short_factor) == [1.5, 0, 2] and list(parameters.mrope_section) == [1, 300, 2**62]
    assert message.rotary.settings.rotary_dim == -5 and message.rotary.settings.input_pairing == 1
    assert message.positions.segments.segment[1].grid.step == [0.25, 4]
    assert message.positions.cu_seqlens.data == np.array([0, 2], np.int32).tobytes()
    assert list(message.positions.seq_len) == [7, 1 << 40] and message.hints.request_id == "é" * 200
    assert list(message.q.tensor.shape) == [1, 2, 1, 128] and message.q.tensor.data == Q.tobytes()
    assert message.q.output.token == b"\x00\xff" * 8 and list(message.k.tensor.shape) == [0, 3]


def test_tensors_beside_the_message(protobuf):
    beside = protobuf("ApplyRotaryRequest").FromString(encoded("ApplyRotaryRequest", FULL, inline=False))
    assert beside.q.tensor.data == b"" and list(beside.q.tensor.shape) == [1, 2, 1, 128]


def test_what_protobuf_writes_is_read_back(protobuf):
    theirs = protobuf("ApplyRotaryRequest").FromString(encoded("ApplyRotaryRequest", FULL))
    data = theirs.SerializeToString(deterministic=True)
    ours = new_message(api().messages["posenc.v1.ApplyRotaryRequest"], memoryview(data), _tensors.NUMPY)
    again = protobuf("ApplyRotaryRequest").FromString(encoded("ApplyRotaryRequest", ours.to_dict() | {"q": ours.q, "k": ours.k}))
    assert again == theirs
    assert (ours.q.tensor == Q).all() and ours.direction == "INVERSE" and ours.rotary.model is None
    details = protobuf("ErrorInfo")(reason="MISSING", metadata={"field": "q", "limit": ""}).SerializeToString()
    info = new_message(api().messages["posenc.v1.ErrorInfo"], memoryview(details), _tensors.NUMPY)
    assert info.metadata == {"field": "q", "limit": ""}


def test_damaged_bytes_do_not_pass(protobuf):
    data = encoded("ApplyRotaryRequest", FULL)
    for end in range(1, len(data), 7):
        message = new_message(api().messages["posenc.v1.ApplyRotaryRequest"], memoryview(data[:end]), _tensors.NUMPY)
        try:
            message.to_dict()
        except (ValueError, IndexError):
            continue
        protobuf("ApplyRotaryRequest").FromString(data[:end])  # what we accept, protobuf accepts


def test_positions_of_latents_take_no_tokens(client):
    with pytest.raises(ValueError, match="length: must be absent with latents"):
        client.positions(model={"_class_name": "FluxTransformer2DModel"}, latents={"grid_thw": np.ones((1, 3), np.int64)},
                         length=4)

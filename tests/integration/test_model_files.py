"""Files of models as users have them: config.json, folders, the Hugging Face cache, standard input, GGUF."""

import json
import os
import subprocess

import gguf_file
import numpy
import pytest
import samples
from gguf_file import llama3_factors
from posenc.v1 import rotary_pb2, service_pb2

LLAMA = "llama-3.1-8b.json"


@pytest.fixture
def config(configs):
    return (configs / LLAMA).read_bytes()


@pytest.fixture
def kept():
    return gguf_file.model("llama", {"rope_freqs.weight": llama3_factors()}, rope__freq_base=500000.0)


def explained(posenc, path):
    return json.loads(posenc("explain", "--json", "--model", path).stdout)["layers"]


def test_a_folder_a_snapshot_and_standard_input_are_the_file(posenc, command_program, tmp_path, configs, config):
    plain = explained(posenc, configs / LLAMA)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes(config)
    (folder / "tokenizer.json").write_text("{}")
    cache = tmp_path / "models--meta--llama"
    (cache / "blobs").mkdir(parents=True)
    (cache / "blobs" / "0123").write_bytes(config)
    (cache / "snapshots" / "abcd").mkdir(parents=True)
    (cache / "snapshots" / "abcd" / "config.json").symlink_to("../../blobs/0123")
    (cache / "snapshots" / "older").mkdir()
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("abcd")
    for path in (folder, cache / "snapshots" / "abcd", cache):
        assert explained(posenc, path) == plain
    ended = subprocess.run([*command_program, "explain", "--json", "--model", "-"], input=config, capture_output=True, check=True)
    assert json.loads(ended.stdout)["layers"] == plain


def test_a_snapshot_is_chosen_only_where_one_can_be(posenc, tmp_path, config):
    cache = tmp_path / "models--meta--llama"
    (cache / "snapshots" / "one").mkdir(parents=True)
    (cache / "snapshots" / "one" / "config.json").write_bytes(config)
    assert explained(posenc, cache)
    (cache / "snapshots" / "two").mkdir()
    done = posenc("explain", "--model", cache, exit_code=3)
    assert "refs/main is absent" in done.stderr and "one, two" in done.stderr


@pytest.mark.parametrize("names, told", (
    ((), "has no config.json and no .gguf file"),
    (("config.json", "a.gguf"), "has several model files; give one of them: a.gguf, config.json"),
    (("b.gguf", "a.gguf"), "has several model files; give one of them: a.gguf, b.gguf"),
    ((os.fsdecode(b"\xff.gguf"), "a.gguf"), "has several model files; give one of them: a.gguf, \\xff.gguf"),
    (("transformer/config.json",), "give one of the folders in it: transformer"),
))
def test_a_folder_without_exactly_one_model(posenc, tmp_path, names, told):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    assert told in posenc("explain", "--model", folder, exit_code=3).stderr


def test_a_name_of_the_hub_gets_advice(posenc, tmp_path):
    done = posenc("explain", "--model", "meta-llama/Llama-3.1-8B", exit_code=3)
    assert "nothing is fetched by a model's name" in done.stderr
    assert "models--meta-llama--Llama-3.1-8B" in done.stderr
    assert "no such file or folder" in posenc("explain", "--model", "absent.json", exit_code=3).stderr


def test_a_gguf_is_sent_without_its_tokenizer_and_its_weights(posenc, client, tmp_path, kept):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_file.model("llama", {"rope_freqs.weight": llama3_factors()}, padding=8 << 20,
                                     rope__freq_base=500000.0))
    assert path.stat().st_size > 4 * client.info().limits.max_config_json_bytes
    [layer] = explained(posenc, path)
    answer = client.call("Explain", service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(gguf=kept))).layers[0]
    assert [float(x) for x in layer["info"]["plan"]["frequencies"][0]["inv_freq"]] == list(
        answer.info.plan.frequencies[0].inv_freq)
    folder = tmp_path / "folder"
    folder.mkdir()
    path.rename(folder / "model.gguf")
    assert explained(posenc, folder) == [layer]


def test_every_command_with_a_model_takes_a_gguf(posenc, tmp_path, kept):
    (tmp_path / "model.gguf").write_bytes(kept)
    (tmp_path / "bloom.gguf").write_bytes(gguf_file.model("bloom"))
    numpy.save(tmp_path / "q.npy", numpy.random.default_rng(1).standard_normal((1, 9, 2, 128)).astype("<f4"))
    posenc("rope", "--model", "model.gguf", "--layout", "bshd", "--offset", 7, "--q", "q.npy", "--q-out", "turned.npy")
    posenc("table", "--model", "model.gguf", "--offset", 0, "--count", 8, "--dtype", "fp32", "--form", "half-width", "-o",
           "table.npy")
    said = posenc("explain", "--model", "model.gguf").stdout
    assert "Differs from llama.cpp in: roundings (llama.cpp multiplies float32 angles from pair to pair" in said
    posenc("bias", "--model", "bloom.gguf", "--query-length", 4, "--key-length", 4, "--bias-form", "dense", "--dtype", "fp32",
           "-o", "bias.npy")
    found = posenc("diagnose", "--model", "model.gguf", "--before", "q.npy", "--after", "turned.npy", "--layout", "bshd",
                   "--offset", 7)
    assert "as expected" in found.stdout or "same" in found.stdout, found.stdout
    done = posenc("embedding", "--model", "model.gguf", "--offset", 0, "--count", 4, "--dtype", "fp32", "-o", "e.npy",
                  exit_code=2)
    assert "adds no sinusoidal encoding" in done.stderr
    bias = numpy.load(tmp_path / "bias.npy").reshape(32, 4, 4)
    slopes = 2.0 ** (-8 * numpy.arange(1, 33) / 32)
    distance = numpy.abs(numpy.arange(4)[:, None] - numpy.arange(4))
    assert numpy.allclose(bias, -slopes[:, None, None] * distance, rtol=1e-6)


def test_compare_tells_a_kept_encoding_from_a_lost_one(posenc, tmp_path, configs, kept):
    (tmp_path / "kept.gguf").write_bytes(kept)
    (tmp_path / "lost.gguf").write_bytes(gguf_file.model("llama", rope__freq_base=500000.0))
    same = posenc("compare", configs / LLAMA, "kept.gguf")
    assert same.stdout.startswith("same:")
    assert "count as the same (limit 2^-20)" in same.stdout and "permutes" in same.stdout
    lost = posenc("compare", configs / LLAMA, "lost.gguf", exit_code=1)
    assert lost.stdout.startswith("different:") and "differing pairs" in lost.stdout
    close = gguf_file.model("llama", {"rope_freqs.weight": llama3_factors() * (1 + 2.0**-18)}, rope__freq_base=500000.0)
    (tmp_path / "close.gguf").write_bytes(close)
    posenc("compare", configs / LLAMA, "close.gguf", exit_code=1)
    posenc("compare", "kept.gguf", "close.gguf", exit_code=1)
    assert posenc("compare", "kept.gguf", "kept.gguf").stdout.startswith("same:")


def test_frequencies_that_count_as_the_same_are_searched_too(client, posenc, tmp_path, configs, kept):
    close = gguf_file.model("llama", {"rope_freqs.weight": llama3_factors() * (1 + 5e-7)}, rope__freq_base=500000.0)
    (tmp_path / "close.gguf").write_bytes(close)
    answer = client.call("Compare", samples.comparison(
        rotary_pb2.ModelConfig(config_json=(configs / LLAMA).read_bytes()), rotary_pb2.ModelConfig(gguf=close)))
    [layers] = answer.layers
    [rotary] = layers.rotary
    assert answer.same and rotary.same and not rotary.differing_pairs
    assert (rotary.first_position, rotary.searched_positions) == (1, 2)
    # Pair 0 is 131071 * 5e-7 radians ahead, so that its cosine or sine is off by nearly as much.
    assert 0.03 < rotary.positions[2].largest_difference < 0.07
    [note] = [note for note in layers.notes if note.code == "FLOAT32_NUMBERS"]
    assert note.message.endswith("; the float32 tables differ, first at position 1")
    said = posenc("compare", configs / LLAMA, "close.gguf").stdout
    assert said.startswith("same: ") and "first position        1\n" in said and "difference at 131071" in said


@pytest.mark.parametrize("name, change, field", (
    ("version 1", lambda data: data[:4] + b"\1" + data[5:], "gguf.version"),
    ("truncated", lambda data: data[:100], "gguf."),
    ("no magic", lambda data: b"XXXX" + data[4:], "gguf.magic"),
))
def test_a_broken_gguf_names_file_and_field(posenc, tmp_path, kept, name, change, field):
    (tmp_path / "model.gguf").write_bytes(change(kept))
    done = posenc("explain", "--model", "model.gguf", exit_code=3)
    assert "--model model.gguf: " in done.stderr and field.removeprefix("gguf.") in done.stderr


def test_both_files_are_a_conflict(client, kept, config):
    refusal = client.refusal("Explain", service_pb2.ExplainRequest(
        model=rotary_pb2.ModelConfig(gguf=kept, config_json=config)))
    assert (refusal.reason, refusal.field, refusal.other_field) == ("CONFLICT", "model.gguf", "model.config_json")

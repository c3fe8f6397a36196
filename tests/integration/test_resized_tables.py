"""Tests learned tables that are resized: by a config.json, with a server and in process, and how they are told apart."""

import json

import numpy
import pytest

QWEN = {"model_type": "qwen3_vl", "vision_config": {
    "model_type": "qwen3_vl_vision", "hidden_size": 8, "num_heads": 2, "num_position_embeddings": 25,
    "spatial_merge_size": 2}, "text_config": {"model_type": "qwen3_vl_text", "hidden_size": 64, "num_attention_heads": 2}}
DINO = {"model_type": "dinov2_with_registers", "image_size": 70, "patch_size": 14, "hidden_size": 8}
IDEFICS = {"model_type": "idefics_vision", "image_size": 70, "patch_size": 14, "embed_dim": 8}


@pytest.fixture
def table(tmp_path):
    """Makes table.npy of N rows and config.json."""
    def make(rows, config=None):
        values = numpy.random.default_rng(7).standard_normal((rows, 8)).astype("<f4")
        numpy.save(tmp_path / "table.npy", values)
        if config is not None:
            (tmp_path / "config.json").write_text(json.dumps(config))
        return values
    return make


def embed(posenc, tmp_path, *flags, out="rows.npy"):
    posenc("embedding", "--learned-table", "table.npy", "--dtype", "fp32", *flags, "-o", out)
    return numpy.load(tmp_path / out)


@pytest.mark.parametrize("config, rows, target, flags", (
    (QWEN, 25, "4,6", ("--resize-mode", "bilinear", "--resize-align-corners", "--resize-spatial-merge-size", 2)),
    (DINO, 26, "3,7", ("--resize-mode", "bicubic", "--resize-antialias", "--resize-rows-before", 1)),
    (IDEFICS, 26, "3,7", ("--resize-mode", "bicubic", "--resize-scale-factor", "0.62,1.42", "--resize-rows-before", 1))),
    ids=("qwen3_vl", "dinov2_with_registers", "idefics_vision"))
def test_a_config_json_gives_all_but_the_target(posenc, address, tmp_path, table, config, rows, target, flags):
    table(rows, config)
    by_model = embed(posenc, tmp_path, "--model", "config.json", "--resize-target", target)
    by_server = embed(posenc, tmp_path, "--model", "config.json", "--resize-target", target, "--server", address)
    by_flags = embed(posenc, tmp_path, "--resize-target", target, *flags)
    numpy.testing.assert_array_equal(by_model, by_flags)
    numpy.testing.assert_array_equal(by_model, by_server)
    said = posenc("embedding", "--learned-table", "table.npy", "--model", "config.json", "--resize-target", target,
                  "--resize-mode", "nearest", "--dtype", "fp32", "-o", "no.npy", exit_code=(2, 3)).stderr
    assert "--resize-mode" in said and "as in config.json" in said


def test_explain_says_how_a_table_is_resized(posenc, tmp_path, table):
    table(25, QWEN)
    said = posenc("explain", "config.json").stdout
    assert "component vision" in said and "learned table" in said
    assert "from 5 x 5" in said and "bilinear, align_corners true" in said and "blocks of 2 x 2" in said
    table(26, DINO)
    said = posenc("explain", "config.json").stdout
    assert "from 5 x 5" in said and "bicubic, align_corners false, antialias true" in said


def test_a_table_of_other_rows_is_refused(posenc, tmp_path, table):
    table(24, QWEN)
    said = posenc("embedding", "--learned-table", "table.npy", "--model", "config.json", "--resize-target", "4,6", "--dtype",
                  "fp32", "-o", "no.npy", exit_code=(2, 3)).stderr
    assert "--learned-table" in said and "[25, 8]" in said


WAYS = {
    "bicubic": ("--resize-mode", "bicubic"),
    "bilinear": ("--resize-mode", "bilinear"),
    "nearest": ("--resize-mode", "nearest"),
    "antialias": ("--resize-mode", "bicubic", "--resize-antialias"),
    "bilinear antialias": ("--resize-mode", "bilinear", "--resize-antialias"),
    "corners": ("--resize-mode", "bilinear", "--resize-align-corners"),
    "zeros": ("--resize-mode", "bilinear", "--resize-padding", "zeros"),
    "0.1": ("--resize-mode", "bicubic", "--resize-scale-factor", "0.82,1.22"),
    "blocks": ("--resize-mode", "bilinear", "--resize-spatial-merge-size", 2),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_way_is_found(posenc, tmp_path, table, way):
    table(26)
    embed(posenc, tmp_path, "--resize-target", "4,6", "--resize-rows-before", 1, "--precision", "f32", *WAYS[way])
    found = posenc("diagnose-table", "rows.npy", "--learned-table", "table.npy", "--resize-target", "4,6",
                   "--resize-rows-before", 1)
    first = found.stdout.splitlines()[0]
    assert first.startswith("FOUND: resized by " + " ".join(map(str, WAYS[way])) + ";"), found.stdout
    assert len(found.stdout.splitlines()) == 1


def test_exchanged_sides_are_found(posenc, tmp_path, table):
    table(25)
    embed(posenc, tmp_path, "--resize-target", "6,4", "--resize-mode", "bicubic")
    found = posenc("diagnose-table", "rows.npy", "--learned-table", "table.npy", "--resize-target", "4,6")
    assert "--resize-mode bicubic, with the target's rows and columns exchanged" in found.stdout


def test_a_model_is_the_measure(posenc, tmp_path, table):
    table(26, DINO)
    call = ("diagnose-table", "rows.npy", "--learned-table", "table.npy", "--resize-target", "3,7", "--model", "config.json")
    embed(posenc, tmp_path, "--model", "config.json", "--resize-target", "3,7")
    assert posenc(*call).stdout.startswith("MATCHES: resized as config.json says; 176 of 176 elements are equal")
    embed(posenc, tmp_path, "--resize-target", "3,7", "--resize-mode", "bicubic", "--resize-rows-before", 1)
    said = posenc(*call, exit_code=1).stdout
    assert said.startswith("DIFFERS: resized by --resize-mode bicubic;")
    assert "config.json says --resize-mode bicubic --resize-antialias:" in said


def test_a_line_is_resized_linearly(posenc, tmp_path, table):
    table(9)
    embed(posenc, tmp_path, "--resize-target", 13, "--resize-mode", "linear", "--resize-antialias")
    call = ("diagnose-table", "rows.npy", "--learned-table", "table.npy", "--resize-target", 13)
    assert posenc(*call).stdout.startswith("FOUND: resized by --resize-mode linear")


def test_a_table_of_a_wrong_size_keeps_nobody_from_the_rotation(posenc, tmp_path, table):
    table(25, QWEN | {"vision_config": QWEN["vision_config"] | {"num_position_embeddings": 26}})
    said = posenc("explain", "config.json").stdout
    assert "component vision" in said and "also adds a learned table" in said and "resizes the table" not in said
    said = posenc("embedding", "--learned-table", "table.npy", "--model", "config.json", "--resize-target", "4,6", "--dtype",
                  "fp32", "-o", "no.npy", exit_code=(2, 3)).stderr
    assert "num_position_embeddings is 26" in said

def test_an_unknown_way_is_not_named(posenc, tmp_path, table):
    table(25)
    rows = embed(posenc, tmp_path, "--resize-target", "4,6", "--resize-mode", "bicubic")
    numpy.save(tmp_path / "rows.npy", rows + numpy.float32(0.01))
    call = ("diagnose-table", "rows.npy", "--learned-table", "table.npy", "--resize-target", "4,6")
    said = posenc(*call, exit_code=4).stdout
    assert said.startswith("UNKNOWN: ") and "nearest: --resize-mode bicubic;" in said
    answer = json.loads(posenc(*call, "--json", exit_code=4).stdout)
    assert answer["fitting"] == [] and answer["nearest"]["flags"] == "--resize-mode bicubic"


def test_what_the_command_needs_is_said(posenc, tmp_path, table):
    table(25)
    assert "--learned-table" in posenc("diagnose-table", "table.npy", exit_code=2).stderr
    numpy.save(tmp_path / "rows.npy", numpy.zeros((24, 8), "<f4"))
    said = posenc("diagnose-table", "rows.npy", "--learned-table", "table.npy", exit_code=2).stderr
    assert "--resize-target" in said and "24" in said

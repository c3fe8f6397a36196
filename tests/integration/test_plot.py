"""Tests posenc plot: it draws complete pictures of what was requested, or reports a clear error."""

import json
import os
import shlex
import struct
import subprocess
import xml.etree.ElementTree
import zlib

import pytest
from client import SECONDS
from google.protobuf import json_format
from posenc.v1 import service_pb2

ROPE = ("--rope-type", "default", "--rotary-dim", "16", "--input-pairing", "half-split")
ALIBI = ("--num-heads", "4", "--slopes", "power-of-two", "--alibi-form", "symmetric", "--query-length", "8", "--key-length", "8")
# Each kind of plot in each of its variants, and words that the picture must show.
PLOTS = {
    "decay": (("decay", *ROPE, "--max-distance", "5000", "--log-x"), ("Long-term decay", "rope_theta 10000")),
    "table": (("table", *ROPE, "--offset", "-4", "--count", "9"), ("cos(position * inv_freq)", "pair")),
    "encoding": (("table", "--convention", "halves", "--dim", "8"), ("convention halves", "position", "dimension")),
    "bias": (("bias", *ALIBI, "--causal"), ("num_heads 4", "head 0", "head 3", "query", "key")),
    "buckets": (("bias", "--t5-bidirectional", "true", "--query-length", "8", "--key-length", "8", "--index"),
                ("num_buckets 32", "row of the table")),
    "frequencies": (("frequencies", "--rope-type", "linear", "--factor", "4", *ROPE[2:]),
                    ("unscaled", "interpolated: divided by factor (8 pairs)", "wavelength (tokens)")),
    "dot-products": (("similarity", "--convention", "interleaved", "--dim", "8"), ("dot product of the encodings",)),
    "patches": (("similarity", "--axial", "8,8", "--input-pairing", "interleaved", "--grid", "5x7"),
                ("stand at (row, column)", "axes[1] dim 8")),
    "wavelets": (("wavelets", "--wavelet", "morlet", "--morlet-frequency", "3", "--scales", "2", "--max-distance", "9"),
                 ("wavelet morlet", "a = 1", "a = 2")),
    "wavelets-by-default": (("wavelets", "--wavelet", "ricker"), ("wavelet ricker", "a = 1", "a = 8")),
    "flattened": (("similarity", *ROPE, "--grid", "5x7"), ("numbered row by row",)),
}


def png_size(contents):
    """Checks that the picture is complete, and returns its width and height."""
    assert contents[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, kinds = 8, b"", []
    while at < len(contents):
        length, kind = struct.unpack(">I4s", contents[at:at + 8])
        chunk = contents[at + 8:at + 8 + length]
        assert zlib.crc32(kind + chunk) == struct.unpack(">I", contents[at + 8 + length:at + 12 + length])[0]
        kinds.append(kind)
        data += chunk if kind == b"IDAT" else b""
        at += 12 + length
    assert kinds[0] == b"IHDR" and kinds[-1] == b"IEND"
    width, height = struct.unpack(">II", contents[16:24])
    assert len(zlib.decompress(data)) >= width * height
    return width, height


def words_of(svg):
    root = xml.etree.ElementTree.parse(svg).getroot()
    assert root.tag.endswith("svg")
    return " ".join(" ".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text"))


@pytest.mark.parametrize("name", PLOTS)
def test_each_kind_draws_a_picture(posenc, address, tmp_path, name):
    arguments, words = PLOTS[name]
    said = posenc("plot", *arguments, "--output", "picture.png").stdout
    width, height = png_size((tmp_path / "picture.png").read_bytes())
    assert f"picture.png: {width} x {height}\n" in said and min(width, height) > 200
    posenc("plot", *arguments, "-o", "picture.svg", "--server", address)
    shown = words_of(tmp_path / "picture.svg")
    svg = (tmp_path / "picture.svg").read_text()
    assert svg.count("<image ") == svg.count("image-rendering:pixelated")  # no blurred cells
    for word in words:
        assert word in shown, shown
    posenc("plot", *arguments, "-o", "there.png", "--server", address)
    assert (tmp_path / "there.png").read_bytes() == (tmp_path / "picture.png").read_bytes()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_model_is_named_with_its_type_and_its_lengths(posenc, configs, tmp_path):
    """The title names model and rope_type; the trained and the extended length are marked."""
    llama, qwen = configs / "llama-3.1-8b.json", configs / "qwen2.5-7b-instruct-yarn.json"
    for kind, more in (("frequencies", ()), ("decay", ("--max-distance", 200_000, "--log-x"))):
        posenc("plot", kind, "--model", llama, *more, "-o", "one.svg")
        shown = words_of(tmp_path / "one.svg")
        for word in "llama-3.1-8b (llama3)", "trained length, 8,192", "extended length, 131,072":
            assert word in shown, shown
        posenc("plot", kind, "--model", llama, "--overlay", qwen, *more, "-o", "two.svg")
        shown = words_of(tmp_path / "two.svg")
        assert "llama-3.1-8b (llama3) and qwen2.5-7b-instruct-yarn (yarn)" in shown, shown
        assert "qwen2.5-7b-instruct-yarn: trained length, 32,768" in shown, shown
        assert shown.count("qwen2.5-7b-instruct-yarn") >= 2  # title and legend
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(llama.read_text())
    posenc("plot", "table", "--model", folder, "-o", "table.svg")
    assert "My-Model (llama3)" in words_of(tmp_path / "table.svg")


def test_a_grid_takes_no_overlay(posenc, configs):
    model = configs / "llama-3.1-8b.json"
    done = posenc("plot", "similarity", "--model", model, "--grid", "8x8", "--overlay", model, "-o", "x.svg", exit_code=2)
    assert "--overlay: must be absent with --grid" in done.stderr


def test_axes_have_their_own_units(posenc, tmp_path):
    mrope = (*ROPE, "--mrope-section", "2,3,3", "--mrope-order", "contiguous")
    for arguments, words in ((mrope, ("time, in frames (2 pairs)", "height, in patches (3 pairs)", "width, in patches (3")),
                             (("--axial", "8,8", "--input-pairing", "interleaved"), ("row, in patches (4 pairs)", "column"))):
        posenc("plot", "frequencies", *arguments, "-o", "axes.svg")
        for word in words:
            assert word in words_of(tmp_path / "axes.svg")


def test_the_bound_bounds(posenc, tmp_path):
    """What the picture draws: at every distance the sum of |S_j| is at least the score."""
    answer = posenc("plot", "decay", "--json", *ROPE, "--max-distance", "3000").stdout
    response = json.loads(answer)
    score, bound = response["cosine_sum"]["data"], response["decay_bound"]["data"]
    assert len(score) == len(bound) > 2000
    assert all(len(response["pairs"]) * b >= abs(s) for s, b in zip(score, bound))


@pytest.mark.parametrize("kind", ["decay", "table"])
def test_size_and_title_are_the_users(posenc, tmp_path, kind):
    for suffix in "png", "svg":
        said = posenc("plot", kind, *ROPE, "--size", "1000x640", "--title", "As I say", "-o", f"p.{suffix}").stdout
        assert "1000 x 640" in said
    assert png_size((tmp_path / "p.png").read_bytes()) == (1000, 640)
    assert "As I say" in words_of(tmp_path / "p.svg")


def test_a_picture_goes_to_a_stream(posenc, command_program, configs, tmp_path):
    model = configs / "llama-3.1-8b.json"
    posenc("plot", "decay", *ROPE, "-o", "file.png")
    expected = (tmp_path / "file.png").read_bytes()
    for line in f"{shlex.join([*command_program, 'plot', 'decay', *ROPE])} -o -", f"{shlex.join(command_program)} plot decay " \
            f"{shlex.join(ROPE)} -o >(cat)":
        piped = subprocess.run(["bash", "-c", line], capture_output=True, timeout=SECONDS, check=True)
        assert piped.stdout == expected and b": 900 x " in piped.stderr
    posenc("plot", "decay", "--model", "-", "-o", "model.svg", stdin=model.read_text())
    assert "Long-term decay: llama3" in words_of(tmp_path / "model.svg")  # a stream has no model's name


def answers(posenc, *arguments):
    """Returns what --json prints of a plot: the answer, and what was assumed."""
    answer = json.loads(posenc("plot", *arguments, "--json").stdout)
    return answer, answer.pop("assumed", {})


@pytest.mark.parametrize("length, assumed", [
    (100, {"max_distance": "256"}), (512, {"max_distance": "512"}), (1000, {"max_distance": "1000"}),
    (8192, {"max_distance": "8192", "log_x": "true"}), (1e300, {"max_distance": str(2**40), "log_x": "true"}),
])
def test_the_decay_reaches_to_the_models_length(posenc, tmp_path, length, assumed):
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 1, "max_position_embeddings": length}))
    model = ("decay", "--model", "config.json")
    answer, chosen = answers(posenc, *model)
    assert chosen == assumed
    log_x = ("--log-x",) if "log_x" in assumed else ()
    assert answers(posenc, *model, "--max-distance", assumed["max_distance"], *log_x) == (answer, {})
    assert answers(posenc, *model, "--max-distance", 300)[1] == {}
    assert answers(posenc, *model, "--log-x")[1] == {"max_distance": assumed["max_distance"]}


def test_what_a_picture_shows_by_default_is_said(posenc, configs, tmp_path):
    said = posenc("plot", "decay", *ROPE, "-o", "decay.svg").stderr
    assert said == "posenc: assumed --max-distance 256\n"
    said = posenc("plot", "decay", "--model", configs / "llama-3.1-8b.json", "-o", "decay.svg").stderr
    assert said == "posenc: assumed --max-distance 131072, --log-x true\n"
    assert "extended length, 131,072" in words_of(tmp_path / "decay.svg")
    said = posenc("plot", "bias", "--model", configs / "mpt-7b.json", "-o", "bias.svg").stderr
    assert "assumed" in said and all(flag in said for flag in ("--query-length 64", "--key-length 64", "--head-count 16"))
    shown = words_of(tmp_path / "bias.svg")
    assert "head 0" in shown and "head 15" in shown and "head 16" not in shown


T5 = ("--t5-bidirectional", "true", "--index")


@pytest.mark.parametrize("method, length, heads", [
    (ALIBI[:6], 64, None), (("--num-heads", "17", *ALIBI[2:6]), 64, 16), (("--nope",), 64, None),
    (T5, 129, None), ((*T5, "--t5-max-distance", "20"), 21, None), ((*T5, "--t5-max-distance", "511"), 512, None),
    ((*T5, "--t5-max-distance", "100000"), 512, None),
])
def test_a_bias_without_lengths_has_some(posenc, method, length, heads):
    answer, assumed = answers(posenc, "bias", *method)
    given = {"query_length": str(length), "key_length": str(length)} | ({"head_count": str(heads)} if heads else {})
    assert {name: assumed[name] for name in assumed if name in ("query_length", "key_length", "head_count")} == given
    assert [int(side) for side in answer["bias"]["shape"]][-2:] == [length, length]
    flags = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)]
    again, assumed = answers(posenc, "bias", *method, *flags)
    assert again == answer and not {"query_length", "key_length", "head_count"} & assumed.keys()


def test_different_biases_look_different(posenc, tmp_path):
    """A bias of 0 everywhere is the same picture each time; a head with a slope changes it."""
    pictures = {}
    for name, slopes in (("flat", "0,0"), ("again", "0,0"), ("steep", "0,1")):
        posenc("plot", "bias", "--num-heads", "2", "--given-slopes", slopes, *ALIBI[4:], "-o", f"{name}.png")
        pictures[name] = (tmp_path / f"{name}.png").read_bytes()
    assert pictures["flat"] == pictures["again"] != pictures["steep"]


def test_the_numbers_of_a_picture_as_json(posenc):
    answer = posenc("plot", "similarity", "--json", "--convention", "interleaved", "--dim", "8", "--max-distance", "4").stdout
    assert '"data": [2.266609' in answer  # the dot product of positions 4 apart
    assert answer.count('"shape": [9]') == 2
    answer = posenc("plot", "frequencies", "--json", *ROPE).stdout
    assert len(json_format.Parse(answer, service_pb2.AnalyzeResponse()).pairs) == 8


def test_a_files_name_is_no_command(posenc, tmp_path):
    name = "a'; system \"touch b\" `touch c` $(touch d).png"
    posenc("plot", "decay", *ROPE, "-o", name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("arguments, said", [
    (("decay", *ROPE, "-o", "picture.gif"), "picture.gif: the name of a picture must end in .png or .svg"),
    (("decay", *ROPE), "an output: -o FILE.png"),
    (("decay", *ROPE, "--size", "10x9000", "-o", "x.png"), "10x9000 must be WIDTHxHEIGHT in pixels"),
    (("decay", "-o", "x.png"), "--model"),
    (("decay", *ROPE, "--dim", "8", "-o", "x.png"), "not both"),
    (("table", *ROPE, "--dim", "8", "-o", "x.png"), "not both"),
    (("bias", *ALIBI[2:], "--num-heads", "32", "-o", "x.png"), "32 heads"),
    (("similarity", *ROPE, "--grid", "5", "-o", "x.png"), "--grid"),
    (("similarity", *ROPE, "--grid", "2x2", "-o", "x.png"), "--grid"),
    (("table", *ROPE, "--count", "1000000", "-o", "x.png"), "cells"),
    ((), "missing: decay or table"),
])
def test_a_wrong_command_line(posenc, tmp_path, arguments, said):
    ended = posenc("plot", *arguments, exit_code=2)
    assert said in ended.stderr and "posenc plot" in ended.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_what_the_service_refuses_is_said(posenc, address):
    wrong = ("plot", "decay", "--rope-type", "yarn", *ROPE[2:], "-o", "x.png")
    here = posenc(*wrong, exit_code=3).stderr
    assert "--original-max-position-embeddings" in here
    assert here == posenc(*wrong, "--server", address, exit_code=3).stderr


def test_without_gnuplot(posenc, tmp_path):
    (tmp_path / "empty").mkdir()
    said = posenc("plot", "decay", *ROPE, "-o", "x.png", exit_code=3, PATH=str(tmp_path / "empty")).stderr
    assert "gnuplot-nox" in said and "apt install" in said
    posenc("plot", "decay", "--json", *ROPE, PATH=str(tmp_path / "empty"))  # --json needs no gnuplot
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_gnuplot_that_fails(posenc, tmp_path):
    broken = tmp_path / "bin" / "gnuplot"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no such terminal >&2\nexit 1\n")
    broken.chmod(0o755)
    said = posenc("plot", "decay", *ROPE, "-o", "x.png", exit_code=3, PATH=f"{broken.parent}:{os.environ['PATH']}").stderr
    assert "gnuplot failed: no such terminal" in said
    assert not (tmp_path / "x.png").exists()

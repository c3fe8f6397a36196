"""ONNX graphs: what explain, compare, diagnose and the other commands say of the operators that rotate. The tables are
computed in float32, as transformers does; tests/conformance/check_onnx.py exports and runs graphs with its own code."""

import json
import os
import resource
import re
import subprocess

import numpy
import onnx_file
import pytest
from conftest import ROOT
from onnx_file import MICROSOFT, Graph, Reference, bfloat16, function, inv_freq, model, node, rotary, rotating, tables, tensor

PAGE = (ROOT / "docs" / "onnx.md").read_text()
KINDS = ("standard", "microsoft", "gqa")
NAMES = {"standard": "ai.onnx RotaryEmbedding (opset 23), 4 nodes",
         "microsoft": "com.microsoft RotaryEmbedding (opset 1), 4 nodes",
         "gqa": "com.microsoft GroupQueryAttention (opset 1), 2 nodes"}
ROWS = 256
LLAMA = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
         "max_position_embeddings": ROWS, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}


def llama3(width=64):
    """Llama 3's frequencies, from transformers' formula."""
    plain = inv_freq(width, 500000.0).astype("f8")
    wavelengths = 2 * numpy.pi / plain
    smooth = numpy.clip((8192 / wavelengths - 1) / 3, 0, 1)
    return (((1 - smooth) / 8 + smooth) * plain).astype("f4")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return tmp_path


def write(folder, data, name="graph.onnx"):
    (folder / name).write_bytes(data)
    return name


@pytest.mark.parametrize("kind", KINDS)
def test_the_three_operators_right_and_wrong(posenc, folder, kind):
    cos, sin = tables(inv_freq(64), ROWS)
    write(folder, rotating(kind, cos, sin), "right.onnx")
    write(folder, rotating(kind, cos, sin, interleaved=1), "wrong.onnx")
    said = posenc("explain", "right.onnx").stdout
    assert said.startswith(NAMES[kind] + "\n") and "half-split" in said and "256: positions 0-255" in said
    assert "FP32 [256, 32], cos_cache and sin_cache, in the graph" in said
    assert "rope_type default, rope_theta 10000" in said and "worst 1 ulp" in said
    assert ("4, k and v 2" if kind == "gqa" else "\n  heads        4\n") in said
    same = posenc("compare", "right.onnx", "config.json").stdout
    assert same.startswith("same: ") and "MATCHES" in same and "; frequencies and angles in float32 explain it" in same
    for sides in (("wrong.onnx", "config.json"), ("config.json", "wrong.onnx")):
        wrong = posenc("compare", *sides, exit_code=1).stdout
        pairings = ("interleaved", "half-split") if sides[0] == "wrong.onnx" else ("half-split", "interleaved")
        assert wrong.startswith("different: ") and "different: pairing\n" in wrong
        assert "a: {}   b: {}; right only if".format(*pairings) in wrong and "MATCHES" in wrong


def found(posenc, *files, exit_code=1):
    answer = json.loads(posenc("compare", *files, "--json", exit_code=exit_code).stdout)
    assert answer["same"] == (exit_code == 0)
    return answer["rotary"]


def test_faults_of_the_table_are_named(posenc, folder):
    faults = {"theta": (tables(inv_freq(64, 500000.0), ROWS), "rope_theta 500000 was applied, but the model specifies 10000"),
              "exchanged": (tables(inv_freq(64), ROWS)[::-1], "cosines and sines are exchanged"),
              "attention factor": (tables(inv_freq(64), ROWS, 1.5), "attention factor 1.5")}
    for name, (given, said) in faults.items():
        write(folder, rotating("standard", *given))
        only, = found(posenc, "graph.onnx", "config.json")
        assert only["differences"] == ["table"] and said in only["table"], name
    (folder / "config.json").write_text(json.dumps(LLAMA | {"max_position_embeddings": 131072, "rope_parameters": LLAMA3}))
    write(folder, rotating("gqa", *tables(llama3(), 8192)))
    only, = found(posenc, "graph.onnx", "config.json")
    assert only["differences"] == ["rows"]
    assert only["rows"] == "8192 of max_position_embeddings 131072: positions from 8192 on have none"
    write(folder, rotating("gqa", *tables(inv_freq(64, 500000.0), 131072)))
    only, = found(posenc, "graph.onnx", "config.json")
    assert only["differences"] == ["table"] and "the llama3 scaling is missing" in only["table"]
    write(folder, rotating("gqa", *tables(llama3(), 131072)))
    only, = found(posenc, "graph.onnx", "config.json", exit_code=0)
    assert "at position" in only["from exact"] and "float32 explain it" in only["from exact"]


def test_explain_says_what_a_scaled_table_keeps(posenc, folder):
    write(folder, rotating("gqa", *tables(llama3(), 8192)))
    only, = json.loads(posenc("explain", "graph.onnx", "--json").stdout)["rotary"]
    assert only["frequencies"].startswith("of no formula that the table alone shows; pairs 0-14 have those of rope_theta 500000")
    assert "divided by 8" in only["frequencies"] and only["rows"] == 8192 and only["rotary_dim"] == 64


def test_partial_width_and_another_width(posenc, folder):
    (folder / "config.json").write_text(json.dumps(
        {"model_type": "phi", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2,
         "max_position_embeddings": ROWS, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}))
    write(folder, rotating("microsoft", *tables(inv_freq(32), ROWS), rotary_embedding_dim=32, num_heads=4))
    assert "32 of head_size 64" in posenc("explain", "graph.onnx").stdout
    assert posenc("compare", "graph.onnx", "config.json").stdout.startswith("same: ")
    write(folder, rotating("microsoft", *tables(inv_freq(64), ROWS)))
    only, = found(posenc, "graph.onnx", "config.json")
    assert "rotary_dim" in only["differences"] and only["rotary_dim"] == "a: 64   b: 32"
    write(folder, rotating("microsoft", *tables(inv_freq(32), ROWS), rotary_embedding_dim=48, num_heads=4))
    assert "must be 32, twice the width" in posenc("explain", "graph.onnx", exit_code=3).stderr


@pytest.mark.parametrize("typed", (False, True))
@pytest.mark.parametrize(("name", "convert"), (("FP16", lambda x: x.astype("<f2")), ("BF16", bfloat16), ("FP32", lambda x: x),
                                               ("FP64", lambda x: x.astype("<f8"))))
def test_types_of_tables(posenc, folder, typed, name, convert):
    cos, sin = map(convert, tables(inv_freq(64), ROWS))
    if name == "FP64":  # a table of doubles that are float32 numbers is found to be rounded
        angles = numpy.arange(ROWS)[:, None] * 10000.0 ** (-numpy.arange(32) / 32)
        cos, sin = numpy.cos(angles), numpy.sin(angles)
    write(folder, rotating("standard", cos, sin, typed=typed))
    assert f"{name} [256, 32]" in posenc("explain", "graph.onnx").stdout
    assert posenc("compare", "graph.onnx", "config.json").stdout.startswith("same: ")


def test_external_data(posenc, folder):
    cos, sin = tables(inv_freq(64), ROWS)
    (folder / "data").mkdir()
    (folder / "data" / "weights.bin").write_bytes(bytes(4096) + cos.tobytes() + sin.tobytes())
    places = [{"location": "data/weights.bin", "offset": 4096 + n * cos.nbytes, "length": cos.nbytes} for n in (0, 1)]
    write(folder, rotating("standard", cos, sin, external=places))
    assert "in data/weights.bin" in posenc("explain", "graph.onnx").stdout
    assert posenc("compare", "graph.onnx", "config.json").stdout.startswith("same: ")
    # As in the Hugging Face cache.
    cache = folder / "snapshots" / "abc"
    (cache / "data").mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "graph.onnx").rename(folder / "blobs" / "1")
    (folder / "data" / "weights.bin").rename(folder / "blobs" / "2")
    (cache / "graph.onnx").symlink_to("../../blobs/1")
    (cache / "data" / "weights.bin").symlink_to("../../../blobs/2")
    assert posenc("compare", cache / "graph.onnx", "config.json").stdout.startswith("same: ")


@pytest.mark.parametrize(("location", "offset", "length", "said"), (
    ("../secret", 0, 32768, "must be the path of a file in the folder of the graph"),
    ("/etc/passwd", 0, 32768, "must be the path of a file in the folder of the graph"),
    ("link", 0, 32768, "must be the path of a file in the folder of the graph"),
    ("", 0, 32768, "must be the path of a file in the folder of the graph"),
    ("absent", 0, 32768, "must be a file beside the graph: cannot open"),
    ("pipe", 0, 32768, "must be a regular file"),
    ("short", 8, 32768, "must hold the data, but is truncated: has 100 bytes"),
    ("short", 2**63, 32768, "must hold the data, but is truncated"),
    ("short", "x", 32768, "external_data.offset: is x; must be a number of bytes"),
    ("short", 0, 2**62, "must have the 32768 bytes of its shape and type")))
def test_external_data_that_is_refused(posenc, folder, location, offset, length, said):
    graphs = folder / "graphs"
    graphs.mkdir()
    (folder / "secret").write_bytes(bytes(32768))
    (graphs / "link").symlink_to("../secret")
    (graphs / "short").write_bytes(bytes(100))
    os.mkfifo(graphs / "pipe")
    place = {"location": location, "offset": offset, "length": length}
    write(graphs, rotating("standard", *tables(inv_freq(64), ROWS), external=[place, place]))
    done = posenc("explain", "graphs/graph.onnx", exit_code=3)
    assert said in done.stderr and "graphs/graph.onnx: " in done.stderr and "onnx.cos_cache" in done.stderr


def test_tables_in_constants_branches_and_functions(posenc, folder):
    cos, sin = tables(inv_freq(64), ROWS)
    constants = [node("Constant", [], [name], value=tensor("", table)) for name, table in (("c", cos), ("s", sin))]
    function_nodes = rotary("standard", Reference("pairing"), layers=1, cos="t0", sin="t1")
    inside = function("local", "Rotate", ["q0", "k0", "t0", "t1"], ["q0_rotated", "k0_rotated"], function_nodes)
    call = node("Rotate", ["q", "k", "c", "s"], ["a", "b"], "local", pairing=1)
    loop = node("Loop", ["n", "more"], ["out"], body=Graph([call]))
    write(folder, model(Graph([*constants, loop]), [inside]))
    said = json.loads(posenc("explain", "graph.onnx", "--json").stdout)["rotary"]
    assert [(one["input_pairing"], len(one["nodes"])) for one in said] == [("PAIRING_INTERLEAVED", 2)]
    only, = found(posenc, "graph.onnx", "config.json")
    assert only["differences"] == ["pairing"]


def longrope():
    short, long = [1 + n / 50 for n in range(32)], [1 + n / 2 for n in range(32)]
    config = LLAMA | {"model_type": "phi3", "max_position_embeddings": 4096, "original_max_position_embeddings": 1024,
                      "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": short, "long_factor": long,
                                          "original_max_position_embeddings": 1024}}
    scaling = numpy.sqrt(1 + numpy.log(4) / numpy.log(1024))
    return config, *(tables(inv_freq(64) / numpy.float32(factors), rows, scaling) for factors, rows in ((short, 1024), (long, 4096)))


def test_tables_that_an_if_chooses(posenc, folder):
    """onnxruntime-genai writes LongRoPE so."""
    config, short, long = longrope()
    (folder / "config.json").write_text(json.dumps(config))

    def branch(kind, given):
        return Graph([], [tensor(f"{name}_{kind}", table) for name, table in zip(("cos", "sin"), given)], (),
                     [f"cos_{kind}", f"sin_{kind}"])

    choice = node("If", ["is_long"], ["cos_cache", "sin_cache"], then_branch=branch("large", long), else_branch=branch("small", short))
    write(folder, model(Graph([choice, *rotary("gqa")])))
    entries = found(posenc, "graph.onnx", "config.json", exit_code=0)
    assert [one["at seq_len"] for one in entries] == ["2048", "1024"]
    write(folder, model(Graph(rotary("gqa"), [tensor("cos_cache", long[0]), tensor("sin_cache", long[1])])))
    entries = found(posenc, "graph.onnx", "config.json")
    assert [one["differences"] for one in entries] == [[], ["table"]] and "at seq_len 1024" in entries[1]["title"]


def test_layers_that_rotate_differently(posenc, folder):
    gemma = {"model_type": "gemma3_text", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
             "num_hidden_layers": 2, "max_position_embeddings": ROWS, "layer_types": ["sliding_attention", "full_attention"],
             "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                 "full_attention": {"rope_type": "default", "rope_theta": 1e6}}}
    (folder / "config.json").write_text(json.dumps(gemma))
    local, far = tables(inv_freq(64), ROWS), tables(inv_freq(64, 1e6), ROWS)

    def graph(first, second):
        stored = [tensor(f"{name}{n}", table) for n, pair in enumerate((first, second)) for name, table in zip(("cos", "sin"), pair)]
        nodes = [one for n in (0, 1) for one in rotary("gqa", layers=n + 1, cos=f"cos{n}", sin=f"sin{n}")[n:]]
        return model(Graph(nodes, stored))

    write(folder, graph(local, far), "right.onnx")
    entries = found(posenc, "right.onnx", "config.json", exit_code=0)
    assert ["layers 0" in one["title"] for one in entries] == [True, False]
    write(folder, graph(local, local), "wrong.onnx")
    entries = found(posenc, "wrong.onnx", "config.json")
    assert entries[-1] == {"title": "layers 1", "differences": ["table"], "table": "no operator of the graph has it"}
    assert [one["differences"] for one in found(posenc, "right.onnx", "wrong.onnx")] == [[], ["operator"]]


def test_q_and_k_of_different_heads_are_one(posenc, folder):
    cos, sin = tables(inv_freq(64), ROWS)
    shapes = [(f"{operand}{layer}", [1, heads, "tokens", 64]) for layer in (0, 1) for operand, heads in (("q", 4), ("k", 2))]
    write(folder, model(Graph(rotary("standard"), [tensor("cos_cache", cos), tensor("sin_cache", sin)], values=shapes)))
    said = json.loads(posenc("explain", "graph.onnx", "--json").stdout)["rotary"]
    assert [(one["num_heads"], one["head_size"], len(one["nodes"])) for one in said] == [(4, 64, 2), (2, 64, 2)]
    only, = found(posenc, "graph.onnx", "config.json", exit_code=0)
    assert "4 nodes" in only["title"]


def test_two_graphs(posenc, folder):
    cos, sin = tables(inv_freq(64), ROWS)
    write(folder, rotating("standard", cos, sin), "a.onnx")
    write(folder, rotating("microsoft", cos, sin), "b.onnx")
    assert found(posenc, "a.onnx", "b.onnx", exit_code=0)[0]["table"] == "no difference"
    cos[7, 3] += 0.5
    write(folder, rotating("gqa", cos, sin, interleaved=1), "c.onnx")
    only, = found(posenc, "a.onnx", "c.onnx")
    assert only["differences"] == ["pairing", "table"] and only["table"] == "differs by at most 0.5, at position 7 in pair 3"


def test_a_rotation_by_the_graphs_table(posenc, folder):
    cos, sin = tables(inv_freq(64), ROWS)
    write(folder, rotating("standard", cos, sin))
    rng = numpy.random.default_rng(1)
    q = rng.standard_normal((1, 16, 4, 64)).astype("f4")
    numpy.save(folder / "q.npy", q)
    posenc("rope", "--model", "graph.onnx", "--layout", "bshd", "--offset", "9", "--q", "q.npy", "--q-out", "turned.npy")
    c, s = cos[9:25, None], sin[9:25, None]
    expected = numpy.concatenate((q[..., :32] * c - q[..., 32:] * s, q[..., 32:] * c + q[..., :32] * s), -1)
    assert numpy.abs(numpy.load(folder / "turned.npy") - expected).max() < 1e-6
    rotation = ["--before", "q.npy", "--after", "turned.npy", "--layout", "bshd", "--offset", "9"]
    assert posenc("diagnose", "--model", "graph.onnx", *rotation).stdout.startswith("MATCHES: ")
    write(folder, rotating("standard", cos, sin, interleaved=1), "wrong.onnx")
    said = posenc("diagnose", "--model", "wrong.onnx", *rotation, exit_code=1).stdout
    assert said.startswith("DIFFERS: ") and "half-split" in said


def test_what_is_no_table_of_the_graph(posenc, folder):
    cos, sin = tables(inv_freq(64), ROWS)
    computed = model(Graph([node("Cos", ["angles"], ["cos_cache"]), node("Sin", ["angles"], ["sin_cache"]), *rotary("standard")]))
    write(folder, computed)
    assert "the table of cosines is the output of a node Cos" in posenc("explain", "graph.onnx").stdout
    assert "the output of a node Cos" in posenc("compare", "graph.onnx", "config.json", exit_code=3).stderr
    write(folder, model(Graph([node("MatMul", ["a", "b"], ["c"])])))
    assert "has no operator that rotates by a table" in posenc("explain", "graph.onnx", exit_code=3).stderr
    write(folder, model(Graph([node("MRotaryEmbedding", ["a", "b"], ["c"], MICROSOFT)])))
    assert "not read are: com.microsoft MRotaryEmbedding, 1 node" in posenc("explain", "graph.onnx", exit_code=3).stderr
    two = model(Graph([*rotary("standard"), *rotary("gqa", cos="c2", sin="s2")], [
        tensor("cos_cache", cos), tensor("sin_cache", sin), *(tensor(n, t) for n, t in zip(("c2", "s2"), tables(inv_freq(64, 5e5), 64)))]))
    write(folder, two)
    table = ["--offset", "0", "--count", "4", "--dtype", "fp32", "--form", "half-width", "-o", "out.safetensors"]
    assert "has 2 different rotary embeddings" in posenc("table", "--model", "graph.onnx", *table, exit_code=2).stderr
    posenc("table", "--model", "graph.onnx", "--component", "/layers.0/attn", *table)
    assert "is an ONNX graph" in posenc("bias", "--model", "graph.onnx", "--query-length", "4", "--key-length", "4", "--bias-form",
                                        "dense", "--dtype", "fp32", "-o", "b.npy", exit_code=3).stderr
    assert "--layer-index: not with an ONNX graph" in posenc("explain", "graph.onnx", "--layer-index", "0", exit_code=2).stderr


@pytest.mark.parametrize(("change", "said"), (
    (lambda data: data[:200], "at byte"), (lambda data: b"\xff" * 200, "onnx.model: is a varint at byte 0"),
    (lambda data: b"", "onnx.graph: must be given"), (lambda data: b"{}" + data, "onnx."),
    (lambda data: data.replace(b"\x08\x80\x02\x08\x20", b"\x08\x80\x02\x08\x21"), "must have the 33792 bytes of its shape and type"),
    (lambda data: data.replace(b"\x08\x80\x02\x08\x20", b"\x08\x80\x02\x08\x00"), "must be [rows, width] or [1, rows, width]"),
    (lambda data: data.replace(b"\x20\x10\x01B\x09cos", b"\x20\x10\x07B\x09cos"), "data type 7; must be FLOAT (1)")))
def test_broken_files_name_file_and_field(posenc, folder, change, said):
    data = rotating("standard", *tables(inv_freq(64), ROWS))
    write(folder, change(data))
    done = posenc("explain", "graph.onnx", exit_code=3)
    assert "graph.onnx: " in done.stderr and said in done.stderr


def test_a_graph_of_gigabytes_is_not_loaded(command_program, folder):
    """Weights of 3 GiB in the file, and of 1 TiB beside it."""
    cos, sin = tables(inv_freq(64), ROWS)
    size = 3 << 30
    weights = onnx_file.field(1, [size // 4]) + onnx_file.field(2, onnx_file.FLOAT) + onnx_file.field(8, "w")
    weights += onnx_file.varint(9 << 3 | 2) + onnx_file.varint(size)
    rest = Graph(rotary("gqa"), [tensor("cos_cache", cos), tensor("sin_cache", sin), onnx_file.field(1, 1 << 38) + onnx_file.field(
        2, 1) + onnx_file.field(13, [onnx_file.entry("location", "absent")]) + onnx_file.field(14, 1)]).data
    inner = onnx_file.varint(5 << 3 | 2) + onnx_file.varint(len(weights) + size) + weights
    with open(folder / "graph.onnx", "wb") as file:
        file.write(onnx_file.varint(7 << 3 | 2) + onnx_file.varint(len(inner) + size + len(rest)) + inner)
        file.seek(size, os.SEEK_CUR)
        file.write(rest)
    limit = 2 << 30
    done = subprocess.run([*command_program, "explain", "graph.onnx"], cwd=folder, capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
    assert done.returncode == 0 and "rope_theta 10000" in done.stdout, done.stderr


def test_the_page(posenc, folder):
    """docs/onnx.md: each command of its transcripts prints what the page shows."""
    angles = (numpy.arange(4096, dtype="f4")[:, None] * inv_freq(64)).astype("f8")
    cos, sin = numpy.cos(angles).astype("f4"), numpy.sin(angles).astype("f4")
    (folder / "config.json").write_text(json.dumps(LLAMA | {"max_position_embeddings": 4096}))
    for name, interleaved in (("model.onnx", 0), ("wrong.onnx", 1)):
        write(folder, rotating("microsoft", cos, sin, interleaved=interleaved), name)
    transcripts = re.findall(r"^```console\n\$ posenc ([^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(transcripts) == 3
    for command, output in transcripts:
        assert posenc(*command.split(), exit_code=(0, 1)).stdout == output
    commands = re.findall(r"^(posenc (?:diagnose|rope) .*)$", PAGE, re.MULTILINE)
    assert len(commands) == 2
    numpy.save(folder / "q.npy", numpy.random.default_rng(1).standard_normal((1, 8, 4, 64)).astype("f4"))
    for command in reversed(commands):  # the rotation, then its diagnosis
        posenc(*command.split()[1:])

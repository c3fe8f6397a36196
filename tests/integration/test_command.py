"""Tests the posenc command as a person or a script uses it: with a server, and in its own process."""

import contextlib
import json
import os
import pty
import shlex
import subprocess

import gguf_file
import numpy
import pytest
import samples
from client import SECONDS
from google.protobuf import json_format
from posenc.v1 import service_pb2


SETTINGS = ("--rope-type", "default", "--rotary-dim", "8", "--input-pairing", "half-split")
MODEL = "llama-3.1-8b.json"


@pytest.mark.parametrize("kind", ("npy", "safetensors"))
def test_rope_by_a_server_and_in_process_write_the_same_files(posenc, address, tmp_path, configs, kind):
    chance = numpy.random.default_rng(20240607)
    for name, heads in (("q", 4), ("k", 1)):
        numpy.save(tmp_path / f"{name}.npy", chance.standard_normal((2, 5, heads, 128)).astype("<f4"))
    outputs = {}
    for place, flags in (("here", ()), ("there", ("--server", address))):
        posenc("rope", *flags, "--model", configs / MODEL, "--layout", "bshd", "--offset", 100_000, "--q", "q.npy",
               "--k", "k.npy", "--q-out", f"{place}-q.{kind}", "--k-out", f"{place}-k.{kind}")
        outputs[place] = [(tmp_path / f"{place}-{name}.{kind}").read_bytes() for name in "qk"]
    assert outputs["here"] == outputs["there"]
    assert all(outputs["here"])


@pytest.mark.parametrize("kind", ("npy", "safetensors"))
def test_every_subcommand_writes_the_same_files_by_a_server_and_in_process(posenc, address, tmp_path, kind):
    for name, shape in {"rows": (5, 4), "x": (2, 3, 4), "points": (6, 4), "heads": (1, 3, 3, 4),
                        "probabilities": (1, 3, 3, 3)}.items():
        numpy.save(tmp_path / f"{name}.npy", numpy.random.default_rng(1).standard_normal(shape).astype("<f4"))
    commands = {
        "table": ("table", *SETTINGS, "--offset", "7", "--count", "1000", "--dtype", "fp32", "--form", "half-width"),
        "embedding": ("embedding", "--convention", "interleaved", "--dim", "8", "--offset", "0", "--count", "100",
                      "--dtype", "fp32"),
        "buckets": ("bias", "--t5-bidirectional", "true", "--query-length", "9", "--key-length", "9", "--bias-form",
                    "index", "--dtype", "int32"),
        "kerple": ("bias", "--kerple-kernel", "log", "--kerple-a", "1,2", "--kerple-p", "0.5,0.25", "--query-length",
                   "9", "--key-length", "9", "--bias-form", "dense", "--dtype", "bf16" if kind == "safetensors" else "fp16",
                   "--causal", "--prefix-length", "3", "--fill", "-inf", "--fully-masked-row", "fill"),
        "mask": ("bias", "--nope", "--query-length", "4", "--key-length", "4", "--bias-form", "dense", "--dtype", "fp32",
                 "--query-documents", "0,0,1,1", "--key-documents", "0,0,1,1", "--fill", "lowest", "--fully-masked-row",
                 "zeros"),
        "timestep": ("embedding", "--timestep-dim", "9", "--positions", "0.5,17", "--dtype", "fp64"),
        "grid": ("embedding", "--grid-convention", "diffusers", "--grid-dim", "16", "--grid-height", "2",
                 "--grid-width", "3", "--grid-frames", "2", "--dtype", "fp16"),
        "learned": ("embedding", "--learned-table", tmp_path / "rows.npy", "--learned-offset", "2", "--offset", "0",
                    "--count", "3", "--add-to", tmp_path / "x.npy"),
        "fourier": ("embedding", "--fourier-frequencies", tmp_path / "rows.npy", "--fourier-points",
                    tmp_path / "points.npy", "--dtype", "fp32"),
        "scores": ("scores", "--wpr-wavelet", "ricker", "--wpr-scales", "4", "--wpr-channels", "shift-fastest",
                   "--wpr-distance", "query-minus-key", "--q", tmp_path / "heads.npy", "--k", tmp_path / "heads.npy",
                   "--content", "true", "--layout", "bshd", "--dtype", "fp16", "--causal", "--fill", "-inf",
                   "--fully-masked-row", "fill"),
        "added scores": ("scores", "--shaw-table", tmp_path / "rows.npy", "--shaw-order", "key-minus-query", "--shaw-clip",
                         "true", "--shaw-key-term", "--q", tmp_path / "heads.npy", "--k", tmp_path / "heads.npy",
                         "--content", "false", "--layout", "bhsd", "--scale", "0.5", "--head-start", "3",
                         "--add-to", tmp_path / "probabilities.npy"),
        "values": ("values", "--shaw-table", tmp_path / "rows.npy", "--shaw-order", "query-minus-key", "--shaw-clip",
                   "true", "--probabilities", tmp_path / "probabilities.npy", "--layout", "bshd", "--dtype", "fp32"),
        "bias": ("bias", "--num-heads", "4", "--slopes", "power-of-two", "--alibi-form", "causal", "--query-length", "9",
                 "--key-length", "9", "--bias-form", "dense", "--dtype", "fp16"),
    }
    for name, command in commands.items():
        for place, flags in (("here", ()), ("there", ("--server", address))):
            (tmp_path / place).mkdir(exist_ok=True)
            posenc(*command, *flags, "-o", f"{place}/{name}.{kind}")
    here, there = ({path.name: path.read_bytes() for path in (tmp_path / place).iterdir()} for place in ("here", "there"))
    assert here == there and len(here) >= len(commands)


def test_an_embedding_has_one_method(posenc):
    for flags in ((), ("--dim", "8", "--timestep-dim", "8")):
        refused = posenc("embedding", *flags, "--dtype", "fp32", "-o", "x.npy", exit_code=2)
        assert "method" in refused.stderr


def test_files_are_what_others_read(posenc, tmp_path, client):
    command = ("table", *SETTINGS, "--offset", "0", "--count", "5", "--dtype", "fp32", "--form", "half-width")
    posenc(*command, "-o", "table.npy")
    expected = numpy.frombuffer(client.call("GenerateTable", samples.table(count=5)).cos.data, "<f4").reshape(5, 4)
    assert (numpy.load(tmp_path / "table.cos.npy") == expected).all()
    posenc(*command, "-o", "table.safetensors")
    contents = (tmp_path / "table.safetensors").read_bytes()
    size = int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8:8 + size])
    assert header["cos"]["dtype"] == "F32" and header["cos"]["shape"] == [5, 4]
    begin, end = header["cos"]["data_offsets"]
    assert contents[8 + size + begin:8 + size + end] == expected.tobytes()


def test_json_is_proto3s(posenc, address, configs):
    info = json_format.Parse(posenc("info", "--json", "--server", address).stdout, service_pb2.GetServerInfoResponse())
    assert info.version and info.limits.max_heads > 0
    here = json_format.Parse(posenc("info", "--json").stdout, service_pb2.GetServerInfoResponse())
    assert here.cpu_target == info.cpu_target
    explained = json_format.Parse(posenc("explain", "--json", "--model", configs / MODEL).stdout,
                                  service_pb2.ExplainResponse())
    assert explained.layers[0].info.plan.rotary.rope_parameters.rope_type == "llama3"
    assert len(explained.layers[0].info.plan.frequencies[0].inv_freq) == 64


def test_json_decimals_read_back_to_the_same_bits(posenc, client):
    answer = json.loads(posenc("table", "--json", *SETTINGS, "--offset", "3", "--count", "2", "--dtype", "fp32",
                               "--form", "half-width").stdout)
    expected = client.call("GenerateTable", samples.table(count=2, offset=3))
    assert answer["cos"]["shape"] == [2, 4]
    assert numpy.array(answer["cos"]["data"], "<f4").tobytes() == expected.cos.data


def test_explain_speaks_to_people(posenc, configs):
    said = posenc("explain", configs / MODEL).stdout
    assert said == posenc("explain", "--model", configs / MODEL).stdout
    for word in ("llama3", "half-split", "500000", "layers 0-31"):
        assert word in said


def test_health(posenc, address):
    assert posenc("health", "--server", address).stdout == "SERVING\n"
    assert json.loads(posenc("health", "--server", address, "--json").stdout) == {"status": "SERVING"}
    assert "--server" in posenc("health", exit_code=2).stderr


def test_the_server_may_come_from_the_environment(posenc, address):
    assert posenc("health", POSENC_SERVER=address).stdout == "SERVING\n"


@pytest.fixture
def own_file(tmp_path):
    """A user's file of variables in an empty folder of settings, and the variable that names this folder."""
    file = tmp_path / "settings" / "posenc" / "environment"
    file.parent.mkdir(parents=True)
    return file, {"XDG_CONFIG_HOME": str(tmp_path / "settings")}


def test_a_users_file_sets_variables(posenc, address, own_file, tmp_path):
    file, settings = own_file
    assert "--server" in posenc("health", exit_code=2, **settings).stderr  # there is no file
    file.write_text(f"# the server of these tests\n\n  POSENC_SERVER={address}  \r\nPOSENC_UNKNOWN=a=b\n#POSENC_SERVER=x")
    assert posenc("health", **settings).stdout == "SERVING\n"
    (tmp_path / ".config").symlink_to(tmp_path / "settings")
    for elsewhere in ("", "settings"):  # not a folder's full path, so that the folder is in the home directory
        assert posenc("health", XDG_CONFIG_HOME=elsewhere, HOME=str(tmp_path)).stdout == "SERVING\n"
    posenc("health", XDG_CONFIG_HOME="", HOME="", exit_code=2)


def test_a_flag_overrides_a_variable_and_that_a_users_file(posenc, own_file):
    file, settings = own_file
    file.write_text("POSENC_SERVER=unix:/of-file\nPOSENC_SERVER=unix:/of-a-later-line\n")
    variable = {"POSENC_SERVER": "unix:/of-variable", **settings}
    for flags, given, server in (((), settings, "unix:/of-file"), ((), variable, "unix:/of-variable"),
                                 (("--server", "unix:/of-flag"), variable, "unix:/of-flag")):
        said = posenc("info", *flags, "--timeout", "1", exit_code=3, **given).stderr
        assert said.startswith(f"posenc: no answer from {server} "), said
    posenc("info", **settings | {"POSENC_SERVER": ""})  # in this process: it is set, though to nothing


@pytest.mark.parametrize("text, line", [
    ("POSENC_SERVER", 'line 1: must be POSENC_NAME=VALUE, not POSENC_SERVER'),
    ("# a comment\n\nexport POSENC_SERVER=x:1\n", "line 3: must be "), ("POSENC_SERVER = x:1", "line 1: must be "),
    ("POSENC_TLS=1\nPATH=/bin", "line 2: must be "), ("posenc_server=x:1", "line 1: must be "), ("=\n", "line 1: must be "),
    ("\x1b[2J", "line 1: must be "), ("#" * (64 << 10) + "\n", "has more than 65536 bytes"),
])
def test_a_users_file_that_is_wrong(posenc, own_file, text, line):
    file, settings = own_file
    file.write_text(text)
    for command in ("info", "health", "--version", "serve"):
        said = posenc(command, exit_code=2, **settings)
        assert said.stderr.startswith(f"posenc: {file}: {line}") and "\x1b" not in said.stderr and said.stdout == ""


@pytest.mark.parametrize("make, said", [(os.mkdir, "is a folder; give a file"), (os.mkfifo, "must be a regular file"),
                                        (lambda path: path.symlink_to(path), "cannot open: ")])
def test_a_users_file_that_cannot_be_read(posenc, own_file, make, said):
    file, settings = own_file
    make(file)
    assert posenc("info", exit_code=2, **settings).stderr.startswith(f"posenc: {file}: {said}")


RED, GREEN, YELLOW = ("\x1b[31m{}\x1b[0m".format, "\x1b[32m{}\x1b[0m".format, "\x1b[33m{}\x1b[0m".format)


@pytest.fixture
def on_terminal(command_program, tmp_path):
    """A function that runs the command on a terminal, and returns all that it shows there. Of `variables`, None unsets one."""
    def run(*arguments, exit_code, **options):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("POSENC_", "NO_COLOR"))}
        environment |= {"TERM": "xterm"} | options.pop("variables", {})
        parent, child = pty.openpty()
        process = subprocess.Popen([*command_program, *map(str, arguments)], cwd=tmp_path, stdin=subprocess.DEVNULL,
                                   env={name: value for name, value in environment.items() if value is not None},
                                   **{"stdout": child, "stderr": child, **options})
        os.close(child)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal's end
            while part := os.read(parent, 4096):
                shown += part
        os.close(parent)
        assert process.wait(SECONDS) == exit_code, shown
        return shown.decode().replace("\r\n", "\n")

    return run


def test_verdicts_and_errors_have_colours_on_a_terminal(on_terminal, configs, tmp_path):
    llama, phi = configs / MODEL, configs / "phi-2.json"
    (tmp_path / "bloom.json").write_text(json.dumps({"model_type": "bloom", "n_head": 32, "n_layer": 32, "hidden_size": 4096}))
    (tmp_path / "bloom.gguf").write_bytes(gguf_file.model("bloom"))
    assert on_terminal("compare", llama, llama, exit_code=0).startswith(GREEN("same") + ": a and b give the same")
    assert on_terminal("compare", llama, phi, exit_code=1).startswith(RED("different") + ": ")
    assert on_terminal("compare", "bloom.json", "bloom.gguf", exit_code=5).startswith(YELLOW("same in causal attention") + ": ")
    numpy.save(tmp_path / "bias.npy", numpy.random.default_rng(8).standard_normal((9, 9)))
    assert on_terminal("diagnose-bias", "bias.npy", exit_code=4).startswith(YELLOW("UNKNOWN") + ": ")
    numpy.save(tmp_path / "q.npy", numpy.random.default_rng(8).standard_normal((1, 9, 2, 8)).astype("<f4"))
    rotation = ("diagnose", *SETTINGS, "--before", "q.npy", "--after", "q.npy", "--layout", "bshd", "--offset", 0)
    assert on_terminal(*rotation, exit_code=1).startswith(RED("DIFFERS") + ": ")
    assert on_terminal(*rotation[:-1], 5, "--json", exit_code=1).startswith("{\n")
    numpy.save(tmp_path / "table.npy", numpy.random.default_rng(8).standard_normal((9, 4)).astype("<f4"))
    assert on_terminal("diagnose-table", "table.npy", "--learned-table", "table.npy", "--resize-target", "3,3",
                       exit_code=0).startswith(GREEN("FOUND") + ": ")
    assert on_terminal("rop", exit_code=2).startswith(RED("posenc:") + " unknown command rop; ")
    assert on_terminal("explain", "absent.json", exit_code=3).startswith(RED("posenc:") + " absent.json: ")


@pytest.mark.parametrize("variables, coloured", [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "0"}, False),
                                                 ({"TERM": "dumb"}, False), ({"TERM": None}, False)])
def test_who_wants_no_colours_gets_none(on_terminal, configs, variables, coloured):
    shown = on_terminal("compare", configs / MODEL, configs / "phi-2.json", exit_code=1, variables=variables)
    assert shown.startswith(RED("different") if coloured else "different: ") and (coloured or "\x1b" not in shown)
    assert ("\x1b" in on_terminal("rop", exit_code=2, variables=variables)) == coloured


def test_what_goes_to_a_file_or_a_pipe_has_no_colours(posenc, on_terminal, configs, tmp_path):
    sides = ("compare", configs / MODEL, configs / "phi-2.json")
    assert "\x1b" not in posenc(*sides, exit_code=1, TERM="xterm").stdout
    assert "\x1b" not in posenc("rop", exit_code=2, TERM="xterm").stderr
    for stream in ("stdout", "stderr"):
        with open(tmp_path / stream, "wb") as file:
            shown = on_terminal(*sides, exit_code=1, **{stream: file})
        assert shown == "" if stream == "stdout" else shown.startswith(RED("different"))
        assert b"\x1b" not in (tmp_path / stream).read_bytes()


@pytest.mark.parametrize("arguments, said", [
    (("explain", *SETTINGS, "--such-flag"), "--such-flag"),
    (("rope", "--such-flag"), "--such-flag"),
    (("rope", "--offset", "zero", "--such-flag"), "--such-flag"),
    (("rope", "--offset", "0"), "--q"),
    (("dance",), "dance"),
    (("table", *SETTINGS, "--offset", "0", "--count", "1", "--dtype", "fp33", "--form", "half-width"), "fp33"),
    (("table", *SETTINGS, "--offset", "zero", "--count", "1"), "zero"),
    (("table", *SETTINGS, "--offset", "0", "--count", "1", "--dtype", "fp32"), "--json"),
    (("explain",), "--model"),
    (("bias", "--num-heads", "4", "--nope", "-o", "b.npy"), "those of one method"),
    (("bias", "--swin-window-height", "4", "--model", "m.json", "-o", "b.npy"), "--swin-window-height"),
    (("bias", "--num-heads", "4", "--model", "m.json", "-o", "b.npy"), "--num-heads"),
    (("scores", "--wpr-scales", "4", "-o", "s.npy"), "--q"),
    (("scores", "--q", "q.npy", "-o", "s.npy"), "--shaw-table"),
    (("scores", "--wpr-scales", "4", "--shaw-clip", "true", "--q", "q.npy", "-o", "s.npy"), "flags of shaw"),
    (("values", "--probabilities", "p.npy"), "--json"),
])
def test_a_wrong_command_line_is_named_with_the_way_to_help(posenc, arguments, said):
    ended = posenc(*arguments, exit_code=2)
    assert said in ended.stderr and "--help" in ended.stderr and ended.stdout == ""


def test_a_flag_is_not_the_value_of_the_one_before(posenc):
    assert posenc("explain", *SETTINGS, "--server=", "--json").stdout.startswith("{")


def test_all_that_is_missing_is_said_at_once(posenc):
    said = posenc("rope", exit_code=2).stderr
    for what in ("--q FILE", "--model", "--layout bshd|bhsd|thd", "--offset", "--q-out"):
        assert what in said


def test_a_bias_has_usual_defaults_and_says_how_cells_are_masked(posenc, tmp_path):
    alibi = ("bias", "--num-heads", "4", "--slopes", "power-of-two", "--alibi-form", "causal", "--query-length", "9",
             "--key-length", "9")
    short = posenc(*alibi, "--causal", "-o", "short.npy")
    assert short.stderr == "posenc: assumed --bias-form dense, --dtype fp32, --fill -inf, --fully-masked-row zeros\n"
    told = posenc(*alibi, "--causal", "--json")
    assumed = {"bias_form": "dense", "dtype": "fp32", "fill": "-inf", "fully_masked_row": "zeros"}
    assert told.stderr == "" and json.loads(told.stdout)["assumed"] == assumed
    assert json.loads(posenc(*alibi, "--causal", "--json", "-o", "told.npy").stdout)["assumed"] == assumed
    assert "assumed" not in json.loads(posenc(*alibi, "--bias-form", "dense", "--dtype", "fp32", "--json").stdout)
    long = posenc(*alibi, "--causal", "--bias-form", "dense", "--dtype", "fp32", "--fill", "-inf", "--fully-masked-row",
                  "zeros", "-o", "long.npy")
    assert long.stderr == ""
    assert (tmp_path / "short.npy").read_bytes() == (tmp_path / "long.npy").read_bytes()
    posenc("bias", "--t5-bidirectional", "true", "--query-length", "9", "--key-length", "9", "--bias-form", "index", "-o",
           "buckets.npy")
    assert numpy.load(tmp_path / "buckets.npy").dtype == "<i4"


@pytest.mark.parametrize("q, k, flags, layout", [
    ((1, 5, 32, 128), None, (), "bshd (the model has 32 heads)"),
    ((1, 32, 5, 128), None, (), "bhsd (the model has 32 heads)"),
    ((1, 8, 32, 128), (1, 8, 8, 128), (), "bshd (the shapes fit no other)"),
    ((1, 32, 32, 128), (1, 8, 32, 128), (), "bhsd (the shapes fit no other)"),
    ((1, 4, 2, 128), None, ("--positions", "7,8"), "bhsd (the shapes fit no other)"),
    ((5, 32, 128), None, (), "thd (q has three axes)"),
])
def test_the_layout_is_that_of_the_shapes(posenc, tmp_path, configs, q, k, flags, layout):
    chance = numpy.random.default_rng(7)
    rope = ["rope", "--model", configs / MODEL, *(flags or ("--offset", "3"))]
    for name, shape in (("q", q), ("k", k)):
        if shape:
            numpy.save(tmp_path / f"{name}.npy", chance.standard_normal(shape).astype("<f4"))
            rope += [f"--{name}", f"{name}.npy"]
    outputs = [["--q-out", f"{n}.q.npy", *(("--k-out", f"{n}.k.npy") if k else ())] for n in range(2)]
    assert posenc(*rope, *outputs[0]).stderr == f"posenc: assumed --layout {layout}\n"
    assert posenc(*rope, *outputs[1], "--layout", layout.split()[0]).stderr == ""
    assert (tmp_path / "0.q.npy").read_bytes() == (tmp_path / "1.q.npy").read_bytes()
    assert json.loads(posenc(*rope, "--json").stdout)["assumed"] == {"layout": layout.split()[0]}


@pytest.mark.parametrize("q, k, kv, layout", [
    ((1, 5, 32, 128), None, {}, "bshd"),
    ((1, 32, 5, 128), None, {}, "bhsd"),
    ((1, 32, 8, 128), (1, 32, 8, 128), {"attention__head_count_kv": 32}, "bhsd"),
    ((1, 32, 8, 128), (1, 32, 8, 128), {"attention__head_count_kv": 8}, None),
    ((1, 32, 32, 128), None, {}, None),
    ((1, 32, 5, 128), None, {"attention__head_count": [32] * 32}, "bhsd"),
    ((1, 32, 5, 128), None, {"attention__head_count": [32] * 31 + [16]}, None),
])
def test_the_layout_is_that_of_a_ggufs_heads(posenc, tmp_path, q, k, kv, layout):
    (tmp_path / "m.gguf").write_bytes(gguf_file.model("llama", **kv))
    rope = ["rope", "--model", "m.gguf", "--offset", "3"]
    for name, shape in (("q", q), ("k", k)):
        if shape:
            numpy.save(tmp_path / f"{name}.npy", numpy.ones(shape, "<f4"))
            rope += [f"--{name}", f"{name}.npy", f"--{name}-out", f"{name}.out.npy"]
    said = posenc(*rope, exit_code=0 if layout else 2).stderr
    assert said.startswith(f"posenc: assumed --layout {layout} (the model has 32 heads)\n" if layout else
                           "posenc: missing: --layout bshd|bhsd|thd\n")


def test_a_layout_that_the_shapes_leave_open_is_missing(posenc, tmp_path, configs):
    numpy.save(tmp_path / "q.npy", numpy.ones((1, 32, 32, 128), "<f4"))
    said = posenc("rope", "--model", configs / MODEL, "--offset", "0", "--q", "q.npy", "--q-out", "o.npy", exit_code=2).stderr
    assert said.startswith("posenc: missing: --layout bshd|bhsd|thd\n")


def test_scores_and_values_have_their_inputs_type_and_layout(posenc, tmp_path):
    chance = numpy.random.default_rng(8)
    for name, shape in (("q", (1, 2, 5, 4)), ("k", (1, 2, 3, 4)), ("shaw", (5, 4)), ("p", (1, 2, 5, 3))):
        numpy.save(tmp_path / f"{name}.npy", chance.standard_normal(shape).astype("<f2"))
    shaw = ("--shaw-table", "shaw.npy", "--shaw-order", "key-minus-query", "--shaw-clip", "true", "--query-offset", "0")
    said = posenc("scores", *shaw, "--shaw-key-term", "--q", "q.npy", "--k", "k.npy", "--content", "true", "-o", "s.npy").stderr
    assert said == "posenc: assumed --dtype fp16 (the input's), --layout bhsd (the shapes fit no other)\n"
    assert numpy.load(tmp_path / "s.npy").dtype == "<f2"
    scores = json.loads(posenc("scores", *shaw, "--shaw-key-term", "--q", "q.npy", "--k", "k.npy", "--content", "true",
                               "--json").stdout)
    assert scores["assumed"] == {"dtype": "fp16", "layout": "bhsd"}
    assert scores["scale"] == 0.5 and scores["scores"]["shape"] == [1, 2, 5, 3]
    values = ("values", *shaw, "--probabilities", "p.npy", "-o", "v.npy")
    assert posenc(*values, "--add-to", "q.npy").stderr == "posenc: assumed --layout bhsd (the shapes fit no other)\n"
    assert posenc(*values, exit_code=2).stderr.startswith("posenc: missing: --layout bshd|bhsd\n")


def test_a_table_has_the_models_type_and_one_value_per_pair(posenc, tmp_path, configs):
    table = ("table", "--model", configs / MODEL, "--offset", "0", "--count", "3")
    said = posenc(*table, "-o", "t.safetensors")
    assert said.stderr == "posenc: assumed --dtype bf16 (the model's), --form half-width\n"
    assert "cos BF16 [3, 64]" in said.stdout
    assert json.loads(posenc(*table, "--json").stdout)["assumed"] == {"dtype": "bf16", "form": "half-width"}
    assert posenc(*table, "-o", "t.npy").stderr == "posenc: assumed --dtype fp32, --form half-width\n"
    assert posenc("embedding", "--convention", "interleaved", "--dim", "8", "--offset", "0", "--count", "2", "-o",
                  "e.npy").stderr == "posenc: assumed --dtype fp32\n"


@pytest.mark.parametrize("method, buckets", [(("--t5-bidirectional", "true", "--query-length", "9", "--key-length", "9"), 32),
                                             (("--swin-window-height", "2", "--swin-window-width", "3"), 15)])
def test_a_table_of_buckets_is_turned_by_its_shape(posenc, tmp_path, method, buckets):
    table = numpy.random.default_rng(9).standard_normal((buckets, 4)).astype("<f4")
    outputs = []
    for layout, values in (("buckets-by-heads", table), ("heads-by-buckets", numpy.ascontiguousarray(table.T))):
        numpy.save(tmp_path / "table.npy", values)
        said = posenc("bias", *method, "--table", "table.npy", "-o", "b.npy").stderr
        assert f"--table-layout {layout} (the table's shape)" in said
        assert json.loads(posenc("bias", *method, "--table", "table.npy", "--json").stdout)["assumed"]["table_layout"] == layout
        outputs.append((tmp_path / "b.npy").read_bytes())
    assert outputs[0] == outputs[1]
    numpy.save(tmp_path / "table.npy", numpy.ones((buckets, buckets), "<f4"))
    said = posenc("bias", *method, "--table", "table.npy", "-o", "b.npy", exit_code=3).stderr
    assert "posenc: --table-layout: must be one of buckets-by-heads, heads-by-buckets" in said


@pytest.mark.parametrize("command, lacking", [
    (("diagnose",), ("--before FILE and --after FILE",)),
    (("diagnose", "--before", "q.npy", "--k-before", "k.npy", "--expect-table", "t.safetensors"),
     ("--after FILE", "--k-after FILE", "--expect-pairing")),
    (("plot", "decay"), ("--model PATH", "-o FILE.png")),
    (("plot", "bias"), ("--model PATH", "-o FILE.png")),
    (("plot", "wavelets"), ("--wavelet ricker|", "-o FILE.png")),
    (("plot",), ("decay or table",)),
    (("load",), ("--server ADDRESS", "--rate")),
    (("load", "merge"), ("FILE",)),
    (("scores",), ("--q FILE", "a method", "--layout", "--content", "-o FILE")),
    (("values",), ("--probabilities FILE", "--shaw-table", "--layout", "-o FILE")),
    (("health",), ("--server ADDRESS",)),
])
def test_every_command_says_all_that_is_missing(posenc, command, lacking):
    said = posenc(*command, exit_code=2).stderr
    assert said.startswith("posenc: missing:")
    for what in lacking:
        assert what in said


def test_a_flag_without_its_value(posenc):
    assert posenc("rope", "--q-out", exit_code=2).stderr.startswith("posenc: --q-out needs a value: FILE\n")


@pytest.mark.parametrize("arguments, lacking", [
    (("load", "--rate", "--arrivals", "poisson"), "--rate needs a value: RATE\n  Open loop: calls per second"),
    (("load", "--rate", "100", "--arrivals", "--duration", "1s"), "--arrivals needs a value: KIND\n"),
    (("load", "--arrivals", "--rate=100"), "--arrivals needs a value: KIND\n"),
    (("load", "--slo", "-o", "run.json"), "--slo needs a value: OBJECTIVE\n"),
    (("load", "merge", "a.json", "-o", "--html", "r.html"), "-o needs a value: FILE.json\n"),
    (("rope", "--precision", "--json"), "--precision needs a value: exact|f32"),
    (("--timeout", "--json", "info"), "--timeout needs a value: SECONDS\n"),
    (("plot", "decay", "--model", "--json"), "--model needs a value: PATH\n"),
    (("diagnose", "--before", "--after", "a.npy"), "--before needs a value: FILE\n"),
])
def test_a_flag_is_never_the_value_of_another(posenc, arguments, lacking):
    said = posenc(*arguments, exit_code=2).stderr
    assert said.startswith(f"posenc: {lacking}") and "unknown" not in said


def test_values_that_look_like_flags_are_values(posenc, tmp_path):
    table = ("table", *SETTINGS, "--segments", "2:-1", "--form", "half-width", "--dtype", "fp32", "-o", "t.npy")
    assert "t.sin.npy" in posenc(*table).stdout
    bias = ("bias", "--nope", "--query-length", "2", "--key-length", "2", "--bias-form", "dense", "--dtype", "fp32",
            "--causal", "--fill", "-inf", "--fully-masked-row", "zeros", "-o", "b.npy")
    posenc(*bias)
    assert numpy.load(tmp_path / "b.npy").ravel().tolist() == [0, -numpy.inf, 0, 0]


@pytest.mark.parametrize("positions", (("--segments", "4:9007199254740993"), ("--positions", "0.5,-9007199254740993"),
                                       ("--segments", "2x2:0x9007199254740993")))
def test_a_position_is_never_rounded(posenc, positions):
    said = posenc("table", *SETTINGS, *positions, "--json", exit_code=2).stderr
    assert "9007199254740993\" is beyond 2^53 in magnitude" in said
    assert "is beyond" not in posenc("table", *SETTINGS, "--segments", "1:9007199254740992:0", "--json").stderr


@pytest.mark.parametrize("arguments, said", [
    (("rop",), "unknown command rop; did you mean rope?"),
    (("plot", "decy"), "unknown command decy; did you mean decay?"),
    (("rope", "--lay", "bshd"), "unknown flag --lay; did you mean --layout?"),
    (("rope", "--postions=3"), "unknown flag --postions; did you mean --positions?"),
    (("rope", "--layout", "bsdh"), "did you mean bshd?"),
    (("load", "--arrivals", "poison"), "--arrivals: is poison; must be one of constant, poisson; did you mean poisson?"),
    (("rope", "--xyzxyz"), "unknown flag --xyzxyz\n"),
    (("bias", "--form", "causal"), "unknown flag --form; did you mean --alibi-form?"),
])
def test_the_nearest_word_is_suggested(posenc, arguments, said):
    assert said in posenc(*arguments, exit_code=2).stderr


DYNAMIC = ("--rope-type", "dynamic", "--rotary-dim", "8", "--input-pairing", "half-split", "--factor", "2",
           "--max-position-embeddings", "2048")


def test_errors_of_the_service_speak_of_flags(posenc, tmp_path):
    numpy.save(tmp_path / "q.npy", numpy.zeros((1, 4, 2, 8), "<f4"))
    rope = ("rope", "--layout", "bshd", "--q", "q.npy", "--q-out", "out.npy")
    said = posenc(*rope, *DYNAMIC, "--offset", "0", exit_code=3).stderr
    assert "--scaling-length: must be given" in said and "per-sequence" in said and "--seq-len" in said
    assert "SCALING" not in said
    posenc(*rope, *DYNAMIC, "--offset", "0", "--scaling-length", "per-sequence")
    said = posenc("table", *DYNAMIC, "--offset", "0", "--count", "4", "--dtype", "fp32", "--form", "half-width", "--json",
                  exit_code=3).stderr
    assert said.startswith("posenc: --seq-len: must be given")
    said = posenc(*rope, *SETTINGS, "--offset", "9007199254740993", exit_code=3).stderr
    assert said.startswith("posenc: --offset: is 9007199254740993; must be from -2^53 to 2^53 - 4")
    said = posenc("explain", "--rope-type", "yarnn", *SETTINGS[2:], exit_code=3).stderr
    assert said.startswith("posenc: --rope-type: is yarnn") and "did you mean yarn?" in said


@pytest.mark.parametrize("source", ("here", "server"))
def test_the_json_parsers_message_is_not_escaped(posenc, tmp_path, address, source):
    (tmp_path / "config.json").write_text('{"a": 1,}')
    flags = ("--server", address) if source == "server" else ()
    said = posenc("explain", "--model", "config.json", *flags, exit_code=3).stderr
    assert "unexpected '}'; expected string literal" in said and "\\" not in said


def test_tensors_come_from_and_go_to_streams(posenc, command_program, tmp_path, configs):
    numpy.save(tmp_path / "q.npy", numpy.random.default_rng(3).standard_normal((1, 4, 32, 128)).astype("<f4"))
    rope = (*command_program, "rope", "--model", str(configs / MODEL), "--layout", "bshd", "--offset", "0")

    def run(line, stdin=b""):
        return subprocess.run(["bash", "-c", line], input=stdin, cwd=tmp_path, capture_output=True, timeout=SECONDS,
                              check=True)

    posenc(*rope[1:], "--q", "q.npy", "--q-out", "file.npy")
    expected = (tmp_path / "file.npy").read_bytes()
    piped = run(shlex.join([*rope, "--q", "-", "--q-out", "-"]), (tmp_path / "q.npy").read_bytes())
    assert piped.stdout == expected and b"FP32 [1, 4, 32, 128]" in piped.stderr
    run(shlex.join(rope) + " --q <(cat q.npy) --q-out >(cat >piped.npy); wait $!; sleep 0.1")
    assert (tmp_path / "piped.npy").read_bytes() == expected
    table = (*command_program, "table", "--model", "-", "--offset", "0", "--count", "4", "--dtype", "bf16", "--form",
             "half-width", "-o", "-")
    header = run(shlex.join(table), (configs / MODEL).read_bytes()).stdout
    assert b'"cos":{"dtype":"BF16"' in header
    twice = posenc(*rope[1:], "--q", "-", "--k", "-", "--q-out", "a.npy", "--k-out", "b.npy", exit_code=3).stderr
    assert "standard input: is empty" in twice


def test_an_input_is_replaced_only_in_place(posenc, tmp_path):
    numpy.save(tmp_path / "q.npy", numpy.ones((1, 2, 1, 8), "<f4"))
    rope = ("rope", *SETTINGS, "--layout", "bshd", "--offset", "1", "--q", "q.npy", "--q-out", "./q.npy")
    before = (tmp_path / "q.npy").read_bytes()
    assert "--in-place" in posenc(*rope, exit_code=2).stderr
    assert (tmp_path / "q.npy").read_bytes() == before
    posenc(*rope, "--in-place")
    assert (tmp_path / "q.npy").read_bytes() != before


def test_a_large_result_needs_a_word(posenc, tmp_path):
    # A petabyte is more than a tenth of any disk.
    wide = ["65536" if word == "8" else word for word in SETTINGS]
    said = posenc("table", *wide, "--offset", "0", "--count", str(2**31 - 1), "--dtype", "fp64", "--form", "half-width",
                  "-o", "t.safetensors", exit_code=2).stderr
    assert "t.safetensors: the result has" in said and "--yes" in said
    assert list(tmp_path.iterdir()) == []
    embedding = ("embedding", "--convention", "interleaved", "--dim", "65536", "--offset", "0", "--count",
                 str(2**31 - 1), "-o", "e.npy")
    said = posenc(*embedding, exit_code=2).stderr
    assert "posenc: the result has" in said and "in memory" in said and "--yes" in said
    assert "max_output_bytes" in posenc(*embedding, "--yes", exit_code=3).stderr
    # 4 terabytes from small inputs.
    numpy.save(tmp_path / "p.npy", numpy.ones((1, 1, 1 << 20, 1), "<f4"))
    numpy.save(tmp_path / "shaw.npy", numpy.ones((1, 1 << 20), "<f4"))
    values = ("values", "--probabilities", "p.npy", "--shaw-table", "shaw.npy", "--shaw-order", "key-minus-query",
              "--shaw-clip", "true", "--layout", "bshd", "--query-offset", "0", "-o", "v.npy")
    assert "posenc: the result has 4.4 TB" in posenc(*values, exit_code=2).stderr
    # No byte is free in /proc.
    vectors = posenc("vectors", *SETTINGS, "-o", "/proc/v.safetensors", exit_code=2).stderr
    assert "posenc: /proc/v.safetensors: the result has" in vectors and "--yes" in vectors


def test_an_output_that_cannot_be_written_is_said_before_the_work(posenc, tmp_path):
    table = ("table", *SETTINGS, "--offset", "0", "--count", "4", "--dtype", "fp32", "--form", "half-width", "-o")
    said = posenc(*table, "absent/t.safetensors", exit_code=3).stderr
    assert said == "posenc: absent/t.safetensors: there is no folder absent\n"


def test_a_stream_is_read_once(posenc, configs):
    said = posenc("compare", "-", "-", stdin=(configs / MODEL).read_text(), exit_code=3).stderr
    assert said == "posenc: standard input: is empty; it can be read only once\n"


@pytest.mark.parametrize("source", ("<(cat t.safetensors)", "- <t.safetensors"))
def test_an_expected_table_comes_from_a_stream(posenc, command_program, tmp_path, source):
    numpy.save(tmp_path / "q.npy", numpy.random.default_rng(4).standard_normal((1, 5, 2, 8)).astype("<f4"))
    posenc("table", *SETTINGS, "--offset", "0", "--count", "5", "--dtype", "fp32", "-o", "t.safetensors")
    posenc("rope", *SETTINGS, "--layout", "bshd", "--offset", "0", "--q", "q.npy", "--q-out", "r.npy")
    line = f"{shlex.join(command_program)} diagnose --layout bshd --before q.npy --after r.npy --expect-pairing half-split --expect-table {source}"
    said = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert said.returncode == 0 and said.stdout.startswith("MATCHES"), said


@pytest.mark.parametrize("arguments, said", [
    (("load", "--tokens", "0"), "--tokens: is 0; must be 1 .. "),
    (("load", "--key-heads", "-1"), "--key-heads: is -1; must be 0 .. "),
    (("load", "--request", "{"), "--request: is not JSON"),
    (("load", "--batch", "x"), "--batch: is x; must be NUMBER\n"),
    (("load", "--offsets", "1,x"), "--offsets: is 1,x; must be NUMBER,...\n"),
    (("explain", "--rope-parameters", '{"rope_theta": 1e400}'), "--rope-parameters: "),
    (("explain", "--rope-type", "yarnn", *SETTINGS[2:]), "--rope-type: is yarnn; must be one of default, linear, "),
])
def test_values_are_named_by_their_flags(posenc, arguments, said):
    more = ("--server", "x", "--rate", "1") if arguments[0] == "load" else ()
    ended = posenc(*arguments, *more, exit_code=(2, 3))
    assert ended.stderr.startswith(f"posenc: {said}") and "\\" not in ended.stderr


def test_a_missing_or_broken_file_is_named(posenc, tmp_path):
    assert "absent.json" in posenc("explain", "--model", "absent.json", exit_code=3).stderr
    (tmp_path / "q.npy").write_bytes(b"\x93NUMPY broken")
    rope = ("rope", *SETTINGS, "--layout", "bshd", "--offset", "0", "--q", "q.npy", "--q-out", "out.npy")
    assert "q.npy" in posenc(*rope, exit_code=3).stderr
    assert not (tmp_path / "out.npy").exists()


def test_errors_are_the_same_by_a_server_and_in_process(posenc, address):
    wrong = ("explain", "--rope-type", "default", "--rotary-dim", "7", "--input-pairing", "interleaved")
    here = posenc(*wrong, exit_code=3).stderr
    assert here == posenc(*wrong, "--server", address, exit_code=3).stderr
    assert here.startswith("posenc: --rotary-dim: is 7; must be even")


@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_a_proxy_is_named_that_the_connection_goes_by(posenc, address, variable):
    proxy = {variable: "http://user:secret@127.0.0.1:1", "no_proxy": ""}
    said = posenc("info", "--server", address, "--timeout", "1", exit_code=3, **proxy).stderr
    assert f"the proxy of ${variable}" in said and "--listen" not in said and "secret" not in said
    posenc("info", "--server", address, **{**proxy, "no_proxy": "example.org,127.0.0.1"})


def test_no_server_there(posenc):
    said = posenc("info", "--server", "127.0.0.1:1", "--timeout", "5", exit_code=3).stderr
    assert "127.0.0.1:1" in said and "posenc-server" in said


@pytest.mark.parametrize("address", ("http://localhost:50051", "localhost"))
def test_an_address_has_host_and_port(posenc, address):
    said = posenc("info", "--server", address, "--timeout", "5", exit_code=3).stderr
    assert f"no answer from {address} " in said and "such as localhost:50051" in said


def test_a_server_that_was_killed(posenc, start_server):
    server = start_server()
    address = f"127.0.0.1:{server.port}"
    posenc("info", "--server", address)
    server.kill()
    said = posenc("info", "--server", address, "--timeout", "5", exit_code=3).stderr
    assert address in said and "posenc-server" in said


def test_a_deadline_is_said(posenc, start_server):
    address = f"127.0.0.1:{start_server().port}"
    said = posenc("table", *SETTINGS[:2], "--rotary-dim", "128", *SETTINGS[4:], "--server", address, "--yes", "--timeout", "0.05",
                  "--offset", "0", "--count", "20000000", "--dtype", "fp64", "--form", "half-width", "-o", "t.safetensors",
                  exit_code=3).stderr
    assert "deadline" in said.lower()


def test_an_unfinished_answer_leaves_no_file(posenc, tmp_path):
    posenc("table", *SETTINGS, "--yes", "--timeout", "0.05", "--offset", "0", "--count", "2000000000", "--dtype", "fp64",
           "--form", "half-width", "-o", "t.safetensors", exit_code=3)
    assert list(tmp_path.iterdir()) == []

"""Tests the posenc command with files, streams and servers that are wrong: it says so, and never loses a result."""

import json
import os
import struct
import subprocess
from concurrent import futures

import grpc
import grpc_peers_pb2 as peers
import numpy
import pytest
from client import SECONDS, SERVICE
from posenc.v1 import service_pb2, tensor_pb2
from server_process import limited
from test_help import COMMANDS, OF_COMMANDS

FP32, FP64 = tensor_pb2.DATA_TYPE_FP32, tensor_pb2.DATA_TYPE_FP64
MODEL = "llama-3.1-8b.json"
WIDTH = 64
ROWS = 4
SETTINGS = ("--rope-type", "default", "--rotary-dim", 2 * WIDTH, "--input-pairing", "half-split")
TABLE = ("table", *SETTINGS, "--offset", 0, "--count", ROWS, "--dtype", "fp32")
BIAS = ("bias", "--nope", "--query-length", ROWS, "--key-length", WIDTH, "--dtype", "fp32")
ROPE = ("rope", *SETTINGS, "--offset", 0, "--layout", "bshd", "--q", "q.npy")


class FakeServer:
    """A server whose answers a test sets: of each method a list of messages, or an error's text."""

    def __init__(self):
        self.answers = {}
        handlers = {}
        for method in SERVICE.methods:
            make = (grpc.unary_stream_rpc_method_handler if method.server_streaming
                    else grpc.unary_unary_rpc_method_handler)
            handlers[method.name] = make(self._behavior(method))
        health = {"Check": grpc.unary_unary_rpc_method_handler(lambda request, context: self.answers["Check"])}
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),
                                               grpc.method_handlers_generic_handler("grpc.health.v1.Health", health)))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def _behavior(self, method):
        def answers(context):
            given = self.answers[method.name]
            if isinstance(given, str):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, given)
            return [message.SerializeToString() for message in given]

        if method.server_streaming:
            return lambda request, context: iter(answers(context))
        return lambda request, context: answers(context)[0]

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *unused):
        self._server.stop(None)


@pytest.fixture
def fake():
    with FakeServer() as server:
        yield server


def tensor(shape, dtype=FP32, size=None):
    """Returns a tensor of zeros; `size`: its bytes, by default those that type and shape need."""
    needed = int(numpy.prod(shape)) * (8 if dtype == FP64 else 4)
    return tensor_pb2.Tensor(dtype=dtype, shape=shape, data=bytes(needed if size is None else size))


def in_region(shape):
    """Returns a tensor whose elements are said to be in shared memory."""
    needed = 4 * int(numpy.prod(shape))
    return tensor_pb2.Tensor(dtype=FP32, shape=shape,
                             region=tensor_pb2.Region(token=bytes(16), offset=0, byte_size=needed))


def tiles(kind, row_begins, tensors):
    """Returns tiles of a table, in which cos and sin are alike, or of a bias."""
    if kind == "table":
        return [service_pb2.StreamTableResponse(row_begin=begin, cos=each, sin=each)
                for begin, each in zip(row_begins, tensors)]
    return [service_pb2.StreamBiasResponse(row_begin=begin, bias=each) for begin, each in zip(row_begins, tensors)]


HALF = tensor((ROWS // 2, WIDTH))
WRONG_TILES = {
    "none": ((), ()),
    "one missing": ((0,), (HALF,)),
    "no tensor": ((0, 2), (HALF, None)),
    "no shape": ((0, 2), (HALF, tensor((), size=0))),
    "no data": ((0, 2), (HALF, tensor((2, WIDTH), size=0))),
    "too much data": ((0, 2), (HALF, tensor((2, WIDTH), size=4 * WIDTH * ROWS))),
    "a negative size": ((0, 0), (tensor((-2, WIDTH), size=0), tensor((ROWS, WIDTH)))),
    "a first tile of one axis": ((0,), (tensor((WIDTH,)),)),
    "another rank": ((0, 2), (HALF, tensor((1, 2, WIDTH)))),
    "another width": ((0, 2), (HALF, tensor((2, WIDTH // 2)))),
    "another type": ((0, 2), (HALF, tensor((2, WIDTH), FP64))),
    "the wrong type": ((0, 2), (tensor((2, WIDTH), FP64), tensor((2, WIDTH), FP64))),
    "a hole": ((0, 3), (HALF, tensor((1, WIDTH)))),
    "too many rows": ((0, 2), (HALF, tensor((3, WIDTH)))),
    "one twice": ((0, 0, 2), (HALF, HALF, HALF)),
    "no rows": ((0, 0, 2), (tensor((0, WIDTH)), HALF, HALF)),
    "in a region that was not asked for": ((0, 2), (HALF, in_region((2, WIDTH)))),
}


@pytest.mark.parametrize("kind, command, method", [("table", TABLE, "StreamTable"), ("bias", BIAS, "StreamBias")])
def test_tiles_that_do_not_make_the_tensor_are_an_error(posenc, fake, tmp_path, kind, command, method):
    run = lambda exit_code: posenc("--server", fake.address, *command, "-o", "out.safetensors", exit_code=exit_code)
    fake.answers[method] = tiles(kind, (0, 2), (HALF, HALF))
    run(0)
    size = (tmp_path / "out.safetensors").stat().st_size
    assert size > 4 * ROWS * WIDTH * (2 if kind == "table" else 1)
    (tmp_path / "out.safetensors").unlink()
    for name, wrong in WRONG_TILES.items():
        fake.answers[method] = tiles(kind, *wrong)
        assert run(3).stderr.startswith("posenc: "), name
        assert not (tmp_path / "out.safetensors").exists(), name


def test_cos_and_sin_must_be_alike(posenc, fake):
    fake.answers["StreamTable"] = [service_pb2.StreamTableResponse(cos=tensor((ROWS, WIDTH)), sin=tensor((ROWS, 2)))]
    assert "FP32 [4, 2]" in posenc("--server", fake.address, *TABLE, "-o", "out.npy", exit_code=3).stderr


@pytest.mark.parametrize("answer", [
    None, tensor((1, 2, 1, WIDTH)), tensor((1, 2, 1, 2 * WIDTH), FP64), tensor((1, 2, 1, 2 * WIDTH), size=100),
    tensor((1, 2, 1, 2 * WIDTH), 0), tensor((-1, 2), size=8), in_region((1, 2, 1, 2 * WIDTH))
], ids=("absent", "shape", "type", "bytes", "no type", "negative", "region"))
def test_a_rotated_tensor_is_like_the_operand(posenc, fake, tmp_path, answer):
    numpy.save(tmp_path / "q.npy", numpy.ones((1, 2, 1, 2 * WIDTH), "<f4"))
    info = service_pb2.ApplyRotaryResponse().info
    info.device = "fake"
    fake.answers["ApplyRotary"] = [service_pb2.ApplyRotaryResponse(q=tensor((1, 2, 1, 2 * WIDTH)), info=info)]
    posenc("--server", fake.address, *ROPE, "--q-out", "right.npy")
    fake.answers["ApplyRotary"] = [service_pb2.ApplyRotaryResponse(q=answer, info=info)]
    posenc("--server", fake.address, *ROPE, "--q-out", "wrong.npy", exit_code=3)
    assert not (tmp_path / "wrong.npy").exists()


def test_an_empty_answer_is_an_error(posenc, fake, configs):
    model = configs / MODEL
    for method, command in (("GetServerInfo", ("info",)), ("Explain", ("explain", model)),
                            ("Compare", ("compare", model, model)), ("GenerateTable", (*TABLE, "--json"))):
        fake.answers[method] = [service_pb2.ExplainResponse()]
        assert "empty" in posenc("--server", fake.address, *command, exit_code=3).stderr


def test_what_a_newer_server_explains_is_shown(posenc, fake, configs):
    layer = service_pb2.LayerExplanation()
    layer.info.plan.bias.ParseFromString(b"\xba\x3e\x00")  # field 999: a method that this build does not know
    layer.info.plan.frequencies.add(inv_freq=[1, 1], axis=[0])
    layer.info.plan.frequencies.add(inv_freq=[1, 1])
    fake.answers["Explain"] = [service_pb2.ExplainResponse(layers=[layer])]
    assert "unknown to this version" in posenc("--server", fake.address, "explain", configs / MODEL).stdout


@pytest.mark.parametrize("values", [tensor((1, 500000)), tensor((5,), FP64), tensor((0, 500000), FP64)])
def test_measured_values_of_another_form_are_an_error(posenc, fake, tmp_path, values):
    numpy.save(tmp_path / "bias.npy", numpy.zeros((1, 1, ROWS, ROWS), "<f4"))
    fake.answers["DiagnoseBias"] = [service_pb2.DiagnoseBiasResponse(sentence="a sentence", values=values)]
    said = posenc("--server", fake.address, "diagnose-bias", "bias.npy", exit_code=3).stderr
    assert "values are not FP64" in said


def test_control_characters_do_not_reach_the_terminal(posenc, fake, configs):
    evil = "bad \x1b]0;pwn\x07 \x1b[2J\x9b2J end\nposenc: all fine"
    fake.answers["Explain"] = evil
    said = posenc("--server", fake.address, "explain", configs / MODEL, exit_code=3).stderr
    assert "\x1b" not in said and "\x07" not in said and "\x9b" not in said and "bad" in said
    assert not any(line.startswith("posenc: all fine") for line in said.splitlines())
    fake.answers["GetServerInfo"] = [service_pb2.GetServerInfoResponse(version=evil)]
    said = posenc("--server", fake.address, "info").stdout
    assert "bad ?]0;pwn? ?[2J?2J end" in said
    said = posenc("table", "--model", "\x1b[2J.json", "--offset", 0, "--count", 1, "-o", "t.npy", exit_code=3).stderr
    assert "\x1b" not in said and "[2J.json" in said


# A file whose size no machine's memory has, without blocks on the disk.
def write_sparse(path, shape, size):
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
        file.truncate(file.tell() + size)


def test_a_tensor_above_the_free_memory_is_not_read(posenc, tmp_path):
    write_sparse(tmp_path / "q.npy", (1, 1 << 20, 1024, 1024), 4 << 40)
    assert "memory" in posenc(*ROPE, "--q-out", "out.npy", exit_code=3).stderr


def test_a_stream_is_read_up_to_the_limit(posenc):
    said = posenc("--server", "unix:nobody", "load", "--rate", 1, "--mix", "-", exit_code=3, stdin=" " * (65 << 20))
    assert f"has more than {64 << 20} bytes" in said.stderr


@pytest.mark.skipif("asan" in os.environ.get("POSENC_BUILD_DIR", ""), reason="the sanitizer reserves terabytes")
def test_lack_of_memory_is_an_error(command_program, tmp_path):
    write_sparse(tmp_path / "large.npy", (1 << 10, 1 << 18), 1 << 30)
    for command in (ROPE, ("diagnose", "--before", "-", "--after", "large.npy"),
                    ("diagnose", "--table-cos", "large.npy", "--table-sin", "large.npy")):
        command = ["-" if word == "q.npy" else str(word) for word in command]
        with open("/dev/zero", "rb") as endless:
            ended = subprocess.run([*limited(command_program, 512), *command, "--json"], cwd=tmp_path, stdin=endless,
                                   capture_output=True, timeout=SECONDS, text=True)
        assert ended.returncode == 3 and "memory" in ended.stderr, ended


def test_a_result_needs_a_temporary_folder_only_for_a_stream(posenc):
    said = posenc(*TABLE, "-o", "-", exit_code=3, TMPDIR="/nonexistent").stderr
    assert "TMPDIR" in said
    posenc(*TABLE, "-o", "t.npy", TMPDIR="/nonexistent")


def test_a_report_that_is_not_written_is_an_error(command_program, configs):
    model = str(configs / MODEL)
    for command in (("info",), ("explain", model), ("compare", model, model), ("help",), ("--help",), ("--version",),
                    ("version",)):
        with open("/dev/full", "w", encoding="utf-8") as full:
            ended = subprocess.run([*command_program, *command], stdout=full, stderr=subprocess.PIPE, text=True,
                                   timeout=SECONDS)
        assert ended.returncode == 3, command
        assert ended.stderr.startswith("posenc: standard output: cannot write"), command


def test_a_tensor_does_not_go_to_a_closed_standard_output(command_program, tmp_path):
    numpy.save(tmp_path / "q.npy", numpy.ones((1, 2, 1, 2 * WIDTH), "<f4"))
    command = [*command_program, *map(str, ROPE), "--q-out"]
    for closed, out in ((">&-", "-"), (">&- 2>&-", "-"), ("<&- >&- 2>&-", "-")):
        line = 'exec "$@" ' + closed
        ended = subprocess.run(["bash", "-c", line, "bash", *command, out], cwd=tmp_path, timeout=SECONDS)
        assert ended.returncode == 3, closed
    # No message goes into the file that takes a closed stream's place.
    ended = subprocess.run(["bash", "-c", 'exec "$@" 2>&- <&-', "bash", *command, "out.npy"], cwd=tmp_path,
                           timeout=SECONDS, capture_output=True)
    assert ended.returncode == 0
    assert numpy.load(tmp_path / "out.npy").shape == (1, 2, 1, 2 * WIDTH)


def write_safetensors(path, tensors):
    """Writes zeros of these types and shapes."""
    header, end = {}, 0
    for name, shape in tensors.items():
        begin, end = end, end + 4 * int(numpy.prod([int(size) for size in shape], dtype=object))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


@pytest.mark.parametrize("cos, sin", [((1 << 59, 0), (1 << 59, 0)), ((0, 1 << 59), (0, 1 << 59)),
                                      ((1, 1 << 22), (1, 2)), ((1, 2), (1, 1 << 22)), ((4, 2), (1, 2))])
def test_an_odd_expected_table_is_an_error(posenc, tmp_path, cos, sin):
    numpy.save(tmp_path / "q.npy", numpy.ones((1, 2, 1, 2 * WIDTH), "<f4"))
    write_safetensors(tmp_path / "table.safetensors", {"cos": cos, "sin": sin})
    refused = posenc("diagnose", "--before", "q.npy", "--after", "q.npy", "--expect-table", "table.safetensors",
                     "--expect-pairing", "half-split", exit_code=3)
    assert "--given-" in refused.stderr


@pytest.mark.parametrize("command", COMMANDS + OF_COMMANDS)
def test_an_unknown_flag_exits_with_2(posenc, command):
    assert "--nonsense" in posenc(*command.split(), "--nonsense", exit_code=2).stderr


SHAW = ("--shaw-table", "1,2", "--shaw-order", "key-minus-query", "--shaw-clip", "true", "--layout", "bshd")
# Of each command a right call with a file that cannot be read or written, or with a server that is not there.
CANNOT_BE_DONE = {
    "explain": ("absent.json",),
    "compare": ("absent.json", "absent.json"),
    "table": ("--model", "absent.json", "--offset", 0, "--count", 1, "-o", "out.npy"),
    "rope": (*SETTINGS, "--offset", 0, "--layout", "bshd", "--q", "absent.npy", "--q-out", "out.npy"),
    "bias": ("--model", "absent.json", "--query-length", 1, "--key-length", 1, "-o", "out.npy"),
    "scores": (*SHAW, "--q", "absent.npy", "--content", "false", "-o", "out.npy"),
    "values": (*SHAW, "--probabilities", "absent.npy", "-o", "out.npy"),
    "embedding": ("--model", "absent.json", "--offset", 0, "--count", 1, "-o", "out.npy"),
    "positions": ("--model", "absent.json", "--length", 1),
    **{f"plot {kind}": ("--model", "absent.json", "--json") for kind in ("decay", "table", "bias", "frequencies")},
    "plot similarity": ("--model", "absent.json", "--grid", "3x3", "--json"),
    "plot wavelets": ("--wavelet", "ricker", "-o", "absent/out.svg"),
    "diagnose": (*SETTINGS, "--offset", 0, "--layout", "bshd", "--before", "absent.npy", "--after", "absent.npy"),
    "diagnose-bias": ("absent.npy",),
    "diagnose-table": ("absent.npy", "--learned-table", "absent.npy"),
    "vectors": ("--model", "absent.json", "-o", "out.safetensors"),
    "load": ("--server", "unix:absent", "--rate", 1, "--mix", "absent.json"),
    "load merge": ("absent.json",),
    "info": ("--server", "unix:absent", "--timeout", 1),
    "health": ("--server", "unix:absent", "--timeout", 1),
    "help": ("--man-pages", "absent"),
}


@pytest.mark.parametrize("command", CANNOT_BE_DONE)
def test_what_cannot_be_done_exits_with_3(posenc, tmp_path, command):
    said = posenc(*command.split(), *CANNOT_BE_DONE[command], exit_code=3)
    assert said.stderr.startswith("posenc: ") and "absent" in said.stderr and said.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag, command", [
    ("--positions", ("rope", *SETTINGS, "--layout", "bshd", "--q", "q.npy", "--q-out", "out.npy")),
    ("--learned-table", ("embedding", "--offset", 0, "--count", 1, "-o", "out.npy")),
    ("--shaw-table", ("scores", *SHAW[2:], "--q", "q.npy", "--content", "false", "-o", "out.npy")),
    ("--mm-token-type-ids", ("positions", "--model", "config.json")),
    ("--image-grid-thw", ("positions", "--model", "config.json")),
    ("--grid-thw", ("positions", "--model", "config.json")),
])
def test_a_file_that_a_flag_reads_is_no_mistake_of_the_command_line(posenc, tmp_path, flag, command):
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY broken")
    for name in ("absent.npy", "broken.npy"):
        said = posenc(*command, flag, name, exit_code=3).stderr
        assert said.startswith(f"posenc: {flag}: {name}: ") and "--help" not in said
        said = posenc(*command, flag, name, "--nonsense", exit_code=2).stderr
        assert said.startswith("posenc: unknown flag --nonsense") and "--help" in said
    assert "--help" in posenc(*command, flag, "1y2", exit_code=2).stderr


def test_each_command_has_a_call_that_cannot_be_done():
    """Those without: `serve` has the exit codes of posenc-server, and test_demo.py has one of `demo`."""
    assert {*COMMANDS, *OF_COMMANDS} - CANNOT_BE_DONE.keys() == {"plot", "serve", "demo", "version", "completion"}


@pytest.mark.parametrize("status, exit_code", [("SERVING", 0), ("NOT_SERVING", 1), ("UNKNOWN", 1), ("SERVICE_UNKNOWN", 1)])
def test_health_tells_a_server_that_is_not_serving_from_none(posenc, fake, status, exit_code):
    answer = peers.HealthCheckResponse(status=peers.HealthCheckResponse.ServingStatus.Value(status))
    fake.answers["Check"] = answer.SerializeToString()
    ended = posenc("health", "--server", fake.address, exit_code=exit_code)
    assert ended.stdout == f"{status}\n"
    assert ended.stderr == ("" if exit_code == 0 else "posenc: the server is not serving\n")

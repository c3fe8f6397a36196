"""The installed package: programs, licences, types, and other libraries in the same process."""

import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import posenc

PACKAGE = pathlib.Path(posenc.__file__).parent
HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(sys.executable).parent
# Debian's Python with its own protobuf (python3-protobuf) and gRPC (python3-grpcio).
DEBIAN = "/usr/bin/python3"
ROTATE = """
import numpy, posenc
with posenc.local() as client:
    cos = client.table(settings={"rope_parameters": {"rope_type": "default"}, "rotary_dim": 8, "input_pairing": "HALF_SPLIT"},
                       positions=1, count=1, dtype="FP32", form="HALF_WIDTH").cos
    assert cos[0, 0] == numpy.float32(0.5403023058681398), cos
print("rotated")
"""


def python(code, executable=sys.executable, **environment):
    result = subprocess.run([executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment},
                            check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_programs(llama):
    if os.environ.get("POSENC_TEST_SERVER"):
        pytest.skip("POSENC_TEST_SERVER: this wheel does not have all programs")
    for name in ("posenc", "posenc-server"):
        said = subprocess.run([BIN / name, "--version"], capture_output=True, text=True, check=True).stdout
        assert said == f"{name} {importlib.metadata.version('posenc')}\n"
    said = subprocess.run([BIN / "posenc", "explain", "--model", llama], capture_output=True, text=True, check=True).stdout
    assert "128 elements of a head" in said
    failed = subprocess.run([BIN / "posenc", "explain", "--model", "/no/such"], capture_output=True, text=True, check=False)
    assert failed.returncode not in (0, 126, 127) and "/no/such" in failed.stderr


def test_licences_of_what_is_bundled():
    licences = {path.name for path in (PACKAGE / "licences").iterdir()}
    assert {"nlohmann-json3-dev", "libcli11-dev", "libjs-chart.js"} <= licences  # compiled into the programs
    assert {"libprotobuf32", "libgmp10", "libmpfr6", "libgrpc29", "libabsl20220623", "LGPL-3"} <= licences
    said = importlib.metadata.files("posenc")
    assert said and any(path.name == "LICENSE" for path in said)


@pytest.mark.parametrize("code", [
    "import posenc", "import posenc, google.protobuf.descriptor_pb2, grpc", "import google.protobuf.descriptor_pb2, grpc, posenc",
])
def test_beside_pips_protobuf_and_grpc(code):
    assert python(code + ROTATE).endswith("rotated\n")


@pytest.mark.skipif(subprocess.run([DEBIAN, "-c", "import google.protobuf, grpc, numpy"], capture_output=True).returncode != 0,
                    reason="needs Debian's python3-protobuf, python3-grpcio and python3-numpy")
@pytest.mark.parametrize("order", ["protobuf first", "posenc first"])
def test_beside_debians_protobuf(order, tmp_path):
    """Debian's module links the C++ library that the package bundles under another name."""
    (tmp_path / "posenc").symlink_to(PACKAGE)
    (tmp_path / "posenc.libs").symlink_to(PACKAGE.parent / "posenc.libs")
    theirs = ("from google.protobuf.pyext import _message\nfrom google.protobuf import struct_pb2\n"
              "s = struct_pb2.Struct(); s['a'] = 7; assert s.SerializeToString()\n")
    code = theirs + ROTATE + theirs if order == "protobuf first" else ROTATE + theirs + ROTATE
    said = python(code, DEBIAN, PYTHONPATH=str(tmp_path), PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="cpp")
    assert said.endswith("rotated\n")


def test_forked_children():
    """A client works in a child, which has none of its parent's threads."""
    assert python(ROTATE + """
import os
client = posenc.local()
def table():
    return client.table(settings={"rope_parameters": {"rope_type": "default"}, "rotary_dim": 128,
                                  "input_pairing": "HALF_SPLIT"}, positions=0, count=20000, dtype="FP32", form="HALF_WIDTH").cos
table()
child = os.fork()
if child == 0:
    table()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
table()
""")


def test_children_forked_while_other_threads_compute():
    """Neither what they compute nor what they lock is waited for in the child."""
    assert python(ROTATE + """
import os, signal, threading
import numpy
client, q = posenc.local(), numpy.ones((1, 64, 4, 128), "f4")
def rotate(theta):
    client.rope(q, model={"model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "rope_theta": 1e4 + theta},
                positions=3, layout="BSHD")
computed = [0] * 4
def compute(n):
    while True:
        computed[n] += 1
        rotate(4 * computed[n] + n)
for n in range(4):
    threading.Thread(target=compute, args=[n], daemon=True).start()
for fork in range(100):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        for n in range(4):
            for ago in range(3):
                rotate(4 * (computed[n] - ago) + n)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, fork
print("forked", flush=True)
os._exit(0)
""").endswith("forked\n")


def pyright(*paths):
    result = subprocess.run([BIN / "pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, paths)],
                            capture_output=True, text=True, check=False, cwd=HERE)
    return json.loads(result.stdout)["generalDiagnostics"]


def test_types_of_callers(tmp_path):
    """Right calls pass pyright's strict mode; each wrong line is reported."""
    program = tmp_path / "program.py"
    program.write_text('''# pyright: strict
import numpy as np
import posenc

client = posenc.local()
q = np.ones((1, 2, 1, 128), np.float32)
answer = client.rope(q, q, model="config.json", positions=0, layout="BSHD")
rotated: np.ndarray[tuple[int, int, int, int], np.dtype[np.float32]] = answer.q
q2, k2 = answer
width: int = answer.info.rotary_dim if answer.info else 0
cos, sin = client.table(settings={"rotary_dim": 8}, positions=q, dtype="FP32", form="HALF_WIDTH")
for tile in client.stream_table(model="config.json", positions=0, count=8, dtype="FP32", form="HALF_WIDTH", rows_per_tile=2):
    begin: int = tile.row_begin
for part in client.stream_rope(q, model="config.json", positions=0, layout="BSHD"):
    rows: np.ndarray[tuple[int, int, int, int], np.dtype[np.float32]] = part.rows
client.rope(q, model="config.json", positions=0, layout="BSDH")  # wrong
client.rope_in_chunks(q, model="config.json", positions=0, layout="BSHD", chunk_byte=7)  # wrong
client.rope(q, model="config.json", positions=0, layuot="BSHD")  # wrong
client.rope(q, settings={"rotary_dimension": 8}, positions=0, layout="BSHD")  # wrong
client.rope(q, model=7, positions=0, layout="BSHD")  # wrong
client.bias(form="DENSE", dtype="FP33")  # wrong
''')
    wrong = {n for n, line in enumerate(program.read_text().splitlines()) if line.endswith("# wrong")}
    found = pyright(program)
    assert {one["range"]["start"]["line"] for one in found if one["severity"] == "error"} == wrong, found


def test_types_of_the_package(tmp_path):
    """The package itself passes pyright's strict mode, as far as what it imports is installed."""
    shutil.copytree(PACKAGE, tmp_path / "posenc", ignore=shutil.ignore_patterns("torch.py", "_torch_*.py", "programs", "*.so"))
    settings = {"include": ["posenc"], "typeCheckingMode": "strict", "reportMissingModuleSource": False, "exclude": []}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    assert not [one for one in pyright("--project", tmp_path) if one["severity"] == "error"]
    (tmp_path / "posenc/_retry.py").write_text("untyped: list = []\n")  # the files are really checked
    assert [one for one in pyright("--project", tmp_path) if one["severity"] == "error"]


def test_the_first_example_of_the_page():
    page = (HERE.parents[2] / "docs/clients/python.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    assert "posenc.local()" in example
    assert python(example).startswith("[")


def test_the_streams_of_the_page():
    page = (HERE.parents[2] / "docs/clients/python.md").read_text()
    first, streams = page.split("```python\n")[1].split("```")[0], page.split("## Streams\n\n```python\n")[1].split("```")[0]
    assert python(first + streams.replace("1 << 20", "1 << 12") + "print(part.begin, q.shape)").endswith("0 (1, 3, 32, 128)\n")


def test_the_rotated_output_of_the_page(tmp_path, monkeypatch):
    """DeepSeek V4's output, rotated back, depends on distances only: all tokens may move."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "deepseek_v4", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64, "head_dim": 512,
        "layer_types": ["sliding_attention", "compressed_sparse_attention"]}))
    page = (HERE.parents[2] / "docs/clients/python.md").read_text()
    example = page.split("## Outputs that are rotated back")[1].split("```python\n")[1].split("```")[0]
    random = np.random.default_rng(1)
    q, kv = (random.standard_normal((1, 5, heads, 512), np.float32) for heads in (2, 1))

    def attention(q, k, v):
        weights = np.exp(np.einsum("bqhd,bkgd->bhqk", q, k) / 512**0.5)
        return np.einsum("bhqk,bkgd->bqhd", weights / weights.sum(-1, keepdims=True), v)

    def outputs(start):
        names = {"q": q, "kv": kv, "start": start, "attention": attention, "client": posenc.local()}
        exec(compile(example, "python.md", "exec"), names)
        return names["output"]

    assert np.abs(outputs(0) - outputs(300)).max() < 1e-4
    assert np.abs(outputs(0) - attention(q, kv, kv)).max() > 0.01


def test_the_example_of_the_readme(llama):
    example = (HERE.parents[2] / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert len(example.splitlines()) == 3
    example = example.replace('posenc.connect("localhost:50051")', "posenc.local()").replace('"config.json"', repr(str(llama)))
    assert python(f"import numpy\nq = k = numpy.ones((1, 3, 4, 128), 'f4')\n{example}print(q.shape)") == "(1, 3, 4, 128)\n"

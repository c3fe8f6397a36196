"""The README's examples: they are the files in examples/, and they run."""

import pathlib
import shutil
import subprocess
import sys

import pytest
from client import SECONDS

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ("rotate.py", "rotate.cc"))
def test_the_readme_shows_the_example(name):
    example = (ROOT / "examples" / name).read_text()
    assert example in (ROOT / "README.md").read_text()


def test_the_python_example(shared_server, configs, tmp_path):
    protos = [str(path) for path in (ROOT / "proto").glob("posenc/v1/*.proto")]
    subprocess.run(["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}",
                    f"--plugin=protoc-gen-grpc_python={shutil.which('grpc_python_plugin')}", *protos], check=True)
    example = tmp_path / "rotate.py"
    shutil.copy(ROOT / "examples" / "rotate.py", example)
    ended = subprocess.run([sys.executable, example, f"127.0.0.1:{shared_server.port}", configs / "llama-3.1-8b.json"],
                           check=True, capture_output=True, text=True, timeout=SECONDS)
    assert ended.stdout.startswith("[")


def test_the_cpp_example(shared_server, build):
    ended = subprocess.run([build / "bin" / "example-rotate", f"127.0.0.1:{shared_server.port}"], check=True,
                           capture_output=True, text=True, timeout=SECONDS)
    assert len(ended.stdout.split()) == 4

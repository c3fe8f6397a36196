"""Checks that the examples in the documentation are the files in examples/, and that they run."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest
from client import SECONDS

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_readme_shows_the_example():
    assert (ROOT / "examples" / "rotate.cc").read_text() in (ROOT / "README.md").read_text()


def test_the_page_shows_the_example_of_shared_memory():
    assert (ROOT / "examples" / "share.py").read_text() in (ROOT / "docs" / "shared-memory.md").read_text()


@pytest.fixture
def run_python(tmp_path):
    """A function that runs an example beside the stubs that it needs, and returns what it printed."""
    protos = [str(path) for path in (ROOT / "proto").glob("posenc/v1/*.proto")]
    subprocess.run(["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}",
                    f"--plugin=protoc-gen-grpc_python={shutil.which('grpc_python_plugin')}", *protos], check=True)

    def run(name, *arguments):
        shutil.copy(ROOT / "examples" / name, tmp_path)
        return subprocess.run([sys.executable, tmp_path / name, *arguments], check=True, capture_output=True, text=True,
                              timeout=SECONDS).stdout

    return run


def test_the_python_example(shared_server, configs, run_python):
    assert run_python("rotate_stubs.py", f"127.0.0.1:{shared_server.port}", configs / "llama-3.1-8b.json").startswith("[")


def test_the_python_example_of_shared_memory(start_server, run_python):
    with tempfile.TemporaryDirectory(prefix="posenc-") as directory:  # a socket's path must be short
        side_socket = f"{directory}/memory.sock"
        server = start_server("--shared-memory-socket", side_socket)
        printed = run_python("share.py", f"127.0.0.1:{server.port}", side_socket)
    assert printed.startswith("[") and printed != "[1. 1. 1. 1.]\n"


def test_the_cpp_examples(shared_server, build):
    """The second one rotates the same row among those of many layers and sequences."""
    printed = [subprocess.run([build / "bin" / name, f"127.0.0.1:{shared_server.port}"], check=True, capture_output=True,
                              text=True, timeout=SECONDS).stdout for name in ("example-rotate", "example-rotate-layers")]
    assert len(printed[0].split()) == 4 and printed[1] == printed[0]

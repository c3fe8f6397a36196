"""Runs the commands of docs/clients.md, with clients that know only the proto files.

scripts/test-clients runs this. A test is skipped, with the reason, if this machine lacks a program that it needs.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy
import pytest
import samples
from posenc.v1 import rotary_pb2
from tensors import array

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "clients.md").read_text()
SECONDS = 600  # a first build downloads its dependencies


def blocks(section):
    """The fenced blocks of a section of the page."""
    text = re.search(rf"^## {section}$(.*?)(^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def run(tmp_path, address, configs, build):
    """A function that runs a block of the page in a directory with the files that the page names."""
    for name in ("proto", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(configs / "llama-3.1-8b.json", tmp_path / "config.json")
    shutil.copy(build / "posenc.protoset", tmp_path)

    def run(text, exit_code=0):
        ended = subprocess.run(["bash", "-euc", text.replace("localhost:50051", address)], cwd=tmp_path,
                               stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        assert ended.returncode == exit_code, ended.stdout + ended.stderr
        return ended.stderr + ended.stdout

    return run


@pytest.fixture
def expected(client, configs):
    """The first elements of the rotated query, which the examples print."""
    request = samples.rotary(numpy.ones((1, 3, 32, 128)), offset=100_000)
    config = (configs / "llama-3.1-8b.json").read_bytes()
    request.rotary.CopyFrom(rotary_pb2.RotarySource(model=rotary_pb2.ModelConfig(config_json=config)))
    return array(client.call("ApplyRotary", request).q).flatten()[:4]


def needs(*programs):
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"skipped: no {program}")


def numbers(text):
    return numpy.array([numpy.float32(number) for number in re.findall(r"-?\d+\.\d+(?:[eE]-?\d+)?", text)])


def spoil(path):
    """Changes the config.json so that the server refuses it."""
    config = json.loads(path.read_text())
    config["rope_theta"] = -1
    path.write_text(json.dumps(config))


def needs_go():
    needs("go")
    version = re.search(r"go1\.(\d+)", subprocess.run(["go", "version"], capture_output=True, text=True).stdout)
    if int(version[1]) < 23:
        pytest.skip("skipped: no Go 1.23 or newer")


@pytest.fixture
def go_path(monkeypatch):
    """Adds the directory of `go install` to PATH, as on any machine with Go."""
    needs_go()
    home = subprocess.run(["go", "env", "GOPATH"], capture_output=True, text=True, check=True).stdout.strip()
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{home}/bin")


def test_go(run, expected, tmp_path, go_path):
    commands = blocks("Go")[0]
    assert numpy.array_equal(numbers(run(commands).splitlines()[-1]), expected)
    spoil(tmp_path / "config.json")
    message = run(commands.strip().splitlines()[-1], exit_code=1)
    assert "field rotary.model.config_json.rope_theta: is -1" in message


def test_java(run, expected, tmp_path):
    needs("mvn", "javac")
    compile_, run_it = blocks("Java")[0].strip().splitlines()
    # Maven writes beside the pom.xml, so it needs a copy.
    (tmp_path / "examples").unlink()
    shutil.copytree(ROOT / "examples" / "java", tmp_path / "examples" / "java", ignore=shutil.ignore_patterns("target"))
    run(compile_)
    run_it = run_it.replace("config.json", str(tmp_path / "config.json"))
    assert numpy.array_equal(numbers(run(run_it)), expected)
    spoil(tmp_path / "config.json")
    assert "field rotary.model.config_json.rope_theta: is -1" in run(run_it, exit_code=1)


def test_grpcurl(run, go_path):
    needs("grpcurl", "jq")
    calls, refused, offline = blocks("grpcurl")
    shown = run(calls)
    assert "posenc.v1.PositionalEncodingService\n" in shown
    assert "string config_json_text = 7;" in shown
    assert '"rope_type": "llama3"' in shown
    command, expected = refused.split("\n", 1)
    assert run(command.removeprefix("$ "), exit_code=64 + 3) == expected
    assert "Rotates q and, optionally, k." in run(offline)


def test_ghz(run, go_path):
    needs("ghz")
    report = run(blocks("ghz")[0])
    assert re.search(r"\[OK\]\s+200 responses", report), report

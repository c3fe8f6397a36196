"""Runs docs/tour.md: each command of its transcripts, and each mistake of its table, with what the page says they print."""

import fnmatch
import glob
import os
import re
import shutil
import socket
import subprocess

import numpy
import pytest

from client import SECONDS
from conftest import ROOT

PAGE = (ROOT / "docs" / "tour.md").read_text()


@pytest.fixture
def shell(command_program, tmp_path, start_server):
    """A function that runs a line of the page in bash, and returns what it printed. A server has the page's port."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "posenc").symlink_to(shutil.which(command_program[0]))
    (tmp_path / "work").mkdir()
    port = str(start_server().port)
    with socket.socket() as free:  # bound but not listening: nobody answers there
        free.bind(("127.0.0.1", 0))
        ports = {"50051": port, "50059": str(free.getsockname()[1])}
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("POSENC_", "HF_"))}
        environment |= {"PATH": f"{tmp_path / 'bin'}:{environment['PATH']}", "HOME": "/home/you"}

        def run(line):
            for page, real in ports.items():
                line = line.replace(page, real)
            ended = subprocess.run(["bash", "-c", line], cwd=tmp_path / "work", env=environment, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   timeout=SECONDS)
            said = ended.stdout
            for page, real in ports.items():
                said = said.replace(f":{real}", f":{page}")  # other numbers may contain it
            return said

        yield run


def transcript():
    """The page's commands, each with its output."""
    steps = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, end, output = re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)(\n?)(.*)", step, re.DOTALL).groups()
            steps.append((command, output))
    return steps


def mistakes():
    rows = re.findall(r"^\| ([^|`]+) \| `(posenc [^`]*)` \| (`+) ?(posenc.*?) ?\3 \|$", PAGE, re.MULTILINE)
    return [(mistake, command, message.replace("\\|", "|")) for mistake, command, _, message in rows]


def write_files(folder):
    """The files that the mistakes name; each is named for what is wrong with it."""
    ones = numpy.ones((1, 11, 4, 64), "<f4")
    arrays = {"q": ones, "two-axes": ones[0, :, 0], "int32": ones.astype("<i4"), "fp64": ones.astype("<f8"),
              "fortran": numpy.asfortranarray(numpy.random.default_rng(1).standard_normal(ones.shape).astype("<f4")),
              "nan": numpy.array([0, 1, numpy.nan, *range(3, 11)])}
    for name, array in arrays.items():
        numpy.save(folder / f"{name}.npy", array)
    (folder / "no-type.json").write_text('{"hidden_size": 256, "num_attention_heads": 4, "rope_theta": 10000.0}')
    (folder / "yarnn.json").write_text('{"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, '
                                       '"rope_scaling": {"rope_type": "yarnn", "factor": 2.0}}')
    (folder / "empty-folder").mkdir()


def test_the_transcript(shell, tmp_path):
    steps = transcript()
    assert len(steps) >= 10
    (tmp_path / "work" / "config.json").write_text(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    for command, output in steps:
        assert shell(command) == output, command


def test_the_mistakes(shell, tmp_path):
    rows = mistakes()
    assert len(rows) == 15
    (tmp_path / "work" / "config.json").write_text(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    write_files(tmp_path / "work")
    for mistake, command, message in rows:
        said = shell(command).split("\nSee `posenc")[0].rstrip("\n")
        assert fnmatch.fnmatchcase(said, glob.escape(message).replace("...", "*")), mistake

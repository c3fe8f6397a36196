"""Runs `posenc demo` as a user of the installed packages does."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess

import mpmath
import pytest
from certificates import Authority
from client import SECONDS

ELEMENTS = 4 * 32 * 128  # tokens, heads, elements of a head


def nobody_answers(address):
    host, port = address.rsplit(":", 1)
    with socket.socket() as caller:
        return caller.connect_ex((host, int(port))) != 0


@pytest.fixture
def temporary(tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def test_the_demo_shows_exact_answers_and_leaves_nothing(posenc, tmp_path, temporary):
    said = posenc("demo", TMPDIR=str(temporary)).stdout
    assert f"{ELEMENTS:,} of {ELEMENTS:,} elements are the exact value, rounded once." in said
    rows = re.findall(r"^ +([\d,]+) +(-?[\d.]+) +(-?[\d.]+) +-?[\d.]+ +\S+ +\S+$", said, re.MULTILINE)
    assert [row[0] for row in rows] == ["0", "1", "8,191", "131,071"]
    for token, answer, exact in rows:
        with mpmath.workprec(200):
            frequency = float(mpmath.power(500000, mpmath.mpf(-1) / 64))  # of pair 1, which llama3 keeps
            cosine = mpmath.cos(int(token.replace(",", "")) * mpmath.mpf(frequency))
        assert abs(float(exact) - cosine) < 1e-14 and abs(float(answer) - cosine) < 6e-8
    for command in ("explain", "rope", "bias", "compare", "load"):
        assert f"$ posenc {command} " in said
    assert nobody_answers(re.search(r"listens on (\S+)\. ", said)[1])
    assert list(temporary.iterdir()) == [] and list(tmp_path.iterdir()) == [temporary]


def test_the_demo_as_json(posenc):
    said = json.loads(posenc("demo", "--json").stdout)
    assert said["elements"] == said["exact_elements"] == ELEMENTS
    assert [command.split()[1] for command in said["commands"]] == ["explain", "rope", "bias", "compare", "load"]


def test_the_demo_calls_its_server_without_the_settings_of_the_user(posenc, tmp_path):
    """Its commands neither encrypt nor call a server of the user's file."""
    file = tmp_path / "settings" / "posenc" / "environment"
    file.parent.mkdir(parents=True)
    file.write_text(f"POSENC_SERVER=unix:nobody\nPOSENC_TLS_CA={Authority(tmp_path).certificate}\n")
    settings = {"XDG_CONFIG_HOME": str(tmp_path / "settings")}
    assert "POSENC_SERVER" in posenc("demo", exit_code=2, **settings).stderr
    assert json.loads(posenc("demo", "--json", POSENC_SERVER="", **settings).stdout)["exact_elements"] == ELEMENTS


@pytest.mark.skipif(shutil.which("gnuplot") is None, reason="no gnuplot")
def test_the_demo_draws_a_picture_where_it_is_asked_to(posenc, tmp_path):
    posenc("demo", "--picture", "wavelengths.svg")
    assert "<svg" in (tmp_path / "wavelengths.svg").read_text()


def test_the_demo_has_a_server_of_its_own(posenc, command_program, tmp_path):
    assert "--server" in posenc("demo", "--server", "127.0.0.1:1", exit_code=2).stderr
    alone = tmp_path / "posenc"  # without a server beside it
    shutil.copy(shutil.which(command_program[0]), alone)
    ended = subprocess.run([alone, "demo"], capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 3 and "the package posenc-server has it" in ended.stderr


def test_a_demo_whose_reader_goes_away_leaves_nothing(command_program, temporary):
    subprocess.run(["bash", "-c", f"{command_program[0]} demo | head -n 1"], env=os.environ | {"TMPDIR": str(temporary)},
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS, check=True)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM, signal.SIGKILL))
def test_an_interrupted_demo_ends_its_server(command_program, temporary, number):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSENC_")}
    demo = subprocess.Popen([*command_program, "demo"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            env=environment | {"TMPDIR": str(temporary)})
    with demo.stdout:
        address = re.search(r"listens on (\S+)\. ", demo.stdout.readline())[1]
        demo.send_signal(number)
        demo.stdout.read()  # ends when all programs that hold it have ended
    assert demo.wait(SECONDS) == (-number if number == signal.SIGKILL else 3)
    if number != signal.SIGKILL:
        assert nobody_answers(address) and list(temporary.iterdir()) == []

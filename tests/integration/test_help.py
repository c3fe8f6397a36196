"""Tests posenc's help, man pages and completion, and runs every example of the help."""

import json
import re
import shlex
import shutil
import subprocess

import numpy
import pytest

from conftest import ROOT
from client import SECONDS

COMMANDS = ("explain", "compare", "table", "rope", "bias", "scores", "values", "embedding", "positions", "plot", "diagnose",
            "diagnose-bias", "diagnose-table", "vectors", "load", "info", "health", "serve", "demo", "help", "version", "completion")
OF_COMMANDS = tuple(f"plot {kind}" for kind in ("decay", "table", "bias", "frequencies", "similarity", "wavelets")) + (
    "load merge",)


@pytest.fixture
def files(tmp_path, configs):
    """The files that the examples name."""
    (tmp_path / "other").mkdir()
    shutil.copy(configs / "llama-3.1-8b.json", tmp_path / "config.json")
    shutil.copy(configs / "llama-3.1-8b.json", tmp_path / "other" / "config.json")
    chance = numpy.random.default_rng(20261124)
    shapes = {"q": (1, 4, 32, 128), "k": (1, 4, 8, 128), "heads": (1, 3, 3, 4), "probabilities": (1, 3, 3, 3),
              "shaw": (5, 4)}
    for name, shape in shapes.items():
        numpy.save(tmp_path / f"{name}.npy", chance.standard_normal(shape).astype("<f4"))
    distances = numpy.arange(16)[:, None] - numpy.arange(16)
    slopes = numpy.array([0.25, 0.0625, 0.015625, 0.00390625])[:, None, None]
    numpy.save(tmp_path / "bias.npy", (-slopes * numpy.maximum(distances, 0)).astype("<f4"))
    positions = chance.standard_normal((9, 8)).astype("<f4").reshape(3, 3, 8)
    numpy.save(tmp_path / "positions.npy", positions.reshape(9, 8))
    cells = [numpy.arange(size) * 3 // size for size in (4, 6)]
    numpy.save(tmp_path / "resized.npy", positions[cells[0]][:, cells[1]])
    return tmp_path


def examples(text):
    return re.findall(r"^  (posenc .*)$", text.split("Examples:")[1], re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS + OF_COMMANDS)
def test_every_example_of_a_command_runs(posenc, address, files, command):
    found = examples(posenc("help", *command.split()).stdout)
    assert len(found) == 3
    if command.startswith("diagnose"):
        posenc("rope", "--model", "config.json", "--layout", "bshd", "--offset", 0, "--q", "q.npy", "--q-out",
               "q_rotated.npy")
    if command == "load merge":
        for name in ("one", "two"):
            posenc("load", "--server", address, "--rate", 50, "--count", 5, "-o", f"{name}.json")
            results = json.loads((files / f"{name}.json").read_text())
            results["begin_time"] = "2026-01-02T03:04:05Z"  # as if they had run at the same time
            (files / f"{name}.json").write_text(json.dumps(results))
    for example in found:
        example, _, stdin = example.partition(" <")
        words = shlex.split(example)[1:]
        if words[0] == "serve" and "--listen" in words:
            continue  # test_tour.py starts servers
        if {"-o", "--picture"} & set(words) and words[0] in ("plot", "demo") and shutil.which("gnuplot") is None:
            continue  # pictures are drawn by gnuplot, which is optional
        posenc(*[address if word == "localhost:50051" else word for word in words],
               stdin=(files / stdin).read_text() if stdin else None)


def test_help_of_help_and_of_a_command_of_a_command(posenc):
    assert posenc("help").stdout == posenc("--help").stdout == posenc().stdout
    assert posenc("help", "rope").stdout == posenc("rope", "--help").stdout
    assert "Usage: posenc plot decay" in posenc("help", "plot", "decay").stdout
    assert "did you mean rope?" in posenc("help", "roep", exit_code=2).stderr


def test_help_of_a_method_names_the_commands_that_have_it(posenc):
    said = posenc("help", "nope", exit_code=2).stderr
    assert "`posenc help bias`" in said and "did you mean" not in said
    assert "`posenc help rope`" in posenc("help", "YaRN", exit_code=2).stderr


@pytest.mark.parametrize("command", (None, "server", *COMMANDS, *OF_COMMANDS))
def test_no_terminal_of_80_columns_breaks_a_word(posenc, build, command):
    if command == "server":
        text = subprocess.run([build / "bin/posenc-server", "--help"], capture_output=True, text=True, check=True,
                              timeout=SECONDS).stdout
    else:
        text = posenc("help", *(command or "").split()).stdout.split("\nExamples:")[0]
    long = [line for line in text.splitlines() if len(line) > 80 and " " in line.strip()]
    assert "Options:" in text and not long


def test_common_flags_come_first(posenc):
    text = posenc("help", "rope").stdout
    groups = [text.index(f"\n{name}:\n") for name in ("Options", "Tensors", "Positions", "Model", "Precision",
                                                      "Settings, in place of --model")]
    assert groups == sorted(groups)


def test_the_flags_of_load_are_described_without_lists_of_others(posenc):
    text = posenc("help", "load").stdout
    assert "Excludes" not in text and "Needs" not in text
    assert text.index("--server") < text.index("--rate") < text.index("--mix")


@pytest.mark.parametrize("command", (("help", "plot", "decay"), ("completion", "bash"), ("version",)))
def test_text_as_json(posenc, command):
    [(name, text)] = json.loads(posenc(*command, "--json").stdout).items()
    assert name == command[0] and text.strip() in posenc(*command).stdout


def test_every_command_is_listed(posenc):
    listed = re.findall(r"^  ([a-z-]+) {2,}", posenc("help").stdout.split("Subcommands:")[1].split("Examples:")[0],
                        re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


def test_man_pages_have_the_text_of_the_help(posenc, tmp_path):
    posenc("help", "--man-pages", ".")
    pages = {path.stem for path in tmp_path.glob("*.1")}
    assert {"posenc", *(f"posenc-{command}" for command in COMMANDS)} <= pages
    text = (tmp_path / "posenc-rope.1").read_text().replace("\\-", "-")
    for flag in re.findall(r"^  (--[a-z-]+)", posenc("help", "rope").stdout, re.MULTILINE):
        assert flag in text
    for page, synopsis in (("load", "[\\fICOMMAND\\fR]"), ("plot", ".I COMMAND")):
        assert f".B posenc {page}\n{synopsis}\n" in (tmp_path / f"posenc-{page}.1").read_text()
    if shutil.which("man"):
        said = subprocess.run(["man", "--warnings", "-l", tmp_path / "posenc-rope.1"], capture_output=True, text=True,
                              timeout=SECONDS)
        assert said.stderr == "" and "--layout" in said.stdout


def test_the_servers_man_page_has_the_text_of_its_help(server_program, tmp_path):
    run = lambda *arguments: subprocess.run([*server_program, *arguments], capture_output=True, text=True, check=True,
                                            timeout=SECONDS).stdout
    page, text = run("--man-page"), run("--help")
    assert page.startswith(".TH POSENC\\-SERVER 8 ") or page.startswith(".TH POSENC-SERVER 8 ")
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"):
        assert f"\n.SH {section}\n" in page
    plain = page.replace("\\-", "-")
    assert "\n.SH NAME\nposenc-server - gRPC server that computes positional encodings for attention.\n" in plain
    flags = re.findall(r"^  (?:-\w,)?(--[a-z-]+)((?: \S+ \[[^\]]*\])?)", text, re.MULTILINE)
    assert len(flags) > 40 and "--man-page" not in text
    for flag, value in flags:
        assert re.search(rf"^\.B (?:-\w,)?{flag}{re.escape(value)} *$", plain, re.MULTILINE), (flag, value)
    if shutil.which("man"):
        (tmp_path / "posenc-server.8").write_text(page)
        said = subprocess.run(["man", "--warnings", "-l", tmp_path / "posenc-server.8"], capture_output=True, text=True,
                              timeout=SECONDS)
        assert said.stderr == "" and "--max-heads" in said.stdout


@pytest.mark.parametrize("line, word, before, words", [
    ("posenc ro", "ro", "posenc", {"rope"}),
    ("posenc help ro", "ro", "help", {"rope"}),
    ("posenc rope --layo", "--layo", "rope", {"--layout"}),
    ("posenc rope --layout ", "", "--layout", {"bshd", "bhsd", "thd"}),
    ("posenc rope --layout b", "b", "--layout", {"bshd", "bhsd"}),
    ("posenc rope --layout=b", "b", "=", {"bshd", "bhsd"}),
    ("posenc rope --layout=b", "--layout=b", "rope", {"--layout=bshd", "--layout=bhsd"}),
    ("posenc plot fr", "fr", "plot", {"frequencies"}),
    ("posenc rope --q ", "", "--q", set()),
])
def test_completion(posenc, line, word, before, words):
    assert set(posenc("complete-word", "posenc", word, before, COMP_LINE=line).stdout.split()) == words


def test_completion_scripts(posenc, tmp_path):
    for shell in ("bash", "zsh", "fish"):
        (tmp_path / shell).write_text(posenc("completion", shell).stdout)
        if shutil.which(shell):  # zsh and fish are rarely installed; bash always is
            subprocess.run([shell, "-n", tmp_path / shell], check=True, timeout=SECONDS)
    said = subprocess.run(["bash", "-c", f"source {tmp_path / 'bash'}; complete -p posenc"], capture_output=True,
                          text=True, timeout=SECONDS)
    assert "complete-word" in said.stdout
    assert "bash, zsh or fish" in posenc("completion", "tcsh", exit_code=2).stderr


def test_version(posenc):
    version = posenc("--version").stdout
    assert posenc("version").stdout == posenc("-V").stdout == version
    assert posenc("version", "--json").stdout == '{"version":"%s"}\n' % version.split()[1]


def test_installation_has_man_pages_and_completion(build, tmp_path):
    for component in ("client", "server"):
        subprocess.run(["cmake", "--install", build, "--component", component, "--prefix", tmp_path], check=True,
                       capture_output=True, timeout=SECONDS)
    installed = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert {"share/man/man1/posenc.1", "share/man/man1/posenc-rope.1", "share/man/man8/posenc-server.8",
            "share/bash-completion/completions/posenc", "share/zsh/vendor-completions/_posenc",
            "share/fish/vendor_completions.d/posenc.fish"} <= installed
    assert str(ROOT) not in (tmp_path / "share/man/man1/posenc.1").read_text()

"""Runs the commands of a page of docs/clients/, and the tests of a package in its own language."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONFIG = ROOT / "tests" / "golden" / "configs" / "llama-3.1-8b.json"
SECONDS = 900  # a first build downloads its dependencies
PASSED = ("ok", "pass", "")  # how the languages' test runners mark a test that passed


def needs(*programs):
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"no {program}")


def run(command, directory, environment=None, exit_code=0):
    """Runs a bash command, and returns what it printed on standard output; its errors too, if it fails as it must."""
    ended = subprocess.run(["bash", "-euc", command], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == exit_code, ended.stdout + ended.stderr
    return ended.stdout if exit_code == 0 else ended.stdout + ended.stderr


def numbers(text):
    return numpy.array([numpy.float32(number) for number in re.findall(r"-?\d+\.\d+(?:[eE]-?\d+)?", text)])


class Page:
    """A page of docs/clients/. Its blocks without a language are commands, with a clone in $POSENC."""

    def __init__(self, name, directory, address):
        self._text = (ROOT / "docs" / "clients" / f"{name}.md").read_text()
        self._directory, self._address = directory, address

    def blocks(self, language=""):
        found = re.findall(r"^```(\w*)\n(.*?)^```$", self._text, re.MULTILINE | re.DOTALL)
        return [text for name, text in found if name == language]

    def run(self, text, exit_code=0):
        environment = {**os.environ, "POSENC": str(ROOT)}
        return run(text.replace("localhost:50051", self._address), self._directory, environment, exit_code)

    def shows(self, printed):
        assert f"It prints `{printed.strip()}`" in self._text

    def rotates(self, expected, refusal="field rotary.model.config_json.rope_theta is -1: must be"):
        """Runs all commands, which end with a rotation by CONFIG; then the last one with a file that is refused."""
        commands = "".join(self.blocks())
        printed = re.sub("\x1b\\[\\d*m", "", self.run(commands)).strip().splitlines()[-1]  # without Maven's colours
        assert numpy.array_equal(numbers(printed), expected)
        self.shows(printed)
        changes_directory = [line for line in commands.splitlines() if " cd " in f" {line}"][-1]
        config = json.loads(CONFIG.read_text())
        config["rope_theta"] = -1
        spoilt = self._directory / "spoilt.json"
        spoilt.write_text(json.dumps(config))
        last = commands.strip().splitlines()[-1].replace("$POSENC/tests/golden/configs/llama-3.1-8b.json", str(spoilt))
        assert str(spoilt) in last
        where = re.search(r"\bcd (\S+)", changes_directory)[1]
        assert refusal in self.run(f"cd {where} && {last}", exit_code=1)


class Suite:
    """Runs the tests of a package in its own language and counts them."""

    counted = {}  # by the test that ran them: a list of outcomes and names

    def __init__(self, test, environment):
        self._test, self._environment = test, environment

    def __call__(self, command, directory, case):
        """`case`: what a line about one test looks like, with groups `outcome` and `name`."""
        ended = subprocess.run(["bash", "-euc", command], cwd=ROOT / directory, env=self._environment,
                               stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        output = ended.stdout + ended.stderr
        cases = [(match["outcome"].strip().lower(), match["name"]) for match in re.finditer(case, output, re.MULTILINE)]
        assert cases, output
        Suite.counted[self._test] = cases
        assert ended.returncode == 0 and all(outcome in PASSED for outcome, _ in cases), output

"""The commands of docs/clients/shell.md: grpcurl and ghz."""

import os
import re

import numpy
import pytest
from languages import ROOT, needs, numbers, run


@pytest.fixture(autouse=True)
def go_path(monkeypatch):
    """Adds the directory of `go install` to PATH, as on any machine with Go."""
    needs("go")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{run('go env GOPATH', ROOT).strip()}/bin")


def test_a_rotation(page, expected):
    needs("grpcurl", "jq")
    printed = page.run(page.blocks()[0])
    assert numpy.array_equal(numbers(printed), expected)
    page.shows(printed)


def test_grpcurl(page):
    needs("grpcurl", "jq")
    _, calls, refused, offline, _ = page.blocks()
    shown = page.run(calls)
    assert "posenc.v1.PositionalEncodingService\n" in shown
    assert "string config_json_text = 7;" in shown
    assert '"rope_type": "llama3"' in shown
    command, details = refused.split("\n", 1)
    assert page.run(command.removeprefix("$ "), exit_code=64 + 3) == details
    assert "Rotates q and, optionally, k." in page.run(offline)


def test_ghz(page):
    needs("ghz")
    report = page.run(page.blocks()[4])
    assert re.search(r"\[OK\]\s+200 responses", report), report

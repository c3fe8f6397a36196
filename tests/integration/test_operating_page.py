"""Checks that docs/operating.md has every flag of `posenc-server --help`, with its unit and its default."""

import pathlib
import re
import subprocess

from client import SECONDS

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "operating.md"


def from_help(build):
    text = subprocess.run([build / "bin" / "posenc-server", "--help"], capture_output=True, text=True, check=True,
                          timeout=SECONDS).stdout
    found = re.findall(r"^  (--[a-z-]+) (\S+) \[([^\]]*)\]", text, re.MULTILINE)
    # --help shows the values of a choice; the page calls it text.
    return {flag: ("text" if "|" in unit else unit.lower(), default) for flag, unit, default in found}


def test_every_flag_has_its_row(build):
    rows = re.findall(r"^\| `(--[a-z-]+)` \| (\w+) \| *(\S*?) *\|", PAGE.read_text(), re.MULTILINE)
    page = {flag: (unit, default) for flag, unit, default in rows}
    assert len(rows) == len(page), "a flag has two rows"
    assert page == from_help(build)
    assert len(page) > 20

"""Reads digest files: the first line has the numerics version, each other one has words NAME=VALUE and the digest."""

import pathlib
import re

VERSION_H = pathlib.Path(__file__).resolve().parents[2] / "posenc/base/version.h"


def numerics_version():
    return int(re.search(r"kNumericsVersion = (\d+);", VERSION_H.read_text())[1])


def parse(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def read(path):
    """Yields (line, case, digest)."""
    first, *lines = path.read_text().splitlines()
    assert first == f"numerics_version {numerics_version()}", f"{path} begins with {first}"
    for line in lines:
        *words, digest = line.split()
        yield line, {key: parse(value) for key, value in (word.split("=") for word in words)}, digest

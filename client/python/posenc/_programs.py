"""The programs posenc and posenc-server, which lie inside the package beside the libraries that they need."""

import importlib.resources
import os
import sys


def _run(name: str) -> None:
    program = str(importlib.resources.files("posenc").joinpath("programs", name))
    if not os.path.exists(program):
        sys.exit(f"{name}: this wheel of posenc does not have the program, but only what it needs on every such system; "
                 "Debian packages, the container image and wheels for newer Linux systems have it")
    os.execv(program, [name, *sys.argv[1:]])


def posenc() -> None:
    _run("posenc")


def posenc_server() -> None:
    _run("posenc-server")

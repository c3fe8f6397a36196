"""Tests what `cmake --install` installs, as a user would use it."""

import re
import shutil
import subprocess

import pytest

from conftest import ROOT


def run(*command):
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_consumer_finds_and_links_the_library(build):
    if "CMAKE_BUILD_TYPE:STRING=Release\n" not in (build / "CMakeCache.txt").read_text():
        pytest.skip("a consumer's compiler flags are those of the release preset")
    work = build / "consumer"
    shutil.rmtree(work, ignore_errors=True)
    run("cmake", "--install", build, "--component", "library", "--prefix", work / "prefix")
    # No installed file may refer to the tree that it was built from.
    installed = [path for path in (work / "prefix").rglob("*") if path.suffix in (".h", ".cmake")]
    assert not [path for path in installed if str(ROOT) in path.read_text().replace(str(work), "")]
    # Our compiler flags must not reach consumers.
    targets = next((work / "prefix").rglob("posencTargets.cmake")).read_text()
    assert not re.search("COMPILE_OPTIONS|COMPILE_DEFINITIONS", targets)
    run("cmake", "-G", "Ninja", "-S", ROOT / "tests" / "consumer", "-B", work / "build",
        f"-DCMAKE_PREFIX_PATH={work / 'prefix'}", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", work / "build")
    assert run(work / "build" / "consumer") == "rotated\n"


def test_the_file_of_settings_states_the_defaults(build):
    text = (ROOT / "deploy" / "posenc-server.default").read_text()
    settings = re.findall(r"^#POSENC_SERVER_(\w+)=(.*)$", text, re.MULTILINE)
    assert settings
    defaults = dict(re.findall(r"^  --(\S+) \S+ \[(.*?)\]", run(build / "bin" / "posenc-server", "--help"), re.MULTILINE))
    for name, value in settings:
        assert defaults[name.lower().replace("_", "-")] == value

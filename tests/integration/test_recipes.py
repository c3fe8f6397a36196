"""The recipes of package managers in packaging/: what can be checked without these (packaging/README.md)."""

import json
import os
import py_compile
import re
import shutil
import subprocess

import pytest
import yaml
from conftest import ROOT

PACKAGING = ROOT / "packaging"
OPTIONS = ("POSENC_SERVER", "POSENC_GRPC", "POSENC_BUILD_TESTS")
# Functions of vcpkg: each prints its name and its arguments.
VCPKG = """
set(VERSION 0.1.0)
set(CURRENT_PACKAGES_DIR "${CMAKE_CURRENT_BINARY_DIR}/packages")
foreach(name vcpkg_download_distfile vcpkg_extract_source_archive vcpkg_find_acquire_program vcpkg_cmake_configure
    vcpkg_cmake_install vcpkg_copy_tools vcpkg_cmake_config_fixup vcpkg_install_copyright)
  cmake_language(EVAL CODE "function(${name})\\nlist(JOIN ARGV \\" \\" words)\\nmessage(\\"${name} \\${words}\\")\\nendfunction()")
endforeach()
"""


def run(*command, **options):
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_the_options_of_recipes_exist():
    known = re.findall(r"^option\((\w+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    for recipe in ("vcpkg/portfile.cmake", "conda-forge/recipe.yaml", "homebrew/posenc.rb", "conan/conanfile.py"):
        used = set(re.findall(r"POSENC_\w+", (PACKAGING / recipe).read_text()))
        assert used == set(OPTIONS) and used <= set(known), recipe


def test_the_manifest_of_vcpkg():
    manifest = json.loads((PACKAGING / "vcpkg/vcpkg.json").read_text())
    names = [part if isinstance(part, str) else part["name"] for part in manifest["dependencies"]]
    assert names == sorted(names) and all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version-semver"])


def test_cmake_runs_the_portfile_of_vcpkg(tmp_path):
    script = tmp_path / "run.cmake"
    script.write_text(VCPKG + f'include("{PACKAGING}/vcpkg/portfile.cmake")\n')
    said = run("cmake", "-P", script, cwd=tmp_path)
    assert all(f"-D{option}=OFF" in said for option in OPTIONS), said


def test_the_recipe_of_conda_forge():
    recipe = yaml.safe_load((PACKAGING / "conda-forge/recipe.yaml").read_text())
    assert recipe["schema_version"] == 1 and {"package", "source", "build", "requirements", "tests", "about"} <= recipe.keys()
    assert re.fullmatch("[0-9a-f]{64}", recipe["source"]["sha256"])


def test_the_recipe_of_conan(tmp_path):
    recipe = PACKAGING / "conan/conanfile.py"
    py_compile.compile(str(recipe), cfile=str(tmp_path / "recipe.pyc"), doraise=True)
    if not shutil.which("conan"):
        pytest.skip("conan is not installed: only Python has read its recipe")
    environment = {**os.environ, "CONAN_HOME": str(tmp_path / "home")}
    said = run("conan", "inspect", recipe, env=environment)
    assert {"name: posenc", "license: Apache-2.0"} <= set(said.splitlines()), said


def test_the_formula_of_homebrew():
    if not shutil.which("ruby"):
        pytest.skip("ruby is not installed")
    assert "Syntax OK" in run("ruby", "-c", PACKAGING / "homebrew/posenc.rb")

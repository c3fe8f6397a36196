"""choose_tests.py BASE PROGRAMS: which tests what differs from the commit BASE concerns; PROGRAMS is build/PRESET/test-programs.txt.

Prints a line for each: "program NAME", "integration FILE", "package yes", and "left WHAT is not chosen".
- C++ programs with a file that includes a changed header or the header of a changed .cc file, directly or by a header of
  tests, and those with a file in the folder of tests/ that mirrors the changed file's.
- Files of integration tests that have changed or import a changed file; if they are many, the smoke tests instead. The
  smoke tests also if something changed that a server or the command is made of.
- The tests of the Python package, if a file of client/python changed.
"""

import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CPP = (".cc", ".h")
MAX_FILES = 4  # of integration tests
SERVED = ("posenc", "server", "proto", "tools")
# Integration tests of each RPC, each field and each way to end, which take less than a minute together.
SMOKE = ("compare", "config_json", "explain", "field_values", "info", "lifecycle", "limits", "mutations", "numbers", "oip",
         "same_bytes", "serialized_forms", "shared_memory", "streams", "strictness")


def changed_files(base):
    """Changed since `base`, and not yet committed."""
    commands = ("git", "diff", "--name-only", base), ("git", "ls-files", "--others", "--exclude-standard")
    names = "".join(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout for command in commands)
    return [pathlib.PurePath(name) for name in sorted(set(names.splitlines()))]


def mirrored(path):
    """The folder of tests for a source: posenc/methods/rope/yarn.cc has tests/methods/rope, tools/posenc tests/tools."""
    parts = path.parent.parts
    return pathlib.PurePath("tests", *parts[1 if parts[0] == "posenc" else 0:])


def closure(wanted, edges):
    """`wanted`, and all that leads to it by `edges`, {file: what it includes or imports}."""
    while more := {name for name, used in edges.items() if used & wanted} - wanted:
        wanted |= more
    return wanted


def cpp_tests(changed):
    files = [path.relative_to(ROOT) for suffix in CPP for path in (ROOT / "tests").rglob(f"*{suffix}")]
    includes = {pathlib.PurePath(path): {pathlib.PurePath(name) for name in
                                        re.findall(r'^#include "([^"]+)"', (ROOT / path).read_text(), re.MULTILINE)}
                for path in files}
    folders = {mirrored(path) for path in changed if path.parts[0] != "tests"}
    chosen = {test for test in includes if test.parent in folders}
    return chosen | closure({name for path in changed for name in (path, path.with_suffix(".h"))}, includes)


def imported(path):
    """The first names of the modules that a Python file imports."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}


def integration_tests(changed):
    folder = pathlib.PurePath("tests/integration")
    imports = {path.stem: imported(path) for path in (ROOT / folder).glob("*.py")}
    modules = closure({path.stem for path in changed if path.parent == folder and path.suffix == ".py"}, imports)
    return sorted(str(folder / f"{name}.py") for name in modules & imports.keys() if name.startswith("test_"))


def main():
    base, programs = sys.argv[1:]
    changed = changed_files(base)
    if not changed:
        print(f"left everything: nothing differs from {base}; --changed BASE names another commit")
    by_file = {pathlib.PurePath(line.split()[2]): line.split()[1] for line in pathlib.Path(programs).read_text().splitlines()}
    cpp = [path for path in changed if path.suffix in CPP and path.parts[0] in ("posenc", "server", "tools", "tests")]
    tests = cpp_tests(cpp)
    chosen = {by_file[path] for path in tests if path in by_file}
    for name in sorted(chosen):
        print("program", name)
    all_programs = set(by_file.values())
    print(f"left {len(all_programs - chosen)} of {len(all_programs)} C++ programs")
    files = integration_tests(changed)
    if len(files) > MAX_FILES:
        print(f"left {len(files)} files of integration tests that import what changed")
    served = [path for path in changed if path.parts[0] in SERVED]
    smoke = [f"tests/integration/test_{name}.py" for name in SMOKE] if served or len(files) > MAX_FILES else []
    for name in sorted({*smoke, *(files if len(files) <= MAX_FILES else [])}):
        print("integration", name)
    package = [path for path in changed if path.parts[:2] == ("client", "python")]
    if package:
        print("package yes")
    others = [str(path) for path in changed
              if path not in (*cpp, *served, *package) and path.parts[:2] != ("tests", "integration")]
    if others:
        print(f"left what these concern: {', '.join(others)}")


if __name__ == "__main__":
    main()

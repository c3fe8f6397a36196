"""Counts the tests of one run of scripts/test: every case of every program, once.

Reads in the given directory: programs/*.xml (GoogleTest), ctest.xml (all programs), integration.xml and package.xml
(pytest) and reports/ (sanitizers). A program without cases, because it crashed or does not use GoogleTest, counts as one
test. Reads each directory under arm64/ (scripts/test-arm) in the same way and puts its name before those of its cases.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def read_cases(path):
    """Yields (name, outcome, text) for each case; the outcome is passed, failed or skipped."""
    for case in ElementTree.parse(path).iter("testcase"):
        name = f'{case.get("classname", "")}.{case.get("name")}'.lstrip(".")
        failures = case.findall("failure") + case.findall("error")
        skipped = case.find("skipped")
        if failures:
            yield name, "failed", "\n".join(f.text or f.get("message", "") for f in failures)
        elif skipped is not None:
            yield name, "skipped", skipped.get("message") or skipped.text or "no reason given"
        elif case.get("status") in ("notrun", "disabled"):
            yield name, "skipped", "disabled"
        else:
            yield name, "passed", ""


def collect(results):
    cases = []
    for outcome in ("failed", "skipped"):  # each gives the reason why there are no results
        if (results / outcome).exists():
            cases.append(("no results", outcome, (results / outcome).read_text()))
    if (results / "ctest.xml").exists():
        for case in ElementTree.parse(results / "ctest.xml").iter("testcase"):
            program = case.get("name")
            try:
                found = list(read_cases(results / "programs" / f"{program}.xml"))
            except (OSError, ElementTree.ParseError):
                found = []
            if case.get("status") == "notrun" and case.findtext("system-out"):  # without output, the program is missing
                cases.append((program, "skipped", case.findtext("system-out")))
                continue
            succeeded = case.get("status") == "run"
            if not found or (not succeeded and all(outcome != "failed" for _, outcome, _ in found)):
                output = case.findtext("system-out") or case.get("status")
                found.append((program, "passed" if succeeded else "failed", output))
            cases += [(f"{program}: {name}", outcome, text) for name, outcome, text in found]
    elif (results / "ctest.log").exists():
        cases.append(("ctest", "failed", (results / "ctest.log").read_text()))
    for name in ("integration", "package"):
        if (reason := results / f"{name}.skipped").exists():
            cases.append((f"{name} tests", "skipped", reason.read_text()))
        if (log := results / f"{name}.log").exists():
            try:
                cases += read_cases(results / f"{name}.xml")
            except (OSError, ElementTree.ParseError):
                cases.append((f"{name} tests", "failed", log.read_text()))
    for path in sorted((results / "reports").glob("*")):
        cases.append((f"sanitizer: {path.name}", "failed", "\n".join(path.read_text(errors="replace").splitlines()[:40])))
    return cases or [("no results", "failed", f"{results} holds no cases")]


def count(cases, outcome):
    return sum(1 for case in cases if case[1] == outcome)


def tally(cases):
    skipped = f', {count(cases, "skipped")} skipped' if count(cases, "skipped") else ""
    return f'{count(cases, "passed")} passed, {count(cases, "failed")} failed{skipped}'


def main():
    results = pathlib.Path(sys.argv[1])
    parts = sorted((results / "arm64").glob("*/"))
    cases = [] if parts else collect(results)
    for part in parts:
        found = [(f"arm64, {part.name}: {name}", outcome, text) for name, outcome, text in collect(part)]
        print(f"arm64, {part.name}: {tally(found)}")
        cases += found
    for name, outcome, text in cases:
        if outcome == "skipped":
            print(f"skipped {name}: {' '.join(text.split())}")
    failures = {name: text.strip().splitlines() for name, outcome, text in cases if outcome == "failed"}
    for name, lines in failures.items():
        print(f"\nFAILED {name}", *("    " + line for line in lines[-40:]), sep="\n")
    if failures:
        print(f"\nComplete output: {results}", *(f"failed {name}" for name in failures), sep="\n")
    print(tally(cases))
    return 1 if count(cases, "failed") or not count(cases, "passed") else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
"""Prints how many lines of posenc/ and server/ the last run of scripts/test --coverage ran: coverage.py BUILD_DIR

Lists the directories, then the files with the most lines not run. BUILD_DIR/coverage.html shows each line.
"""

import collections
import json
import subprocess
import sys

ROOMS = ("posenc", "server")
WORST = 12


def measure(build):
    """Returns gcovr's summary: a dict of filename, line_total and line_covered for each file."""
    command = ["/usr/bin/gcovr", "--root", ".", "--object-directory", build, "-j", "2"]
    command += [f"--filter={room}/" for room in ROOMS]
    command += ["--json-summary", f"{build}/coverage.json", "--html-details", f"{build}/coverage.html", build]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(f"{build}/coverage.json") as file:
        return json.load(file)["files"]


def show(covered, total, name):
    print(f"{100 * covered / max(total, 1):6.1f} %  {total - covered:5} of {total:5} lines not run  {name}")


def main():
    build = sys.argv[1]
    files = measure(build)
    rooms = collections.defaultdict(lambda: [0, 0])
    for file in files:
        parts = file["filename"].split("/")
        for room in ("/".join(parts[:-1]), "together"):
            rooms[room][0] += file["line_covered"]
            rooms[room][1] += file["line_total"]
    for name in sorted(rooms, key=lambda name: (name == "together", name)):
        show(*rooms[name], name)
    print("Most lines not run:")
    for file in sorted(files, key=lambda file: file["line_covered"] - file["line_total"])[:WORST]:
        show(file["line_covered"], file["line_total"], file["filename"])
    print(f"Line by line: {build}/coverage.html")


if __name__ == "__main__":
    main()

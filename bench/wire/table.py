"""Starts posenc's server and those that it is compared with, lets posenc-bench-wire call them in turn, and prints the
results. scripts/bench --wire runs this."""

import collections
import contextlib
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import judge

PROGRAMS = pathlib.Path("build/release/bin")
RUNS = 9  # each starts new servers: where a process's memory lies changes a call of 4 MiB by up to a third


@contextlib.contextmanager
def serving(command, port_file):
    """Runs the server and yields its address and the process."""
    process = subprocess.Popen([*command, "--port-file", port_file], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not (port_file.exists() and port_file.read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"bench: {command[0]} did not start")
            time.sleep(0.01)
        yield f"127.0.0.1:{port_file.read_text().strip()}", process.pid
    finally:
        process.terminate()
        process.wait()


def measure(quick, pattern):
    """Returns the rows of all runs: `ratios` is a list per run, of a ratio per round; figures are medians."""
    runs, count = collections.defaultdict(list), 3 if quick else RUNS
    for number in range(count):
        print(f"Round {number + 1} of {count} ...", flush=True)
        for row in run(quick, pattern):
            runs[judge.key(row)].append(row)
    return [{**rows[0], "ratios": [row["ratios"] for row in rows],
             **{who: statistics.median(row[who] for row in rows) for who in ("posenc", "other")}}
            for rows in runs.values()]


def run(quick, pattern):
    program = PROGRAMS / "posenc-bench-wire"
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as servers:
        files = pathlib.Path(directory)
        certificate, key, memory = files / "certificate.pem", files / "key.pem", files / "memory.sock"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
        tls = ["--tls-cert", certificate, "--tls-key", key]
        # As many bytes in flight, and as many kept for answers, as the server that copies has.
        posenc = [PROGRAMS / "posenc-server", "--listen", "127.0.0.1:0", "--log-level", "warning",
                  "--max-in-flight-bytes", "4GiB"]
        commands = {
            "posenc": [*posenc, "--listen", f"unix:{files / 'posenc.sock'}", "--shared-memory-socket", memory,
                       "--inference-memory-prefix", "/posenc-bench-"],
            "posenc-tls": [*posenc, *tls],
            "echo": [program, "serve", "echo"],
            "copy": [program, "serve", "copy", "--unix-socket", files / "copy.sock"],
            "copy-tls": [program, "serve", "copy", *tls],
            "typed": [program, "serve", "typed"],
        }
        command = [program, "measure", *["--quick"] * quick, *(["--filter", pattern] if pattern else [])]
        command += ["--shared-memory-socket", memory, "--root-certificates", certificate]
        for name, served in commands.items():
            address, process = servers.enter_context(serving(served, files / name))
            command += ["--server", f"{name}={address}@{process}"]
            if name in ("posenc", "copy"):
                command += ["--server", f"{name}-unix=unix:{files / name}.sock@{process}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def show(rows):
    """Prints one result of posenc per line, beside the other server's. Ratios without a goal are for information."""
    table = [("case", "posenc", "", "other", "", "ratio", "95 %", "goal", "met")]
    for row in rows:
        goal = f'{"≥" if row["at_least"] else "≤"} {row["goal"]:g}' if row["goal"] else ""
        table.append((row["case"], figure(row["posenc"]), row["unit"], figure(row["other"]), row["against"],
                      f'{row["ratio"]:.2f}', "{:.2f} .. {:.2f}".format(*row["interval"]), goal,
                      judge.word(row["verdict"])))
    widths = [max(map(len, column)) for column in zip(*table)]
    for cells in table:
        aligned = (f"{cell:{'>' if n in (1, 3, 5) else '<'}{widths[n]}}" for n, cell in enumerate(cells))
        print("  ".join(aligned).rstrip())


def figure(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"

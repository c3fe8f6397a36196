"""Starts posenc's server and those that it is compared with, lets posenc-bench-wire call them in turn, and prints the
results. scripts/bench --wire runs this."""

import contextlib
import json
import pathlib
import subprocess
import tempfile
import time

PROGRAMS = pathlib.Path("build/release/bin")


@contextlib.contextmanager
def serving(command, port_file):
    """Runs the server and yields its address."""
    process = subprocess.Popen([*command, "--port-file", port_file], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"bench: {command[0]} did not start")
            time.sleep(0.01)
        yield f"127.0.0.1:{port_file.read_text().strip()}"
    finally:
        process.terminate()
        process.wait()


def measure(quick, pattern):
    program = PROGRAMS / "posenc-bench-wire"
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as servers:
        ports = pathlib.Path(directory)
        socket = str(ports / "memory.sock")
        listen = ["--listen", "127.0.0.1:0", "--log-level", "warning", "--shared-memory-socket", socket,
                  "--inference-memory-prefix", "/posenc-bench-"]
        command = [program, "measure", *["--quick"] * quick, *(["--filter", pattern] if pattern else [])]
        command += ["--shared-memory-socket", socket]
        command += ["--posenc", servers.enter_context(serving([PROGRAMS / "posenc-server", *listen], ports / "posenc"))]
        for kind in ("echo", "copy", "typed"):
            command += [f"--{kind}", servers.enter_context(serving([program, "serve", kind], ports / kind))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def show(rows):
    """Prints one result of posenc per line, beside the other server's. Ratios without a goal are for information."""
    table = [("case", "posenc", "", "other", "", "ratio", "95 %", "goal", "met")]
    for row in rows:
        goal = f'{"≥" if row["at_least"] else "≤"} {row["goal"]:g}' if row["goal"] else ""
        met = ("yes" if row["met"] else "NO") if row["goal"] else ""
        table.append((row["case"], figure(row["posenc"]), row["unit"], figure(row["other"]), row["against"],
                      f'{row["ratio"]:.2f}', "{:.2f} .. {:.2f}".format(*row["interval"]) if "interval" in row else "",
                      goal, met))
    widths = [max(map(len, column)) for column in zip(*table)]
    for cells in table:
        aligned = (f"{cell:{'>' if n in (1, 3, 5) else '<'}{widths[n]}}" for n, cell in enumerate(cells))
        print("  ".join(aligned).rstrip())


def figure(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"

"""The pipelines of examples/pipelines as their users start them, on clusters of Ray and Spark made of processes here.

scripts/test-pipelines runs them in an environment that has the engines and the package.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import posenc
import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
from server_process import ServerProcess  # noqa: E402

PYTHON = sys.executable
PIPELINES = ROOT / "examples/pipelines"
SERVER = [os.environ.get("POSENC_TEST_SERVER", ROOT / "build/release/bin/posenc-server")]
CONFIGS = ROOT / "tests/golden/configs"
LLAMA = CONFIGS / "llama-3.1-8b.json"
SECONDS = 300


def wait_until(condition, what):
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return found


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def descends(pid, from_pid):
    while pid not in (0, from_pid):
        pid = parent_of(pid)
    return pid == from_pid


def processes(pattern, parent=None):
    """The ids of these tests' processes whose command line has the pattern, and which are the parent's children."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            pid = int(folder.name)
            if re.search(pattern, line) and parent in (None, parent_of(pid)) and descends(pid, os.getpid()):
                found.append(pid)
    return found


class Job:
    """A pipeline that runs. said() waits for its end."""

    def __init__(self, directory, *command):
        self.log = directory / f"job-{time.monotonic_ns()}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=subprocess.STDOUT, cwd=directory,
                                            stdin=subprocess.DEVNULL, start_new_session=True)

    def said(self, code=0):
        try:
            assert self.process.wait(SECONDS) == code, self.log.read_text()[-6000:]
        finally:
            self.end()
        return self.log.read_text()

    def runs_until(self, condition, what):
        def ready():
            assert self.process.poll() is None, f"it ended before {what}: {self.log.read_text()[-6000:]}"
            return condition()
        return wait_until(ready, what)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def run(tmp_path):
    """Starts a pipeline: run(COMMAND...)."""
    jobs = []

    def begin(*command):
        jobs.append(Job(tmp_path, *command))
        return jobs[-1]
    yield begin
    for job in jobs:
        job.end()


def calls(address):
    """The calls that a server has begun."""
    with posenc.connect(address) as client:
        return client.info().counters.requests_started


class Servers:
    """A server at a Unix socket, which can be killed and comes back there."""

    def __init__(self, directory):
        self.directory, self.address = directory, f"unix:{directory}/server.socket"
        self.process = None
        self.start()

    def start(self):
        folder = self.directory / f"server-{time.monotonic_ns()}"
        folder.mkdir()
        self.process = ServerProcess(SERVER, folder, "--listen", self.address)

    def calls(self):
        return calls(self.address)

    def restart(self):
        self.process.kill()
        time.sleep(1)  # calls fail meanwhile
        self.start()


@pytest.fixture
def server(tmp_path):
    servers = Servers(tmp_path)
    yield servers
    servers.process.stop()


@pytest.fixture(scope="module")
def ray_address():
    with subprocess.Popen([PYTHON, pathlib.Path(__file__).with_name("ray_cluster.py")], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as cluster:
        yield cluster.stdout.readline().strip()
        cluster.stdin.close()
        cluster.wait(SECONDS)


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """Command that submits to a standalone cluster of two workers."""
    directory = tmp_path_factory.mktemp("spark")
    home = pathlib.Path(subprocess.check_output([PYTHON, "-c", "import pyspark; print(pyspark.__path__[0])"], text=True).strip())
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": PYTHON, "PYSPARK_DRIVER_PYTHON": PYTHON,
                   "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(directory / "work")}
    started = []

    def start(name, *arguments):
        log = directory / f"{name}-{len(started)}.log"
        with open(log, "wb") as out:
            started.append(subprocess.Popen([home / "bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments], env=environment,
                                            stdout=out, stderr=out, start_new_session=True))
        return log
    try:
        master = start("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        url = wait_until(lambda: re.search(r"spark://127.0.0.1:\d+", master.read_text()), "no master")[0]
        for _ in range(2):
            start("worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", url)
        wait_until(lambda: master.read_text().count("Registering worker") == 2, "no workers")
        yield ["env", *(f"{name}={environment[name]}" for name in environment if "SPARK" in name), home / "bin/spark-submit",
               "--master", url, "--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=700m"]
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def kill_one(pattern, parent=None, of=1):
    """Kills the youngest process of a job once there are so many."""
    def found():
        pids = processes(pattern, parent)
        return max(pids) if len(pids) >= of else 0
    os.kill(wait_until(found, f"no process is called {pattern}"), signal.SIGKILL)

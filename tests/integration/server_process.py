"""A posenc-server process on a free port of the loopback interface."""

import os
import pathlib
import re
import signal
import subprocess
import time

START_SECONDS = 60
STOP_SECONDS = 60
# Tests add this to limits on peak_memory(): AddressSanitizer keeps 256 MiB of freed memory, and surrounds each
# allocation with redzones.
SANITIZER_BYTES = 640 << 20 if "asan" in os.environ.get("POSENC_BUILD_DIR", "") else 0


def limited(program, mebibytes):
    """The command of a program with a limit of virtual memory. The shell sets it: subprocess's preexec_fn needs fork(), at
    which gRPC waits for its own threads, sometimes for ever."""
    return ["sh", "-c", f'ulimit -v {mebibytes << 10}; exec "$@"', "sh", *program]


def memory_of(pid, field):
    """A figure of /proc/PID/status. Bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024


class ServerProcess:
    def __init__(self, program, directory, *flags, stdout=None, **environment):
        """The log goes to `stdout`, by default to a file, which log() reads."""
        port_file = directory / "port"
        self._log_path = directory / "log"
        command = [*program, "--listen", "127.0.0.1:0", "--port-file", port_file, *flags]
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=stdout or log,
                stderr=log if stdout else subprocess.STDOUT,
                env={**os.environ, **environment})
        try:
            self.port = self._wait_for_port(port_file)
        except BaseException:
            self.kill()
            raise

    def _wait_for_port(self, port_file):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if port_file.exists():
                text = port_file.read_text()
                assert text.endswith("\n"), "the file appeared before its contents"
                return int(text)
            assert self._process.poll() is None, f"posenc-server ended: {self.log()}"
            time.sleep(0.01)
        raise AssertionError(f"posenc-server has not written its port: {self.log()}")

    @property
    def pid(self):
        return self._process.pid

    def log(self):
        return self._log_path.read_text()

    def log_with(self, text):
        """Waits until the log contains that text, and returns the log: another thread of the server writes it."""
        deadline = time.monotonic() + STOP_SECONDS
        while text not in self.log():
            assert time.monotonic() < deadline, f"{text!r} is not in the log: {self.log()}"
            time.sleep(0.005)
        return self.log()

    def peak_memory(self):
        """The largest resident memory since the start. Bytes."""
        return memory_of(self.pid, "VmHWM")

    def resident_memory(self):
        """Bytes."""
        return memory_of(self.pid, "VmRSS")

    def anonymous_memory(self):
        """Resident memory that is not backed by files. Bytes."""
        return memory_of(self.pid, "RssAnon")

    def signal(self, number):
        self._process.send_signal(number)

    def wait(self):
        """Waits until the server has ended and returns its exit code."""
        return self._process.wait(STOP_SECONDS)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def stop(self):
        """Ends the server by SIGTERM if it still runs. A crashed server fails the test, whatever its clients saw."""
        self.signal(signal.SIGTERM)
        try:
            self.wait()
        finally:
            self.kill()
        crashed = self._process.returncode < 0 and self._process.returncode != -signal.SIGKILL
        assert not crashed, f"posenc-server ended by signal {-self._process.returncode}: {self.log()}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

"""soak [--minutes N] [--callers N] | --tensor-gib N: keeps a server busy and watches its memory.
  scripts/soak               ten minutes, four callers
  scripts/soak --minutes 2   a shorter run; two minutes is the least
  scripts/soak --tensor-gib 10   instead sends one tensor of 10 GiB by StreamApplyRotary, through a server limited to
                             256 MiB in flight; cancels the stream after a third and resumes it
Each caller makes calls of all kinds in a random order, with sizes up to 64 MiB; some are wrong, cancelled or too large.
Prints the server's memory every ten seconds. After the first minute and at the end the callers pause until the idle
server has returned memory. Exits with 1 if the idle server's memory, without what its buffer pool and caches report,
has grown by more than 32 MiB since the first minute, if a call has an unexpected outcome, or if bytes are still charged
when no call is in flight."""

import argparse
import pathlib
import random
import sys
import tempfile
import threading
import time

from conftest import BUILD  # first: it makes the messages importable
import grpc
import long_tensor
import samples
from client import SECONDS, Client
from posenc.v1 import service_pb2, tensor_pb2
from server_process import ServerProcess

SLACK = 32 << 20
IDLE_SECONDS = 12  # the server returns memory after at most ten
SIZES = [1 << 10, 10 << 10, 64 << 10, 300 << 10, 1 << 20, 5 << 20, 16 << 20, 64 << 20]
WEIGHTS = [20, 20, 20, 10, 10, 4, 2, 1]
LARGEST = 96 << 20


def read_arguments():
    parser = argparse.ArgumentParser("soak", usage="see scripts/soak --help", allow_abbrev=False)
    parser.format_help = lambda: f"{__doc__}\n"
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--tensor-gib", type=float)
    arguments = parser.parse_args()
    if arguments.minutes < 2 or arguments.callers < 1:
        parser.error("--minutes is at least 2, --callers at least 1")
    return arguments


def rotation(size, theta):
    request = samples.rotary(dtype=samples.BF16, offset=theta)
    request.rotary.settings.CopyFrom(samples.rope_settings(64, 10000 + theta))
    request.q.tensor.CopyFrom(tensor_pb2.Tensor(dtype=samples.BF16, shape=[1, size // 512, 4, 64],
                                                data=bytes(size // 512 * 512)))
    return request


def table(rows):
    request = samples.table(rows)
    request.rotary.settings.CopyFrom(samples.rope_settings(64))
    return request


def bias(length):
    return samples.bias(heads=8, queries=length, keys=length)


class Caller(threading.Thread):
    """Makes calls until told to stop. `wrong` is the unexpected error that ended it, if any."""

    def __init__(self, port, seed, stop):
        super().__init__(daemon=True)
        self._client, self._random, self._enough = Client(port), random.Random(seed), stop
        self.calls, self.bytes, self.wrong = 0, 0, None

    def run(self):
        try:
            while not self._enough.is_set():
                self.call()
                self.calls += 1
        except Exception as error:
            self.wrong = error
            self._enough.set()

    def call(self):
        kind = self._random.choices(["rotate", "table", "stream", "bias", "wrong", "cancel", "huge"],
                                    [70, 8, 4, 8, 8, 4, 1])[0]
        size = self._random.choices(SIZES, WEIGHTS)[0]
        if kind == "rotate":
            answer = self.patient("ApplyRotary", rotation(size, self._random.randrange(50)))
            self.bytes += len(answer.q.data)
        elif kind == "table":
            self.bytes += len(self.patient("GenerateTable", table(min(size, 1 << 20) // 128)).cos.data)
        elif kind == "stream":
            request = service_pb2.StreamTableRequest(table=table(min(size, 16 << 20) // 128))
            for tile in self._client.method("StreamTable")(request, timeout=SECONDS):
                self.bytes += len(tile.cos.data)
        elif kind == "bias":
            self.bytes += len(self.patient("GenerateBias", bias(self._random.choice([1, 64, 500, 1500]))).bias.data)
        elif kind == "wrong":
            request = rotation(min(size, 1 << 20), 1)
            request.q.tensor.shape[1] += 1
            self.expect(grpc.StatusCode.INVALID_ARGUMENT, "ApplyRotary", request)
        elif kind == "cancel":
            call = self._client.method("ApplyRotary").future(rotation(size, 2), timeout=SECONDS)
            time.sleep(self._random.random() / 100)
            call.cancel()
        else:
            self.expect(grpc.StatusCode.RESOURCE_EXHAUSTED, "ApplyRotary", rotation(LARGEST, 3))

    def patient(self, method, request):
        """Repeats a call that an overloaded server refuses."""
        while True:
            try:
                return self._client.method(method)(request, timeout=SECONDS)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                time.sleep(0.1)

    def expect(self, code, method, request):
        try:
            self.patient(method, request)
        except grpc.RpcError as error:
            assert error.code() == code, f"{method}: {error.code()} instead of {code}: {error.details()}"
        else:
            raise AssertionError(f"{method}: OK instead of {code}")


def keep_busy(server, seconds, seeds):
    """Runs the callers for `seconds` and returns their unexpected errors."""
    stop = threading.Event()
    callers = [Caller(server.port, seed, stop) for seed in seeds]
    for caller in callers:
        caller.start()
    begin, peak, ten = time.monotonic(), 0, 1
    while not stop.wait(0.2) and time.monotonic() - begin < seconds:
        peak = max(peak, server.resident_memory())
        if time.monotonic() - begin > 10 * ten:
            calls, moved = sum(c.calls for c in callers), sum(c.bytes for c in callers)
            print(f"{10 * ten:5} s  {peak >> 20:5} MiB  {calls:7} calls  {moved / 1e9:7.1f} GB", flush=True)
            peak, ten = 0, ten + 1
    stop.set()
    for caller in callers:
        caller.join(SECONDS)
    return [caller.wrong for caller in callers if caller.wrong is not None]


def main():
    arguments = read_arguments()
    if arguments.tensor_gib is not None:
        return long_tensor.run(arguments.tensor_gib)
    flags = ["--max-request-bytes", "80MiB", "--max-output-bytes", "80MiB", "--max-in-flight-bytes", "512MiB",
             "--log-level", "error"]
    wrong, idle = [], []
    with (tempfile.TemporaryDirectory() as directory,
          ServerProcess([BUILD / "bin/posenc-server"], pathlib.Path(directory), *flags) as server):
        for number, seconds in enumerate((60, 60 * arguments.minutes - 60)):
            wrong += keep_busy(server, seconds, [number * 1000 + seed for seed in range(arguments.callers)])
            counters = Client(server.port).when_idle()
            time.sleep(IDLE_SECONDS)
            resident = server.resident_memory()
            pool, caches = counters.answer_pool.bytes, counters.plan_cache.bytes + counters.table_cache.bytes
            idle.append(resident - pool - caches)
            print(f"idle     {resident >> 20:5} MiB, of it {pool >> 20} in the pool of answers and {caches >> 20} in caches",
                  flush=True)
    print(f"{counters.requests_started} calls, {counters.requests_failed} failed, {counters.requests_refused} refused")
    if idle[-1] > idle[0] + SLACK:
        wrong.append(f"memory has grown by {(idle[-1] - idle[0]) >> 20} MiB")
    for what in wrong:
        print(f"soak: {what}", file=sys.stderr)
    print("soak failed" if wrong else "soak passed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

"""soak [--minutes N | --hours N] [--callers N] | --tensor-gib N: keeps a server busy and watches its memory.
  scripts/soak               ten minutes, four callers
  scripts/soak --minutes 2   a shorter run; two minutes is the least
  scripts/soak --hours 1     a longer one
  scripts/soak --tensor-gib 10   instead sends one tensor of 10 GiB by StreamApplyRotary, through a server limited to
                             256 MiB in flight; cancels the stream after a third and resumes it
Each caller makes calls of all kinds in a random order, with sizes up to 64 MiB, in messages, streams and shared memory;
some are wrong, cancelled, too large, or have slow values. Some connections vanish within a call, stay silent, or do not
read. Prints the server's memory every ten seconds. After the first minute and then five times at equal intervals the
callers pause until the idle server has returned memory. The last figure is the slope: how fast the idle server's
memory, without what its buffer pool and caches report, has grown since the first minute. Exits with 1 if it has grown by
more than 32 MiB, if a call has an unexpected outcome, or if bytes, calls or regions are left when all callers have gone."""

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
import shared_memory
from bare_http2 import ShutWindow
from client import APART, SECONDS, Client
from posenc.v1 import rotary_pb2, service_pb2, tensor_pb2
from server_process import ServerProcess

SLACK = 32 << 20
IDLE_SECONDS = 12  # the server returns memory after at most ten
SIZES = [1 << 10, 10 << 10, 64 << 10, 300 << 10, 1 << 20, 5 << 20, 16 << 20, 64 << 20]
WEIGHTS = [20, 20, 20, 10, 10, 4, 2, 1]
LARGEST = 96 << 20
PAUSES = 5
SHARED_BYTES = 4 << 20
KINDS = {"rotate": 60, "table": 8, "stream": 4, "bias": 8, "xpos": 4, "rotary_stream": 6, "shared": 8, "wrong": 8,
         "cancel": 4, "huge": 1, "vanish": 3, "silent": 2, "unread": 2}


def read_arguments():
    parser = argparse.ArgumentParser("soak", usage="see scripts/soak --help", allow_abbrev=False)
    parser.format_help = lambda: f"{__doc__}\n"
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--hours", type=float)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--tensor-gib", type=float)
    arguments = parser.parse_args()
    if arguments.hours is not None:
        arguments.minutes = 60 * arguments.hours
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


def xpos_table(rows):
    request = samples.table(rows, dtype=samples.FP64)
    request.rotary.settings.xpos.CopyFrom(rotary_pb2.Xpos(scale_base=512, centre=100))
    request.operand = rotary_pb2.OPERAND_KEY
    return request


def bias(length):
    return samples.bias(heads=8, queries=length, keys=length)


class Caller(threading.Thread):
    """Makes calls until told to stop. `wrong` is the unexpected error that ended it, if any."""

    def __init__(self, port, socket_path, seed, stop):
        super().__init__(daemon=True)
        self._port, self._random, self._enough = port, random.Random(seed), stop
        self._client = Client(port, APART)
        self._side = shared_memory.Side(socket_path)
        self._memory = self._side.memory(2 * SHARED_BYTES)
        self._held = []  # connections that are silent, or do not read
        self.calls, self.bytes, self.wrong = 0, 0, None

    def run(self):
        try:
            while not self._enough.is_set():
                self.call()
                self.calls += 1
        except Exception as error:
            self.wrong = error
            self._enough.set()
        for connection in self._held:
            connection.socket.close()
        self._side.close()
        self._client.channel.close()

    def call(self):
        kind = self._random.choices(list(KINDS), list(KINDS.values()))[0]
        size = self._random.choices(SIZES, WEIGHTS)[0]
        if kind in ("vanish", "silent", "unread"):
            return self.misbehave(kind)
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
        elif kind == "xpos":
            self.bytes += len(self.patient("GenerateTable", xpos_table(min(size, 64 << 10) // 128)).cos.data)
        elif kind == "rotary_stream":
            self.bytes += self.stream_rotation(min(size, 16 << 20))
        elif kind == "shared":
            request = rotation(min(size, SHARED_BYTES), 4)
            count = len(request.q.tensor.data)
            request.q.tensor.ClearField("data")
            request.q.tensor.region.CopyFrom(self._memory.part(0, count))
            request.q.output.CopyFrom(self._memory.part(SHARED_BYTES, count))
            self.patient("ApplyRotary", request)
            self.bytes += count
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

    def stream_rotation(self, size):
        """Rotates a tensor in chunks and returns the bytes of the answer."""
        header = rotation(size, 5)
        data = header.q.tensor.data
        header.q.tensor.ClearField("data")
        step = self._random.choice((64 << 10, 1 << 20))
        chunks = [tensor_pb2.TensorChunk(byte_offset=at, data=data[at:at + step]) for at in range(0, len(data), step)]
        messages = [service_pb2.StreamApplyRotaryRequest(header=header)] + [
            service_pb2.StreamApplyRotaryRequest(chunk=service_pb2.RotaryChunk(operand=rotary_pb2.OPERAND_QUERY, rows=rows))
            for rows in chunks]
        while True:
            try:
                answers = list(self._client.method("StreamApplyRotary")(iter(messages), timeout=SECONDS))
                return sum(len(answer.chunk.rows.data) for answer in answers)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                time.sleep(0.1)

    def misbehave(self, kind):
        """Opens a connection that vanishes within a call, or stays: silent, or with an answer that it does not read."""
        connection = ShutWindow(self._port)
        if kind == "silent":
            connection.begin("StreamApplyRotary")
        else:
            connection.call("GenerateTable", table(10_000))
        connection.flush()
        if kind == "vanish":
            return connection.socket.close()
        self._held.append(connection)
        if len(self._held) > 8:
            self._held.pop(0).socket.close()

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


def keep_busy(server, socket_path, seconds, seeds):
    """Runs the callers for `seconds` and returns their unexpected errors."""
    stop = threading.Event()
    callers = [Caller(server.port, socket_path, seed, stop) for seed in seeds]
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


def measure_idle(server):
    """Returns the counters of an idle server, and its resident memory without what the counters report."""
    with Client(server.port, APART) as client:
        client.when_idle()
        time.sleep(IDLE_SECONDS)
        counters = client.info().counters
    resident = server.resident_memory()
    pool, caches = counters.answer_pool.bytes, counters.plan_cache.bytes + counters.table_cache.bytes
    print(f"idle     {resident >> 20:5} MiB, of it {pool >> 20} in the pool of answers and {caches >> 20} in caches",
          flush=True)
    return counters, resident - pool - caches


def main():
    arguments = read_arguments()
    if arguments.tensor_gib is not None:
        return long_tensor.run(arguments.tensor_gib)
    wrong, idle, stretch = [], [], (60 * arguments.minutes - 60) / PAUSES
    with tempfile.TemporaryDirectory() as directory:
        socket_path = pathlib.Path(directory) / "side"
        flags = ["--max-request-bytes", "80MiB", "--max-output-bytes", "80MiB", "--max-in-flight-bytes", "512MiB",
                 "--log-level", "error", "--shared-memory-socket", socket_path]
        with ServerProcess([BUILD / "bin/posenc-server"], pathlib.Path(directory), *flags) as server:
            for number, seconds in enumerate([60] + [stretch] * PAUSES):
                seeds = [number * 1000 + seed for seed in range(arguments.callers)]
                wrong += keep_busy(server, socket_path, seconds, seeds)
                counters, memory = measure_idle(server)
                idle.append(memory)
                if counters.open_connections > 1 or counters.regions > 0:
                    wrong.append(f"{counters.open_connections} connections and {counters.regions} regions are left")
                if wrong:
                    break
    print(f"{counters.requests_started} calls, {counters.requests_failed} failed, {counters.requests_refused} refused")
    hours = stretch * PAUSES / 3600
    print(f"slope: {(idle[-1] - idle[0]) / (1 << 20) / hours:+.1f} MiB an hour, over {hours:.2f} hours")
    if idle[-1] > idle[0] + SLACK:
        wrong.append(f"memory has grown by {(idle[-1] - idle[0]) >> 20} MiB")
    for what in wrong:
        print(f"soak: {what}", file=sys.stderr)
    print("soak failed" if wrong else "soak passed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

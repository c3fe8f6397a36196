"""Measures other libraries on posenc-bench's cases: peers.py THREADS, with one line of JSON per case on standard input.

Prints a line of JSON for each peer and case: {"peer", "case", "seconds", "copy_seconds"}, or {"peer", "case", "why"} if
the peer does not support the case. copy_seconds is the time of libc's memcpy of the case's bytes in one thread,
measured in turn with the peer, so that speeds from different processes can be compared.
"""

import ctypes
import importlib
import json
import statistics
import sys
import time

import numpy
from work import Unsupported, prepare_work

MODULES = ("torch_rotary", "torch_tables", "onnxruntime_rotary", "ggml_rotary")
SAMPLES = 5
SAMPLE_SECONDS = 2e-3  # long enough for the clock, and to replace what the previous function left in the caches


class Copy:
    """libc's memcpy of `size` bytes between buffers whose pages are mapped."""

    def __init__(self, size):
        self.buffers = [numpy.ones(size, "u1"), numpy.ones(size, "u1")]
        self.memcpy = ctypes.CDLL(None).memcpy
        self.arguments = [ctypes.c_void_p(buffer.ctypes.data) for buffer in self.buffers]
        self.size, self.nothing = ctypes.c_size_t(size), ctypes.c_size_t(0)

    def run(self):
        self.memcpy(*self.arguments, self.size)

    def call_only(self):
        """Copies nothing. A call from Python costs much compared with copying 64 KiB."""
        self.memcpy(*self.arguments, self.nothing)


def seconds_of(run, times):
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def times_for(run):
    run()
    return max(1, int(SAMPLE_SECONDS / seconds_of(run, 1)))


def measure(run, copy):
    """Returns the median times of both, measured in turn."""
    runs = [(function, times_for(function)) for function in (run, copy.run, copy.call_only)]
    samples = [[seconds_of(function, times) for function, times in runs] for _ in range(SAMPLES)]
    peer, copied, called = (statistics.median(column) for column in zip(*samples))
    return {"seconds": peer, "copy_seconds": copied - called}


def main():
    threads = int(sys.argv[1])
    modules = []
    for name in MODULES:
        module = importlib.import_module(name)
        module.start(threads)
        modules.append(module)
    for line in sys.stdin:
        case = json.loads(line)
        work, copy = prepare_work(case), Copy(case["bytes"])
        for module in modules:
            for name, prepare in module.PEERS.get(case["work"], {}).items():
                said = {"peer": name, "case": case["case"]}
                try:
                    run, check = prepare(work)
                    check()
                    said.update(measure(run, copy))
                except Unsupported as error:
                    said["why"] = str(error)
                print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()

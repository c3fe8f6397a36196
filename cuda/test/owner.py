"""owner.py HELPERS BYTES: a process that has memory on the device. Reads what to put there, writes the handle, and for
each byte that it reads then what is there; ends when there is none."""

import ctypes
import sys

import numpy

from plugin import DeviceMemory

array = numpy.frombuffer(sys.stdin.buffer.read(int(sys.argv[2])), "u1")
with DeviceMemory(ctypes.CDLL(sys.argv[1]), array) as memory:
    sys.stdout.buffer.write(bytes(memory.share().bytes))
    sys.stdout.buffer.flush()
    while sys.stdin.buffer.read(1):
        sys.stdout.buffer.write(memory.read().tobytes())
        sys.stdout.buffer.flush()

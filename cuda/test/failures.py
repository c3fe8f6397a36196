"""failures.py PLUGIN HELPERS: what a plugin answers when something goes wrong, and calls at once. Ends with one line,
"N passed, N failed".

HELPERS is the library with cuda/test/device_memory.cc. Where both are one, it is that of cuda/test/host, which needs no
GPU, and in which every call of CUDA's is made to fail in turn.
"""

import concurrent.futures
import ctypes
import sys
from ctypes import byref, c_uint64, c_void_p

import numpy

import larger
from cases import Finisher, table_of
from faults import fails_well, stays_lost, survives_an_unknown_handle
from plugin import (BAD_HANDLE, DTYPES, OUT_OF_MEMORY, UNSUPPORTED, Bias, Handle, Plugin, Rotate, Table, address, pieces, run,
                    whole)
from rotation import Rotation, refusal
from sharing import SharedByAProcess, SharedByTheHost


def refuses_too_much(plugin):
    too_large = numpy.zeros(plugin.describe().slab_bytes + 8 * 64, "u1")
    rotation = Rotation(head_dim=16, heads=too_large.size // (8 * 64))
    rotation.work.x = rotation.work.y = whole(too_large)
    assert refusal(plugin, "rotate", byref(rotation.work)) == UNSUPPORTED
    bias = Bias(queries=1, keys=too_large.size // 4, fill=1, out=whole(too_large))
    assert refusal(plugin, "bias", byref(bias)) == UNSUPPORTED
    bias = Bias(queries=(1 << 20) + 1, keys=1, fill=1, out=pieces((too_large, 0, ((1 << 20) + 1) * 4)))
    assert refusal(plugin, "bias", byref(bias)) == UNSUPPORTED
    positions, inv_freq = numpy.zeros(too_large.size // 512), numpy.zeros(64)
    table = table_of(positions, inv_freq, "exact", "FP32")
    assert refusal(plugin, "table", byref(table), address(too_large), address(too_large)) == UNSUPPORTED
    assert not too_large.any()


def takes_a_whole_slab(plugin):
    """All that one call can have, as a bias, which has least beside it."""
    out = numpy.full(plugin.describe().slab_bytes // 4, 7, "<f4")
    plugin.call("bias", byref(Bias(queries=8, keys=out.size // 8, out=whole(out))))
    assert not out.any()


def refuses_pieces_of_another_size(plugin):
    rotation = Rotation()
    rotation.work.x = pieces((rotation.x, 0, rotation.x.nbytes - 4))
    assert refusal(plugin, "rotate", byref(rotation.work)) == UNSUPPORTED and rotation.untouched()


def refuses_devices_that_are_not(plugin):
    rotation = Rotation()
    assert refusal(plugin, "rotate", byref(rotation.work), device=plugin.functions.devices) == UNSUPPORTED
    assert rotation.untouched()


def refuses_what_mpfr_would_take_long_for(plugin):
    positions, inv_freq = numpy.full(400, 2.0**70), numpy.ones(100)
    finisher = Finisher("exact", "FP32", 1.0, 0)
    table = table_of(positions, inv_freq, "exact", "FP32", finisher=finisher)
    out = numpy.full(40000, 7, "<f4")
    assert refusal(plugin, "table", byref(table), address(out), address(out)) == UNSUPPORTED
    assert (out == 7).all() and finisher.calls == 0


def does_nothing_for_nothing(plugin):
    for work in (Rotate(tokens=0, heads=3), Rotate(tokens=3, heads=0)):
        plugin.call("rotate", byref(work))
    plugin.call("bias", byref(Bias(queries=0, keys=4)))
    plugin.call("table", byref(Table(rows=0, pairs=4)), None, None)


def opens_no_bad_handle(plugin):
    handle, memory = Handle((ctypes.c_uint8 * 64)(*range(64))), c_void_p()
    assert refusal(plugin, "open_memory", byref(handle), c_uint64(16), byref(memory)) == BAD_HANDLE
    assert refusal(plugin, "close_memory", c_void_p(4096)) == BAD_HANDLE
    Rotation().run(plugin)  # nothing of it is left


def rotates_foreign_memory(plugin, share):
    """`share` is a context that gives (handle, function that reads the memory) of a copy of an array."""
    rotation = Rotation()
    expected = rotation.run(plugin).tobytes()
    with share(rotation.x) as (handle, read):
        count = rotation.x.nbytes
        first, second = plugin.open_memory(handle, count), plugin.open_memory(handle, count)
        assert first == second
        too_long = c_uint64(1 << 40)
        assert refusal(plugin, "open_memory", byref(handle), too_long, byref(c_void_p())) == BAD_HANDLE
        tensor = whole(rotation.x)
        tensor.device = first
        Rotation(tensor).run(plugin)
        assert read() == expected
        plugin.call("close_memory", c_void_p(first))
        plugin.call("close_memory", c_void_p(first))
        assert refusal(plugin, "close_memory", c_void_p(first)) == BAD_HANDLE
        plugin.call("close_memory", c_void_p(plugin.open_memory(handle, count)))  # once more from the beginning


def overlaps_calls(plugin):
    """More threads than slots, with works of every kind that take different times."""
    def one(number):
        if number % 3 == 0:
            return larger.bias(plugin, "BF16", stride=-1, queries=50 + number, keys=2000)
        return larger.rotation(plugin, "FP16", "FP32", "exact", tokens=10 + number % 5, heads=700, pairs=8)
    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        assert all(expected == actual for expected, actual in threads.map(one, range(48)))


def survives_exhausted_memory(plugin):
    """With all of the device's memory taken, calls fail, and succeed again when it is back."""
    taken, size = [], 1 << 33
    assert larger_rotation(plugin) is None
    while size >= 1 << 20:
        pointer = c_void_p()
        if plugin.helpers.posenc_test_allocate(byref(pointer), ctypes.c_size_t(size)) == 0:
            taken.append(pointer)
        else:
            size //= 2
    status = larger_rotation(plugin)
    for pointer in taken:
        assert plugin.helpers.posenc_test_free(pointer) == 0
    assert status == OUT_OF_MEMORY, status
    assert larger_rotation(plugin) is None


def larger_rotation(plugin):
    """A slab whose table needs four times as much: more than a plugin keeps. The status, or None."""
    tokens = plugin.describe().slab_bytes // 32
    positions, inv_freq = numpy.arange(tokens, dtype="<f8"), 0.5 ** numpy.arange(8.0)
    slab = numpy.zeros(16 * tokens, "<u2")
    finisher = Finisher("exact", "FP64", 1.0, 0)
    work = Rotate(dtype=DTYPES["BF16"], head_dim=16, half_split_parts=1, tokens=tokens, heads=1,
                  table=table_of(positions, inv_freq, "exact", "FP64", finisher=finisher), x=whole(slab), y=whole(slab))
    return refusal(plugin, "rotate", byref(work))


def main():
    plugin = Plugin(*sys.argv[1:])
    on_host = sys.argv[1] == sys.argv[2]

    def foreign(plugin):
        rotates_foreign_memory(plugin, lambda array: (
            SharedByTheHost(plugin.helpers, array) if on_host else SharedByAProcess(sys.argv[2], array)))
    tests = [refuses_too_much, takes_a_whole_slab, refuses_pieces_of_another_size, refuses_devices_that_are_not,
             refuses_what_mpfr_would_take_long_for, does_nothing_for_nothing, opens_no_bad_handle, foreign,
             overlaps_calls,
             *([fails_well, survives_an_unknown_handle, stays_lost] if on_host else [survives_exhausted_memory])]
    return run(tests, plugin)


if __name__ == "__main__":
    sys.exit(main())

"""Where the host stands in for a device (cuda/test/host): calls of CUDA's that fail when the test wants."""

import ctypes
from ctypes import byref

from plugin import BAD_HANDLE, DEVICE_LOST, OUT_OF_MEMORY, UNSUPPORTED, Handle
from rotation import Rotation, refusal

CUDA_OUT_OF_MEMORY, CUDA_INVALID_VALUE, CUDA_ILLEGAL_ADDRESS, CUDA_UNKNOWN = 2, 1, 700, 999


def fails_well(plugin):
    """Every call of CUDA's fails once, in each way, and nothing remains of it."""
    library = plugin.helpers
    for error, status in ((CUDA_OUT_OF_MEMORY, OUT_OF_MEMORY), (CUDA_INVALID_VALUE, UNSUPPORTED)):
        failed = 0
        for call in range(1000):
            before, rotation = library.posenc_host_allocations(), Rotation()
            rotation.positions[3] = 2.0**70  # so that entries are patched
            library.posenc_host_fail(ctypes.c_long(call), error, 0)
            refused = refusal(plugin, "rotate", byref(rotation.work))
            made = library.posenc_host_calls()
            library.posenc_host_fail(ctypes.c_long(-1), 0, 0)
            assert library.posenc_host_allocations() == before, "memory is left"
            if call >= made:
                break
            assert refused in (status, None)
            assert rotation.untouched() == (refused is not None), "written, though it failed"
            failed += refused is not None
            expected, actual = Rotation().run(plugin), Rotation().run(plugin)
            assert (expected == actual).all()
        assert failed > 10


def survives_an_unknown_handle(plugin):
    """A caller's handle does not withdraw the device, even if CUDA does not know why it cannot be opened."""
    plugin.helpers.posenc_host_fail(ctypes.c_long(1), CUDA_UNKNOWN, 0)  # the first call chooses the device
    assert refusal(plugin, "open_memory", byref(Handle()), ctypes.c_uint64(16), byref(ctypes.c_void_p())) == BAD_HANDLE
    plugin.helpers.posenc_host_fail(ctypes.c_long(-1), 0, 0)
    Rotation().run(plugin)


def stays_lost(plugin):
    """The last test: after an error that CUDA does not recover from, nothing is tried any more."""
    rotation = Rotation()
    plugin.helpers.posenc_host_fail(ctypes.c_long(9), CUDA_ILLEGAL_ADDRESS, 0)
    assert refusal(plugin, "rotate", byref(rotation.work)) == DEVICE_LOST and rotation.untouched()
    plugin.helpers.posenc_host_fail(ctypes.c_long(-1), 0, 0)
    assert refusal(plugin, "rotate", byref(rotation.work)) == DEVICE_LOST and rotation.untouched()

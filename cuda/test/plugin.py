"""posenc/device/plugin_abi.h for Python, a plugin that is loaded, and memory of its device."""

import ctypes
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_double, c_float, c_int32, c_int64, c_size_t, c_uint8,
                    c_uint32, c_uint64, c_void_p)

import numpy

ABI = 2
OK, OUT_OF_MEMORY, BAD_HANDLE, UNSUPPORTED, DEVICE_LOST = range(5)
DTYPES = {"FP32": 0, "FP16": 1, "BF16": 2, "FP64": 3}
SIZES = {"FP32": 4, "FP16": 2, "BF16": 2, "FP64": 8}
PAIRINGS = {"interleaved": 0, "half-split": 1}
ROUNDINGS = {"once": 0, "each": 1}
FREQUENCIES = {"exact": 0, "float64": 1, "float32": 2}


class Error(Structure):
    _fields_ = [("status", c_int32), ("message", c_char * 252)]


class DeviceInfo(Structure):
    _fields_ = [("family", c_char * 16), ("name", c_char * 128), ("memory_bytes", c_uint64), ("slab_bytes", c_uint64),
                ("calls_at_once", c_uint32)]


class Piece(Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_uint64)]


class Tensor(Structure):
    _fields_ = [("pieces", POINTER(Piece)), ("count", c_uint64), ("device", c_void_p)]


class Table(Structure):
    pass


FINISH = CFUNCTYPE(None, POINTER(Table), c_double, c_double, POINTER(c_double), POINTER(c_double))
Table._fields_ = [("rows", c_uint64), ("pairs", c_uint64), ("dtype", c_uint32), ("cos", c_void_p), ("sin", c_void_p),
                  ("frequencies", c_uint32), ("positions", c_void_p), ("axes", c_uint64), ("inv_freq", c_void_p),
                  ("axis", c_void_p), ("scale", c_double), ("divide", c_uint32), ("negate_sin", c_uint32),
                  ("finish", FINISH), ("context", c_void_p)]


class Rotate(Structure):
    _fields_ = [("dtype", c_uint32), ("rounding", c_uint32), ("input_pairing", c_uint32), ("output_pairing", c_uint32),
                ("half_split_parts", c_uint64), ("head_dim", c_uint64), ("rotary_offset", c_uint64),
                ("tokens", c_uint64), ("heads", c_uint64), ("table", Table), ("heads_first", c_uint32), ("x", Tensor),
                ("y", Tensor), ("token_stride", c_uint64), ("head_stride", c_uint64)]


class Bias(Structure):
    _fields_ = [("dtype", c_uint32), ("rounding", c_uint32), ("queries", c_uint64), ("keys", c_uint64),
                ("values", c_void_p), ("value_count", c_uint64), ("first", c_double), ("cls_query", c_uint32), ("cls_key", c_uint32),
                ("query_positions", c_void_p), ("key_positions", c_void_p), ("past_slope", c_float),
                ("future_slope", c_float), ("bias_dtype", c_uint32), ("causal", c_uint32), ("bias", c_void_p),
                ("bias_stride", c_int64), ("mask_query_positions", c_void_p), ("mask_key_positions", c_void_p),
                ("prefix_end", c_double), ("window_left", c_double), ("window_right", c_double),
                ("query_documents", c_void_p), ("key_documents", c_void_p), ("key_valid", c_void_p), ("fill", c_float),
                ("zero_fully_masked_rows", c_uint32), ("scores", Tensor), ("out", Tensor)]


class Handle(Structure):
    _fields_ = [("bytes", c_uint8 * 64)]


class Functions(Structure):
    _fields_ = [("devices", c_uint32), ("version", c_char * 60),
                ("describe", CFUNCTYPE(c_int32, c_uint32, POINTER(DeviceInfo), POINTER(Error))),
                ("rotate", CFUNCTYPE(c_int32, c_uint32, POINTER(Rotate), POINTER(Error))),
                ("bias", CFUNCTYPE(c_int32, c_uint32, POINTER(Bias), POINTER(Error))),
                ("table", CFUNCTYPE(c_int32, c_uint32, POINTER(Table), c_void_p, c_void_p, POINTER(Error))),
                ("open_memory", CFUNCTYPE(c_int32, c_uint32, POINTER(Handle), c_uint64, POINTER(c_void_p),
                                          POINTER(Error))),
                ("close_memory", CFUNCTYPE(c_int32, c_uint32, c_void_p, POINTER(Error)))]


# As device_memory.cc has them: a field that is missing here would move all that follow.
STRUCTURES = (Error, DeviceInfo, Tensor, Table, Rotate, Bias, Functions)


class PluginError(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def address(array):
    """Of a numpy array's data; the array must outlive the call."""
    return None if array is None else array.ctypes.data


def pieces(*parts):
    """A tensor in the caller's memory: (array, first byte, bytes) each."""
    listed = (Piece * len(parts))(*(Piece(array.ctypes.data + first, count) for array, first, count in parts))
    return Tensor(listed, len(parts), None)


def whole(array):
    return pieces((array, 0, array.nbytes))


class Plugin:
    """`helpers` is the library with cuda/test/device_memory.cc."""

    def __init__(self, library, helpers):
        self.helpers = ctypes.CDLL(helpers)
        sizes = (c_uint64 * len(STRUCTURES)).in_dll(self.helpers, "posenc_test_sizes")
        if [*sizes] != [ctypes.sizeof(structure) for structure in STRUCTURES]:
            raise PluginError(UNSUPPORTED, "plugin.py and posenc/device/plugin_abi.h differ")
        self.library = ctypes.CDLL(library)
        abi = c_uint32.in_dll(self.library, "posenc_plugin_abi").value
        if abi != ABI:
            raise PluginError(UNSUPPORTED, f"{library} has ABI {abi}, not {ABI}")
        opening = self.library.posenc_plugin_open
        opening.restype, opening.argtypes = POINTER(Functions), [POINTER(Error)]
        error = Error()
        found = opening(byref(error))
        if not found:
            raise PluginError(error.status, error.message.decode())
        self.functions = found.contents

    def call(self, name, *arguments, device=0):
        error = Error()
        status = getattr(self.functions, name)(device, *arguments, byref(error))
        if status != OK:
            assert status == error.status and error.message, "a status without its error"
            raise PluginError(status, error.message.decode())

    def describe(self, device=0):
        info = DeviceInfo()
        self.call("describe", byref(info), device=device)
        return info

    def open_memory(self, handle, count):
        memory = c_void_p()
        self.call("open_memory", byref(handle), c_uint64(count), byref(memory))
        return memory.value


class DeviceMemory:
    """A copy of an array in memory of the device."""

    def __init__(self, helpers, array):
        self.helpers, self.bytes = helpers, array.nbytes
        self.pointer = c_void_p()
        self.check(helpers.posenc_test_allocate(byref(self.pointer), c_size_t(self.bytes)))
        self.check(helpers.posenc_test_copy_in(self.pointer, c_void_p(array.ctypes.data), c_size_t(self.bytes)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.check(self.helpers.posenc_test_free(self.pointer))

    def at(self, offset):
        return Tensor(None, 0, self.pointer.value + offset)

    def read(self):
        array = numpy.empty(self.bytes, "u1")
        self.check(self.helpers.posenc_test_copy_out(c_void_p(array.ctypes.data), self.pointer, c_size_t(self.bytes)))
        return array

    def share(self):
        handle = Handle()
        self.check(self.helpers.posenc_test_share(self.pointer, byref(handle)))
        return handle

    @staticmethod
    def check(error):
        if error != 0:
            raise RuntimeError(f"CUDA's error {error}")


def run(tests, argument):
    """Calls each test, says which failed and, last, how many; 1 if any did."""
    passed = 0
    for test in tests:
        try:
            test(argument)
            passed += 1
        except Exception as error:  # of one test, which must not hide the others
            print(f"FAILED: {test.__name__}\n    {type(error).__name__}: {error}")
    print(f"{passed} passed, {len(tests) - passed} failed")
    return int(passed < len(tests))

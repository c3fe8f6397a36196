"""ggml: runs ggml_rope_ext as a graph of one node. It takes no tables but computes each token's cosines and sines."""

import ctypes
import functools
import os
import weakref

import numpy
from work import THETA, Unsupported

TYPES = {"f32": (0, "f4"), "f16": (1, "f2")}  # GGML_TYPE_F32, GGML_TYPE_F16
INT32 = 26  # GGML_TYPE_I32
MODES = {"interleaved": 0, "half_split": 2}  # GGML_ROPE_TYPE_NORMAL, GGML_ROPE_TYPE_NEOX
threads = 1


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class Plan(ctypes.Structure):
    _fields_ = [("work_size", ctypes.c_size_t), ("work_data", ctypes.c_void_p), ("n_threads", ctypes.c_int),
                ("threadpool", ctypes.c_void_p), ("abort_callback", ctypes.c_void_p),
                ("abort_callback_data", ctypes.c_void_p), ("use_ref", ctypes.c_bool)]


def start(count):
    global threads
    threads = count


@functools.cache
def library():
    """Returns ggml's library with the used functions declared as in ggml.h."""
    directory = os.environ["GGML_DIRECTORY"]
    base = ctypes.CDLL(f"{directory}/libggml-base.so", ctypes.RTLD_GLOBAL)
    ggml = ctypes.CDLL(f"{directory}/libggml-cpu.so")
    pointer, number, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    for name, result, *arguments in (
            ("ggml_version", ctypes.c_char_p), ("ggml_init", pointer, InitParams), ("ggml_free", None, pointer),
            ("ggml_new_tensor_3d", pointer, pointer, number, *[ctypes.c_int64] * 3),
            ("ggml_new_tensor_1d", pointer, pointer, number, ctypes.c_int64), ("ggml_get_data", pointer, pointer),
            ("ggml_rope_ext", pointer, *[pointer] * 4, *[number] * 3, *[real] * 6),
            ("ggml_new_graph", pointer, pointer), ("ggml_build_forward_expand", None, pointer, pointer),
            ("ggml_graph_plan", Plan, pointer, number, pointer), ("ggml_graph_compute", number, pointer, pointer)):
        function = getattr(ggml, name) if hasattr(ggml, name) else getattr(base, name)
        function.restype, function.argtypes = result, arguments
        setattr(ggml, name, function)
    return ggml


def view(tensor, shape, dtype):
    size = numpy.prod(shape) * numpy.dtype(dtype).itemsize
    memory = (ctypes.c_byte * size).from_address(library().ggml_get_data(tensor))
    return numpy.frombuffer(memory, dtype).reshape(shape)


def prepare(work):
    if work.dtype not in TYPES:
        raise Unsupported("ggml_rope_ext takes no bf16 on CPUs")
    ggml = library()
    element, dtype = TYPES[work.dtype]
    context = ggml.ggml_init(InitParams(2 * work.x.nbytes + 4 * work.tokens + (1 << 20), None, False))
    x = ggml.ggml_new_tensor_3d(context, element, work.head_dim, work.heads, work.tokens)
    positions = ggml.ggml_new_tensor_1d(context, INT32, work.tokens)
    y = ggml.ggml_rope_ext(context, x, positions, None, work.head_dim, MODES[work.pairing], 0, THETA, 1, 0, 1, 32, 1)
    view(x, work.x.shape, dtype)[:] = work.x
    view(positions, [work.tokens], "i4")[:] = numpy.arange(work.tokens)
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, y)
    plan = ggml.ggml_graph_plan(graph, threads, None)
    scratch = ctypes.create_string_buffer(max(1, plan.work_size))
    plan.work_data = ctypes.addressof(scratch)

    def run(keeps_alive=scratch):
        ggml.ggml_graph_compute(graph, ctypes.byref(plan))

    def check():
        run()
        work.check(view(y, work.x.shape, dtype)[-1].astype("f4"))

    weakref.finalize(run, ggml.ggml_free, context)
    return run, check


PEERS = {"rotate": {f"ggml {library().ggml_version().decode()}": prepare}}

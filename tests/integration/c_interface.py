"""Calls of libposenc.so in a process of their own, so that a caller can tell a call that does not end."""

import ctypes
import os
import selectors
import struct
import subprocess
import sys

HEAD = struct.Struct("=HI")  # bytes of the name, and of the request
ANSWER = struct.Struct("=i")
BYTES = 64 << 20  # limit of a request's and of an answer's tensors
READ_MODEL = "read_model"  # beside the names of RPCs; the request is a path


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("threads", ctypes.c_size_t), ("max_request_bytes", ctypes.c_int64),
                ("max_output_bytes", ctypes.c_int64)]


class Call(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("rpc", ctypes.c_char_p), ("request", ctypes.c_char_p),
                ("request_size", ctypes.c_size_t), ("inputs", ctypes.c_void_p), ("input_count", ctypes.c_size_t),
                ("outputs", ctypes.c_void_p), ("output_count", ctypes.c_size_t), ("timeout_ns", ctypes.c_int64)]


class Answer(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("code", ctypes.c_int32)]


def serve(path):
    """Answers requests on the standard input with the codes of their calls, one after another."""
    library = ctypes.CDLL(path)
    library.posenc_create.restype = ctypes.c_void_p
    for name in ("run", "open", "next", "read_model"):
        getattr(library, f"posenc_{name}").restype = ctypes.POINTER(Answer)
    library.posenc_read_model.argtypes = [ctypes.c_char_p]
    library.posenc_close.argtypes = [ctypes.c_void_p]
    options = Options(ctypes.sizeof(Options), 2, BYTES, BYTES)
    context = ctypes.c_void_p(library.posenc_create(ctypes.byref(options)))

    def code_of(answer):
        code = answer.contents.code
        library.posenc_free(answer)
        return code

    def run(name, request):
        if name == READ_MODEL:
            return code_of(library.posenc_read_model(request))
        call = Call(ctypes.sizeof(Call), name.encode(), request, len(request))
        if not name.startswith("Stream"):
            return code_of(library.posenc_run(context, ctypes.byref(call)))
        stream = ctypes.c_void_p()
        code = code_of(library.posenc_open(context, ctypes.byref(call), ctypes.byref(stream)))
        if stream:
            code = code_of(library.posenc_next(stream, None))
        library.posenc_close(stream)
        return code

    while head := sys.stdin.buffer.read(HEAD.size):
        name, request = (sys.stdin.buffer.read(size) for size in HEAD.unpack(head))
        sys.stdout.buffer.write(ANSWER.pack(run(name.decode(), request)))
        sys.stdout.buffer.flush()


class Library:
    """The library in another process."""

    def __init__(self, path):
        self._process = subprocess.Popen([sys.executable, __file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._answers = selectors.DefaultSelector()
        self._answers.register(self._process.stdout, selectors.EVENT_READ)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def code(self, name, request, seconds):
        """Returns the call's code, or None if it has not ended in this time."""
        self._process.stdin.write(HEAD.pack(len(name), len(request)) + name.encode() + request)
        self._process.stdin.flush()
        if not self._answers.select(seconds):
            return None
        return ANSWER.unpack(os.read(self._process.stdout.fileno(), ANSWER.size))[0]

    def ended(self, seconds):
        """Waits for the process's end and returns its exit code."""
        self._process.stdin.close()
        return self._process.wait(seconds)


if __name__ == "__main__":
    serve(sys.argv[1])

"""libposenc.so by its C interface (posenc/c_api/posenc.h)."""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
import os
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from posenc.errors import CODES, DETAILS, Error, make_error

_ABI_VERSION = 1
_CALL = 9  # words of a posenc_call
_ANSWER = struct.Struct("=Qi4xQQQQQ")
_ANSWER_MEMORY = ctypes.c_char * _ANSWER.size
_TEXTS: dict[str, tuple[int, ctypes.c_char_p]] = {}  # names of RPCs and paths of tensors, with their addresses
_MOST_TEXTS = 1000


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("threads", ctypes.c_size_t), ("max_request_bytes", ctypes.c_int64),
                ("max_output_bytes", ctypes.c_int64)]


class _ErrorDetails(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("message", ctypes.c_char_p),
                *((name, ctypes.c_char_p) for name in DETAILS)]


@functools.cache
def library() -> ctypes.CDLL:
    path = os.environ.get("POSENC_LIBRARY") or str(importlib.resources.files("posenc").joinpath("libposenc.so"))
    loaded = ctypes.CDLL(path)
    loaded.posenc_abi_version.restype = ctypes.c_uint32
    if loaded.posenc_abi_version() != _ABI_VERSION:
        raise ImportError(f"{path} has ABI {loaded.posenc_abi_version()}; this package needs {_ABI_VERSION}")
    pointer = ctypes.c_void_p
    for name, result, arguments in (
            ("create", pointer, [ctypes.POINTER(Options)]), ("destroy", None, [pointer]), ("run", pointer, [pointer, pointer]),
            ("free", None, [pointer]), ("open", pointer, [pointer, pointer, ctypes.POINTER(pointer)]),
            ("next", pointer, [pointer, pointer]), ("close", None, [pointer]), ("read_model", pointer, [ctypes.c_char_p])):
        function = getattr(loaded, f"posenc_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


class Context:
    """The library's threads. It ends when neither the client nor a running call or stream holds it."""

    def __init__(self, options: Options):
        pointer = library().posenc_create(ctypes.byref(options))
        if not pointer:
            raise ValueError("threads, max_request_bytes and max_output_bytes must be 0 or more, and fit this machine")
        # Bound here, because modules may be gone when the interpreter ends.
        self.pointer, self._destroy, self._getpid, self._process = pointer, library().posenc_destroy, os.getpid, os.getpid()

    def __del__(self) -> None:
        if hasattr(self, "pointer") and self._process == self._getpid():  # a forked child has no threads to end
            self._destroy(self.pointer)


@functools.cache
def _words(count: int) -> tuple[struct.Struct, type[ctypes.Array[ctypes.c_char]]]:
    """Structs of calls are packed as words of 64 bits, which takes less time than filling ctypes' structs."""
    return struct.Struct(f"={count}Q"), ctypes.c_char * (8 * count)


class Call:
    """A posenc_call. It must live until the call has ended."""
    __slots__ = ("address", "_kept")

    def __init__(self, rpc: str, request: bytes, inputs: Sequence[tuple[str, int, int]],
                 outputs: Sequence[tuple[int, int]], timeout_ns: int = 0):
        """`inputs`: path, address and size of tensors beside the request; `outputs`: address and size, address 0 for none."""
        data = ctypes.c_char_p(request)
        words, memory_type = _words(_CALL + 3 * len(inputs) + 2 * len(outputs))
        memory = memory_type()
        self.address = ctypes.addressof(memory)
        self._kept: list[Any] = [data, memory]
        fields: list[int] = []
        for path, address, size in inputs:
            fields += self._text(path), address, size
        for output in outputs:
            fields += output
        behind = self.address + 8 * _CALL
        words.pack_into(memory, 0, 8 * _CALL, self._text(rpc), _address(data), len(request), behind, len(inputs),
                        behind + 24 * len(inputs), len(outputs), timeout_ns, *fields)

    def _text(self, text: str) -> int:
        found = _TEXTS.get(text)
        if found is None:
            pointer = ctypes.c_char_p(text.encode())
            found = _address(pointer), pointer
            if len(_TEXTS) < _MOST_TEXTS:
                _TEXTS[text] = found
            self._kept.append(pointer)
        return found[0]


def _address(text: ctypes.c_char_p) -> int:
    return ctypes.c_size_t.from_buffer(text).value


class _Owned:
    """Frees an answer when the last of its tensors is gone."""

    def __init__(self, pointer: int):
        self._pointer, self._free = pointer, library().posenc_free

    def __del__(self) -> None:
        self._free(self._pointer)


class Answer(NamedTuple):
    message: bytes | None  # None: there is none
    tensors: list[Any]  # memory of its own tensors; None where a tensor is absent


def answer_of(pointer: int | None, outputs: Sequence[tuple[int, int]] = ()) -> Answer:
    """Reads an answer and frees it, or leaves that to its tensors. Raises its error."""
    if not pointer:
        raise MemoryError("posenc")
    _, code, error, message, size, tensors, count = _ANSWER.unpack_from(_ANSWER_MEMORY.from_address(pointer))
    if code:
        try:
            raise _error(code, _ErrorDetails.from_address(error))
        finally:
            library().posenc_free(pointer)
    text = ctypes.string_at(message, size) if message else None
    found: list[Any] = []
    owned: _Owned | None = None
    if count:
        words, memory_type = _words(2 * count)
        fields = words.unpack_from(memory_type.from_address(tensors))
        for n in range(count):
            data, size = fields[2 * n:2 * n + 2]
            memory: Any = None
            if size and not (n < len(outputs) and outputs[n][0]):
                owned = owned or _Owned(pointer)
                memory = (ctypes.c_char * size).from_address(data)
                memory.owner = owned
            elif data:
                memory = bytearray()
            found.append(memory)
    if owned is None:
        library().posenc_free(pointer)
    return Answer(text, found)


class Stream:
    """A stream in this process. Not thread-safe."""

    def __init__(self, context: Context, call: Call):
        pointer = ctypes.c_void_p()
        self._close, self._context, self._pointer = library().posenc_close, context, 0
        answer_of(library().posenc_open(context.pointer, call.address, ctypes.byref(pointer)))
        self._pointer = pointer.value or 0

    def next(self, part: Call | None = None, outputs: Sequence[tuple[int, int]] = ()) -> Answer:
        """Returns the next answer; after the last, one without a message."""
        return answer_of(library().posenc_next(self._pointer, part.address if part else None), outputs)

    def __del__(self) -> None:
        self._close(self._pointer)


def _error(code: int, error: Any) -> Error:
    details = {name: getattr(error, name).decode("utf-8", "replace") for name in DETAILS}
    return make_error(CODES[code], error.message.decode("utf-8", "replace"), details)


def read_model(path: str) -> bytes:
    """Returns the ModelConfig of a model's file, as bytes on the wire."""
    return answer_of(library().posenc_read_model(os.fsencode(path))).message or b""

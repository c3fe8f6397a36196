"""libposenc.so by its C interface (posenc/c_api/posenc.h)."""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
import os
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from posenc.errors import CODES, DETAILS, Error, make_error

if TYPE_CHECKING:
    from typing import Self

_ABI_VERSION = 1
_CALL = 10  # fields of a posenc_call, words of 64 bits
_MOST_ADDED = 32  # bytes that a call adds to its kind of request
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
    if not os.path.exists(path):
        raise ImportError(
            f"this installation of posenc calls servers only (posenc.connect): it has no library to compute with or to read "
            f"GGUF files, {path}. The wheels for Linux (x86_64 and aarch64, glibc 2.28 or newer) have it")
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
        self.pointer, self._destroy = pointer, library().posenc_destroy

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            self._destroy(self.pointer)


class Memory(Protocol):
    """Some of a caller's memory."""
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...


class Call:
    """A posenc_call of one kind of request. It may be used again, with other tensors, when the call has ended."""
    __slots__ = ("address", "_words", "_request", "_size", "_inputs", "_outputs", "_kept")

    def __init__(self, rpc: str, request: bytes, paths: Sequence[str] = (), outputs: int = 0):
        """`paths`: those of the tensors beside the request. `outputs`: the most that set() gets."""
        words = (ctypes.c_uint64 * (_CALL + 3 * len(paths) + 2 * outputs))()
        self._request, self._size = ctypes.create_string_buffer(request, len(request) + _MOST_ADDED), len(request)
        self._words, self.address = words, ctypes.addressof(words)
        self._inputs, self._outputs = _CALL, _CALL + 3 * len(paths)
        self._kept: list[Any] = []
        for n, path in enumerate(paths):
            words[_CALL + 3 * n] = self._text(path)
        words[:_CALL] = (8 * _CALL, self._text(rpc), ctypes.addressof(self._request), self._size,
                         self.address + 8 * self._inputs, len(paths), self.address + 8 * self._outputs, 0, 0, 0)

    def set(self, inputs: Iterable[Memory], outputs: Sequence[tuple[int, int]] = (), timeout_ns: int = 0,
            added: bytes = b"", cancelled: int = 0) -> Self:
        """`outputs`: address and size; address 0: memory of the answer's. `added`: further bytes of the request.

        `cancelled`: the address of a c_int32 that ends the call when it is set, or 0.
        """
        words, at = self._words, self._inputs
        for view in inputs:
            words[at + 1], words[at + 2] = view.address, view.size
            at += 3
        for address, size in outputs:
            words[at], words[at + 1] = address, size
            at += 2
        words[3], words[7], words[8], words[9] = self._size + len(added), len(outputs), timeout_ns, cancelled
        if added:
            self._request[self._size:words[3]] = added
        return self

    def _text(self, text: str) -> int:
        found = _TEXTS.get(text)
        if found is None:
            pointer = ctypes.c_char_p(text.encode())
            found = ctypes.c_size_t.from_buffer(pointer).value, pointer
            if len(_TEXTS) < _MOST_TEXTS:
                _TEXTS[text] = found
            self._kept.append(pointer)
        return found[0]


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
    words = (ctypes.c_uint64 * (2 * count)).from_address(tensors) if count else ()
    for n in range(count):
        memory: Any = None
        if n >= len(outputs) or not outputs[n][0]:
            data, size = words[2 * n], words[2 * n + 1]
            if size:
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

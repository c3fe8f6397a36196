"""Calls in this process, by libposenc.so (posenc/c_api/posenc.h)."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import importlib.resources
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from posenc import _descriptors as d
from posenc import _tensors
from posenc._model import SHORTHANDS
from posenc._wire import Encoder, Message, join, new_message, own_tensors
from posenc.aio import AsyncClient
from posenc.client import Client
from posenc.errors import CODES, DETAILS, make_error

_ABI_VERSION = 1


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("threads", ctypes.c_size_t), ("max_request_bytes", ctypes.c_int64),
                ("max_output_bytes", ctypes.c_int64)]


class _Input(ctypes.Structure):
    _fields_ = [("tensor", ctypes.c_char_p), ("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _Output(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _Call(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("rpc", ctypes.c_char_p), ("request", ctypes.c_char_p),
                ("request_size", ctypes.c_size_t), ("inputs", ctypes.c_void_p), ("input_count", ctypes.c_size_t),
                ("outputs", ctypes.c_void_p), ("output_count", ctypes.c_size_t), ("timeout_ns", ctypes.c_int64)]


class _ErrorDetails(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("message", ctypes.c_char_p),
                *((name, ctypes.c_char_p) for name in DETAILS)]


class _Answer(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("code", ctypes.c_int32), ("error", ctypes.POINTER(_ErrorDetails)),
                ("message", ctypes.c_void_p), ("message_size", ctypes.c_size_t), ("tensors", ctypes.POINTER(_Output)),
                ("tensor_count", ctypes.c_size_t)]


@functools.cache
def _library() -> ctypes.CDLL:
    path = os.environ.get("POSENC_LIBRARY") or str(importlib.resources.files("posenc").joinpath("libposenc.so"))
    library = ctypes.CDLL(path)
    library.posenc_abi_version.restype = ctypes.c_uint32
    if library.posenc_abi_version() != _ABI_VERSION:
        raise ImportError(f"{path} has ABI {library.posenc_abi_version()}; this package needs {_ABI_VERSION}")
    library.posenc_create.restype = ctypes.c_void_p
    library.posenc_create.argtypes = [ctypes.POINTER(_Options)]
    library.posenc_destroy.argtypes = [ctypes.c_void_p]
    library.posenc_destroy.restype = None
    library.posenc_run.restype = ctypes.c_void_p
    library.posenc_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.posenc_free.argtypes = [ctypes.c_void_p]
    library.posenc_free.restype = None
    return library


class _Owned:
    """Frees an answer when the last of its tensors is gone."""

    def __init__(self, pointer: int):
        self._pointer, self._free = pointer, _library().posenc_free

    def __del__(self) -> None:
        self._free(self._pointer)


class _Context:
    """The library's threads. It ends when neither the client nor a running call holds it."""

    def __init__(self, options: _Options):
        pointer = _library().posenc_create(ctypes.byref(options))
        if not pointer:
            raise ValueError("threads, max_request_bytes and max_output_bytes must be 0 or more, and fit this machine")
        # Bound here, because modules may be gone when the interpreter ends.
        self.pointer, self._destroy, self._getpid, self._process = pointer, _library().posenc_destroy, os.getpid, os.getpid()

    def __del__(self) -> None:
        if hasattr(self, "pointer") and self._process == self._getpid():  # a forked child has no threads to end
            self._destroy(self.pointer)


class _Local:
    """What the clients of both kinds share."""

    def __init__(self, threads: int, max_request_bytes: int, max_output_bytes: int):
        if min(threads, max_request_bytes, max_output_bytes) < 0:
            raise ValueError("threads, max_request_bytes and max_output_bytes must be 0 or more")
        self._options = _Options(ctypes.sizeof(_Options), threads, max_request_bytes, max_output_bytes)
        self.context: _Context | None = _Context(self._options)
        _LIVING.add(self)

    def after_fork(self) -> None:
        if self.context is not None:
            self.context = _Context(self._options)

    def run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
            out: Sequence[Any] | None) -> Message:
        context = self.context
        if context is None:
            raise ValueError("the client is closed")
        encoder = Encoder(SHORTHANDS, False)
        pieces, _ = encoder.message(rpc.request, request, "")
        data = join(pieces)
        kind = _tensors.kind_of(like)
        inputs = (_Input * len(encoder.tensors))()
        for n, (path, view) in enumerate(encoder.tensors):
            inputs[n] = (path.encode(), view.address, view.size)
        targets = self._targets(encoder, kind, shapes, out)
        outputs = (_Output * len(targets))()
        for n, target in enumerate(targets):
            if target is not None:
                outputs[n] = (target[1].address, target[1].size)
        call = _Call(ctypes.sizeof(_Call), rpc.name.encode(), data, len(data), ctypes.addressof(inputs), len(inputs),
                     ctypes.addressof(outputs), len(outputs), 0 if timeout is None else max(1, int(timeout * 1e9)))
        pointer = _library().posenc_run(context.pointer, ctypes.addressof(call))
        if not pointer:
            raise MemoryError("posenc_run")
        owned = _Owned(pointer)
        answer = _Answer.from_address(pointer)
        if answer.code:
            error = answer.error.contents
            details = {name: getattr(error, name).decode("utf-8", "replace") for name in DETAILS}
            raise make_error(CODES[int(answer.code)], error.message.decode("utf-8", "replace"), details)
        message = new_message(rpc.response, memoryview(ctypes.string_at(answer.message, answer.message_size)), kind)
        beside: list[Any] = []
        for n, name in enumerate(own_tensors(rpc.response)):
            target = targets[n] if n < len(targets) else None
            if target is not None:
                message.put(name, target[0])
                beside.append(None)
                continue
            tensor = answer.tensors[n]
            memory: Any = (ctypes.c_char * tensor.size).from_address(tensor.data) if tensor.size else bytearray()
            if tensor.size:
                memory.owner = owned
            beside.append(memory)
        message.keep_beside(beside)
        return message

    @staticmethod
    def _targets(encoder: Encoder, kind: _tensors.Kind, shapes: Sequence[str],
                 out: Sequence[Any] | None) -> list[tuple[Any, _tensors.View] | None]:
        """Returns each of the answer's tensors that is computed into memory of ours, with its view."""
        targets: list[tuple[Any, _tensors.View] | None] = []
        views = dict(encoder.tensors)
        for n, tensor in enumerate(out or ()):
            to = _tensors.destination(_tensors.kind_of(tensor), tensor, f"out[{n}]")
            if n < len(shapes) and shapes[n] in views:
                _tensors.check_same(to, views[shapes[n]], f"out[{n}]")
            targets.append((tensor, to))
        for path in shapes[len(targets):]:
            view = views.get(path)
            tensor = None if view is None else kind.empty(view.dtype, view.shape)
            targets.append(None if tensor is None else (tensor, kind.view(tensor, path)))
        return targets


_LIVING: weakref.WeakSet[_Local] = weakref.WeakSet()


def _restart_after_fork() -> None:
    for one in list(_LIVING):
        one.after_fork()


os.register_at_fork(after_in_child=_restart_after_fork)


class LocalClient(Client):
    def __init__(self, threads: int, max_request_bytes: int, max_output_bytes: int):
        self._local = _Local(threads, max_request_bytes, max_output_bytes)

    def close(self) -> None:
        self._local.context = None

    def _run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
             out: Sequence[Any] | None) -> Message:
        return self._local.run(rpc, request, like, timeout, shapes, out)


class AsyncLocalClient(AsyncClient):
    def __init__(self, threads: int, max_request_bytes: int, max_output_bytes: int):
        self._local = _Local(threads, max_request_bytes, max_output_bytes)

    async def close(self) -> None:
        self._local.context = None

    async def _run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
                   out: Sequence[Any] | None) -> Message:
        return await asyncio.to_thread(self._local.run, rpc, request, like, timeout, shapes, out)

"""Calls in this process, by libposenc.so (posenc/c_api/posenc.h)."""

from __future__ import annotations

import asyncio
import ctypes
import os
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from posenc import _descriptors as d
from posenc import _tensors
from posenc._library import Call, Context, Options, Stream, answer_of, library
from posenc._plans import Request, encode
from posenc._streams import RotatedRows, Rotation, in_threads
from posenc._wire import Message, new_message, own_tensors
from posenc.aio import AsyncClient
from posenc.client import Client


Tensors: TypeAlias = "Sequence[tuple[str, _tensors.View]]"  # of a request, with their paths
Target: TypeAlias = "tuple[Any, _tensors.View]"  # a tensor of ours that an answer is computed into


class _Local:
    """What the clients of both kinds share."""

    def __init__(self, threads: int, max_request_bytes: int, max_output_bytes: int):
        if min(threads, max_request_bytes, max_output_bytes) < 0:
            raise ValueError("threads, max_request_bytes and max_output_bytes must be 0 or more")
        self._options = Options(ctypes.sizeof(Options), threads, max_request_bytes, max_output_bytes)
        self.context: Context | None = Context(self._options)
        _LIVING.add(self)

    def after_fork(self) -> None:
        if self.context is not None:
            self.context = Context(self._options)

    def run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
            out: Sequence[Any] | None) -> Message:
        context = self._open()
        encoded = encode(rpc.request, request, False)
        kind = _tensors.kind_of(like)
        targets = _targets(encoded.tensors, kind, shapes, out)
        outputs = [(0, 0) if target is None else (target[1].address, target[1].size) for target in targets]
        call = Call(rpc.name, b"".join(encoded.pieces), _inputs(encoded), outputs, _nanoseconds(timeout))
        answer = answer_of(library().posenc_run(context.pointer, call.address), outputs)
        assert answer.message is not None
        message = new_message(rpc.response, memoryview(answer.message), kind)
        message.keep_beside(answer.tensors)
        for name, target in zip(own_tensors(rpc.response), targets):
            if target is not None:
                message.put(name, target[0])
        return message

    def tiles(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None) -> Iterator[Message]:
        encoded = encode(rpc.request, request, False)
        return self._tiles(rpc, encoded, _tensors.kind_of(like), timeout)

    def _tiles(self, rpc: d.Rpc, encoded: Request, kind: _tensors.Kind, timeout: float | None) -> Iterator[Message]:
        stream = Stream(self._open(), Call(rpc.name, b"".join(encoded.pieces), _inputs(encoded), (), _nanoseconds(timeout)))
        while (answer := stream.next()).message is not None:
            message = new_message(rpc.response, memoryview(answer.message), kind)
            message.keep_beside(answer.tensors)
            yield message

    def rows(self, rotation: Rotation, timeout: float | None) -> Iterator[RotatedRows[Any]]:
        name = rotation.rpc.name
        stream = Stream(self._open(), Call(name, rotation.header, (), (), _nanoseconds(timeout)))
        rotation.take(stream.next().message or b"")
        for chunk in list(rotation.waiting.values()):
            memory = bytearray(chunk.size) if chunk.target is None else None
            to = chunk.target if memory is None else _tensors.address_of(memory)
            stream.next(Call(name, chunk.encoded(False), [("chunk.rows", chunk.address, chunk.size)], [(to or 0, chunk.size)]))
            rows = None if memory is None else chunk.operand.kind.wrap(chunk.operand.view.dtype, chunk.shape, memory)
            yield rotation.answered(chunk, rows)

    def _open(self) -> Context:
        if self.context is None:
            raise ValueError("the client is closed")
        return self.context


def _inputs(encoded: Request) -> list[tuple[str, int, int]]:
    return [(path, view.address, view.size) for path, view in encoded.tensors]


def _nanoseconds(timeout: float | None) -> int:
    return 0 if timeout is None else max(1, int(timeout * 1e9))


def _targets(tensors: Tensors, kind: _tensors.Kind, shapes: Sequence[str], out: Sequence[Any] | None) -> list[Target | None]:
    """Returns each of the answer's tensors that is computed into memory of ours."""
    targets: list[Target | None] = []
    for n, tensor in enumerate(out or ()):
        to = _tensors.destination(_tensors.kind_of(tensor), tensor, f"out[{n}]")
        for path, view in tensors:
            if n < len(shapes) and path == shapes[n]:
                _tensors.check_same(to, view, f"out[{n}]")
        targets.append((tensor, to))
    for wanted in shapes[len(targets):]:
        target = None
        for path, view in tensors:
            if path == wanted:
                target = kind.new(view.dtype, view.shape, view.size)
        targets.append(target)
    while targets and targets[-1] is None:
        targets.pop()
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

    def _tiles(self, name: str, request: Mapping[str, Any], like: Any, timeout: float | None) -> Iterator[Any]:
        return self._local.tiles(d.api().rpcs[name], request, like, timeout)

    def _rows(self, rotation: Rotation, timeout: float | None) -> Iterator[RotatedRows[Any]]:
        return self._local.rows(rotation, timeout)


class AsyncLocalClient(AsyncClient):
    def __init__(self, threads: int, max_request_bytes: int, max_output_bytes: int):
        self._local = _Local(threads, max_request_bytes, max_output_bytes)

    async def close(self) -> None:
        self._local.context = None

    async def _run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
                   out: Sequence[Any] | None) -> Message:
        return await asyncio.to_thread(self._local.run, rpc, request, like, timeout, shapes, out)

    def _tiles(self, name: str, request: Mapping[str, Any], like: Any, timeout: float | None) -> AsyncIterator[Any]:
        return in_threads(self._local.tiles(d.api().rpcs[name], request, like, timeout))

    def _rows(self, rotation: Rotation, timeout: float | None) -> AsyncIterator[RotatedRows[Any]]:
        return in_threads(self._local.rows(rotation, timeout))


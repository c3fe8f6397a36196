"""Calls in this process, by libposenc.so (posenc/c_api/posenc.h)."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from posenc import _descriptors as d
from posenc import _tensors
from posenc._library import Call, Context, Options, Stream, answer_of, library
from posenc._pickle import Travelling
from posenc._plans import Request, encode
from posenc._streams import RotatedRows, Rotation
from posenc._threads import in_thread, in_threads
from posenc._wire import Message, new_message, own_tensors
from posenc.aio import AsyncClient
from posenc.client import Client
from posenc.errors import invalid

if TYPE_CHECKING:
    from typing import Self, TypeAlias

Place: TypeAlias = "tuple[int, int]"  # address and size of an output; 0 for memory of the answer's


class _Local:
    """What the clients of both kinds share."""

    def __init__(self, threads: int, max_request_bytes: int, max_output_bytes: int):
        if min(threads, max_request_bytes, max_output_bytes) < 0:
            raise ValueError("threads, max_request_bytes and max_output_bytes must be 0 or more")
        self._limits = threads, max_request_bytes, max_output_bytes
        self._context: Context | None = None  # the first call makes it
        self._process = 0  # that made it
        self._closed = False

    @property
    def context(self) -> Context:
        if self._closed:
            raise ValueError("the client is closed")
        context = self._context
        if context is None or self._process != os.getpid():  # a forked worker's share is its own
            threads, *limits = self._limits
            context = self._context = Context(Options(ctypes.sizeof(Options), threads or _share(), *limits))
            self._process = os.getpid()
        return context

    def close(self) -> None:
        self._closed, self._context = True, None

    def run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
            out: Sequence[Any] | None, cancelled: ctypes.c_int32 | None = None) -> Message:
        """`cancelled`: ends the call when it is set."""
        context = self.context
        encoded = encode(rpc.request, request, False)
        kind = _tensors.kind_of(like)
        targets, outputs = _targets(encoded, kind, shapes, out or ())
        calls = encoded.plan.prepared
        try:
            call = calls.pop()
        except IndexError:
            call = _call(rpc, encoded, len(own_tensors(rpc.response)))
        flag = 0 if cancelled is None else ctypes.addressof(cancelled)
        call.set(encoded.views, outputs, _nanoseconds(timeout), encoded.position, flag)
        answer = answer_of(library().posenc_run(context.pointer, call.address), outputs)
        calls.append(call)
        assert answer.message is not None
        message = new_message(rpc.response, memoryview(answer.message), kind)
        message.keep_beside(answer.tensors)
        for name, tensor in zip(own_tensors(rpc.response), targets):
            if tensor is not None:
                message.put(name, tensor)
        return message

    def tiles(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None) -> Iterator[Message]:
        encoded = encode(rpc.request, request, False)
        return self._tiles(rpc, encoded, _tensors.kind_of(like), timeout)

    def _tiles(self, rpc: d.Rpc, encoded: Request, kind: _tensors.Kind, timeout: float | None) -> Iterator[Message]:
        call = _call(rpc, encoded).set(encoded.views, (), _nanoseconds(timeout), encoded.position)
        stream = Stream(self.context, call)
        while (answer := stream.next()).message is not None:
            message = new_message(rpc.response, memoryview(answer.message), kind)
            message.keep_beside(answer.tensors)
            yield message

    def rows(self, rotation: Rotation, timeout: float | None) -> Iterator[RotatedRows[Any]]:
        name = rotation.rpc.name
        stream = Stream(self.context, Call(name, rotation.header).set((), (), _nanoseconds(timeout)))
        rotation.take(stream.next().message or b"")
        for chunk in list(rotation.waiting.values()):
            memory = bytearray(chunk.size) if chunk.target is None else None
            to = chunk.target if memory is None else _tensors.address_of(memory)
            call = Call(name, chunk.encoded(False), ["chunk.rows"], 1).set([chunk], [(to or 0, chunk.size)])
            stream.next(call)
            rows = None if memory is None else chunk.operand.kind.wrap(chunk.operand.view.dtype, chunk.shape, memory)
            yield rotation.answered(chunk, rows)


def _share() -> int:
    """Returns the threads that this process's engine gives it, or 0: as many as it may use.

    Ray sets OMP_NUM_THREADS to a worker's share of the processors. Workers of torch's DataLoader have one thread.
    """
    loader: Any = sys.modules.get("torch.utils.data")
    if loader is not None and loader.get_worker_info() is not None:
        return 1
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(first), _processors()) if first.isdecimal() else 0


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _call(rpc: d.Rpc, encoded: Request, outputs: int = 0) -> Call:
    return Call(rpc.name, b"".join(cast("Sequence[bytes]", encoded.plan.pieces)), encoded.plan.paths, outputs)


def _nanoseconds(timeout: float | None) -> int:
    return 0 if timeout is None else max(1, int(timeout * 1e9))


def _targets(encoded: Request, kind: _tensors.Kind, shapes: Sequence[str], out: Sequence[Any]) -> tuple[list[Any], list[Place]]:
    """Returns tensors of ours that an answer is computed into, or None for one of the answer's own, and their places."""
    if len(out) > len(shapes):
        raise invalid("out", len(out), f"must be at most {len(shapes)} tensors", "MISMATCH")
    paths = encoded.plan.paths
    targets: list[Any] = []
    places: list[Place] = []
    for n, path in enumerate(shapes):
        tensor, address, size = None, 0, 0
        view = encoded.views[paths.index(path)] if path in paths else None
        if n < len(out) and out[n] is not None:
            tensor = out[n]
            to = _tensors.destination(_tensors.kind_of(tensor), tensor, f"out[{n}]")
            if view is not None:
                _tensors.check_same(to, view, f"out[{n}]")
            address, size = to.address, to.size
        elif view is not None and (made := kind.new(view)):
            (tensor, address), size = made, view.size
        targets.append(tensor)
        places.append((address, size))
    return targets, places


class _OfProcess(Travelling):
    """What the clients of both kinds are made of."""

    def __init__(self, threads: int, max_request_bytes: int, max_output_bytes: int):
        self._arguments = threads, max_request_bytes, max_output_bytes
        self._local = _Local(*self._arguments)

    def opened(self) -> Self:
        """Starts the threads now, so that a missing library is noticed."""
        assert self._local.context
        return self

    def _close(self) -> None:
        if not self._of_process:
            self._local.close()


class LocalClient(_OfProcess, Client):
    def close(self) -> None:
        self._close()

    def _run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
             out: Sequence[Any] | None) -> Message:
        return self._local.run(rpc, request, like, timeout, shapes, out)

    def _tiles(self, name: str, request: Mapping[str, Any], like: Any, timeout: float | None) -> Iterator[Any]:
        return self._local.tiles(d.api().rpcs[name], request, like, timeout)

    def _rows(self, rotation: Rotation, timeout: float | None) -> Iterator[RotatedRows[Any]]:
        return self._local.rows(rotation, timeout)


class AsyncLocalClient(_OfProcess, AsyncClient):
    async def close(self) -> None:
        self._close()

    async def _run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
                   out: Sequence[Any] | None) -> Message:
        cancelled = ctypes.c_int32()
        work = functools.partial(self._local.run, rpc, request, like, timeout, shapes, out, cancelled)
        return await in_thread(work, lambda: setattr(cancelled, "value", 1))

    def _tiles(self, name: str, request: Mapping[str, Any], like: Any, timeout: float | None) -> AsyncIterator[Any]:
        return in_threads(self._local.tiles(d.api().rpcs[name], request, like, timeout))

    def _rows(self, rotation: Rotation, timeout: float | None) -> AsyncIterator[RotatedRows[Any]]:
        return in_threads(self._local.rows(rotation, timeout))


"""Streams of a server.

Tiles are retried until the first one is handed over. A rotation in chunks goes on in a new stream with the chunks that have
no answer, whenever the server refuses or has reached its own time limit for a stream.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from posenc import _descriptors as d
from posenc import _tensors
from posenc._retry import Retries
from posenc._streams import IN_FLIGHT, Chunk, RotatedRows, Rotation
from posenc._wire import Message, new_message
from posenc.errors import Error

if TYPE_CHECKING:
    from typing import TypeAlias

    from posenc._token import Metadata

# Makes an error, the server's push-back in ms, and whether work had begun, of gRPC's error and the call's attempts.
ErrorOf: TypeAlias = "Callable[[Any, Retries], tuple[Error, int | None, bool]]"


def tiles(channel: Any, rpc: d.Rpc, data: bytes, kind: _tensors.Kind, retries: Retries, metadata: Metadata,
          error_of: ErrorOf) -> Iterator[Message]:
    begun = False
    while True:
        call: Any = channel.unary_stream(rpc.path)(data, timeout=retries.remaining(), metadata=metadata)
        try:
            for answer in call:
                begun = True
                yield new_message(rpc.response, memoryview(answer), kind)
            return
        except grpc.RpcError as failed:
            error, pushback, _ = error_of(failed, retries)
        finally:
            call.cancel()
        time.sleep(retries.wait_after(error, pushback, not begun))


async def tiles_async(channel: Any, rpc: d.Rpc, data: bytes, kind: _tensors.Kind, retries: Retries, metadata: Metadata,
                      error_of: ErrorOf) -> AsyncIterator[Message]:
    begun = False
    while True:
        call: Any = channel.unary_stream(rpc.path)(data, timeout=retries.remaining(), metadata=metadata)
        try:
            async for answer in call:
                begun = True
                yield new_message(rpc.response, memoryview(answer), kind)
            return
        except grpc.RpcError as failed:
            error, pushback, _ = error_of(failed, retries)
        finally:
            call.cancel()
        await asyncio.sleep(retries.wait_after(error, pushback, not begun))


class Stop:
    """Ends a rotation that another thread waits for."""

    def __init__(self) -> None:
        self._is_set = threading.Event()
        self._call: Any = None

    def set(self) -> None:
        self._is_set.set()
        if self._call is not None:
            self._call.cancel()

    def watch(self, call: Any) -> None:
        """Names the call that set() cancels."""
        self._call = call
        if self._is_set.is_set():
            call.cancel()

    def wait(self, seconds: float) -> bool:
        """Returns True, at once, if it is set."""
        return self._is_set.wait(seconds)


def rows(channel: Any, rotation: Rotation, retries: Retries, metadata: Metadata, error_of: ErrorOf,
         stop: Stop | None = None) -> Iterator[RotatedRows[Any]]:
    stop = stop or Stop()
    while True:
        waiting = len(rotation.waiting)
        places, ended = threading.Semaphore(IN_FLIGHT), threading.Event()
        parts = _parts(rotation.header, list(rotation.waiting.values()), places, ended)
        call: Any = channel.stream_stream(rotation.rpc.path)(parts, timeout=retries.remaining(), metadata=metadata)
        stop.watch(call)
        try:
            for answer in call:
                done = rotation.take(answer)
                if done is not None:
                    places.release()
                    yield done
            return rotation.check_complete()
        except grpc.RpcError as failed:
            error, pushback, _ = error_of(failed, retries)
        finally:
            ended.set()
            places.release()  # ends the thread of gRPC's that reads parts
            call.cancel()
        if stop.wait(_wait_after(retries, error, pushback, len(rotation.waiting) < waiting)):
            raise error


def _parts(header: bytes, chunks: Sequence[Chunk], places: threading.Semaphore, ended: threading.Event) -> Iterator[bytes]:
    """Yields the messages of a stream, each chunk when there is a place for it."""
    yield header
    for chunk in chunks:
        places.acquire()
        if ended.is_set():
            return
        yield chunk.encoded(True)


def _wait_after(retries: Retries, error: Error, pushback: int | None, progressed: bool) -> float:
    """Returns how long to wait before the next stream; raises the error if there is to be none."""
    if progressed:
        retries.progress()
        if error.code == "DEADLINE_EXCEEDED" and error.reason:  # the server's limit for a stream, not this call's
            return 0.0
    return retries.wait_after(error, pushback, True)

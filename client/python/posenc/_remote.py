"""Calls on a server, by grpcio's channels and the package's own wire code."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from posenc import _descriptors as d
from posenc import _remote_streams as streams
from posenc import _tensors
from posenc._pickle import Travelling
from posenc._plans import encode
from posenc._retry import LONGEST_WAIT_FOR_READY, Retries, RetryPolicy
from posenc._shared_memory import Lease, SharedMemory, shared_memory_of
from posenc._streams import RotatedRows, Rotation
from posenc._threads import in_threads
from posenc._tls import TLS
from posenc._token import Bearer, Metadata, Secret, Token
from posenc._unreachable import no_answer
from posenc._wire import Message, join, new_message, own_tensors
from posenc.aio import AsyncClient
from posenc.client import Client
from posenc.errors import Error, Unavailable, invalid, make_error

if TYPE_CHECKING:
    from typing import Self


def _options(retry: RetryPolicy, tls: TLS | bool, wait_for_ready: bool) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0),
        # A call whose bytes are stuck, e.g. to a stopped process, ends only with its connection.
        ("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 20_000),
        # Between attempts to connect, gRPC fails calls at once; its own first wait would outlast our first retries.
        ("grpc.initial_reconnect_backoff_ms", int(retry.initial_backoff * 1000)),
        ("grpc.max_reconnect_backoff_ms", int((LONGEST_WAIT_FOR_READY if wait_for_ready else retry.max_backoff) * 1000))]
    if isinstance(tls, TLS) and tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return options


def _credentials(tls: TLS | bool) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(*(tls.contents() if isinstance(tls, TLS) else ()))


class _Exchange:
    """One call: the request's bytes, and what becomes of the answer."""

    def __init__(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, out: Sequence[Any] | None,
                 shared: SharedMemory | None):
        self._rpc, self._request, self._kind, self._out = rpc, request, _tensors.kind_of(like), out
        for n, tensor in enumerate(out or ()):
            if tensor is not None:
                _tensors.destination(_tensors.kind_of(tensor), tensor, f"out[{n}]")
        self._shared = shared
        self._large = {} if shared is None else shared.large(rpc, request)
        self._leases: dict[str, Lease] = {}
        self._data: Any = None
        self._renewals = 0
        self.has_regions = False
        if not self._large:
            self._encode(request)

    @property
    def may_wait(self) -> bool:
        """True if attempt() may wait for the server, or copies much."""
        return bool(self._large)

    def attempt(self, seconds: float) -> Any:
        """Returns the bytes to send."""
        if self._data is None:
            assert self._shared is not None
            request, self._leases = self._shared.place(self._rpc, self._request, self._large, seconds)
            self._encode(request)
        for lease in self._leases.values():
            lease.fill()
        return self._data

    def _encode(self, request: Mapping[str, Any]) -> None:
        encoded = encode(self._rpc.request, request, True)
        self._data = join(encoded.pieces())
        # Calls in a caller's own shared memory are repeated only if they had not begun. Our blocks are filled again.
        self.has_regions = encoded.regions > 2 * len(self._leases)

    def fail(self, error: Error) -> bool:
        """Notes that an attempt has failed. Returns True if the next one, with other blocks or none, needs no wait."""
        if not self._leases:
            return False
        if not error.reason:  # the error is not the server's, which may still be at work
            self.end()
            return False
        for lease in self._leases.values():
            lease.end_call()
        assert self._shared is not None
        if not self._shared.has_lost(error):
            return False
        self.end()
        self._large = self._shared.large(self._rpc, self._request)
        self._renewals += 1
        return self._renewals <= 2

    def end(self) -> None:
        """Gives back the blocks that are not an answer's, also if a traceback still holds this object."""
        self._leases = {}
        self._data = None if self._large else self._data

    def answer(self, data: bytes) -> Message:
        answer = new_message(self._rpc.response, memoryview(data), self._kind)
        if self._shared is not None and self._leases:
            self._shared.worked()
        for name, lease in self._leases.items():
            lease.end_call()
            answer.put(name, lease.answer(self._kind))
        for n, (name, tensor) in enumerate(zip(own_tensors(self._rpc.response), self._out or ())):
            if tensor is not None:
                answer.put(name, _tensors.copy_into(tensor, getattr(answer, name), f"out[{n}]"))
        return answer


def _error(error: Any, address: str, retries: Retries) -> tuple[Error, int | None, bool]:
    """Returns the error of a failed attempt, the server's push-back in ms, and whether work on the call had begun."""
    trailers = {key: value for key, value in error.trailing_metadata() or ()}
    code, message = error.code().name, error.details() or ""
    pushback = trailers.get("grpc-retry-pushback-ms")
    wait = None if pushback is None else int(pushback) if str(pushback).lstrip("-").isdigit() else -1
    status = trailers.get("grpc-status-details-bin")
    if status is not None:
        rich: Any = new_message(d.api().messages["posenc.v1.RichStatus"], memoryview(status), _tensors.NUMPY)
        for detail in rich.details:
            if detail.type_url == "type.googleapis.com/google.rpc.ErrorInfo":
                info: Any = new_message(d.api().messages["posenc.v1.ErrorInfo"], memoryview(detail.value), _tensors.NUMPY)
                details = {"reason": info.reason, **info.metadata}
                return make_error(code, message, details), wait, details.get("started") != "false"
    if code == "UNAVAILABLE":
        retries.note_unanswered(message)
        return Unavailable(no_answer(address, retries.said), code), wait, True
    # This client does not cancel a call that it waits for, so the server did.
    if code == "CANCELLED":
        return Unavailable(f"{address} has cancelled the call: is it shutting down?", "UNAVAILABLE"), wait, True
    # posenc never answers it. gRPC says it of a call that a proxy ended without a status, because its server was killed.
    if code == "UNKNOWN":
        return Unavailable(f"the call ended without a status of {address} ({message}): has the server, or one behind it, "
                           "been killed?", "UNAVAILABLE"), wait, True
    # HTTP/2's ENHANCE_YOUR_CALM: the server's gRPC had no memory left before the message was complete.
    if code == "RESOURCE_EXHAUSTED" and "RST_STREAM" in message:
        return Unavailable(f"{address} had no memory left to receive the call", "UNAVAILABLE"), wait, True
    return make_error(code, message, {}), wait, True


class _Remote(Travelling):
    """What the clients of both kinds share."""

    def __init__(self, address: str, tls: TLS | bool, timeout: float, retry: RetryPolicy | None,
                 shared_memory: str | bool | None, token: Token | Secret | None, wait_for_ready: bool):
        self._arguments = address, tls, timeout, retry, shared_memory, token, wait_for_ready
        self._wait_for_ready = wait_for_ready
        self._address, self._tls, self._timeout, self._retry = address, tls, timeout, retry or RetryPolicy()
        self._shared = shared_memory_of(address, shared_memory)
        self._bearer = Bearer(token)
        self._channel: Any = None  # the first call opens it, and opens another in a forked child
        self._methods: dict[str, Any] = {}

    def opened(self) -> Self:
        """Opens the connection now, so that files that cannot be read are noticed."""
        self._bearer.metadata()
        self._open()
        return self

    def _open(self) -> Any:
        raise NotImplementedError

    def _new_channel(self, module: Any) -> Any:
        """Returns a channel of grpc or of grpc.aio."""
        options = _options(self._retry, self._tls, self._wait_for_ready)
        if _LEFT:  # connections that the parent's channels share would be used again
            options.append(("grpc.use_local_subchannel_pool", 1))
        if self._tls:
            return module.secure_channel(self._address, _credentials(self._tls), options)
        return module.insecure_channel(self._address, options)

    def _method(self, path: str) -> Any:
        method = self._methods.get(path)
        if method is None:
            method = self._methods[path] = self._opened_for_call().unary_unary(path)
        return method

    def _opened_for_call(self) -> Any:
        try:
            return self._open()
        except OSError as error:
            raise invalid("tls", error.filename, f"must be a readable file here: {error.strerror}", "NOT_FOUND") from error

    def _metadata(self) -> Metadata:
        try:
            return self._bearer.metadata()
        except OSError as error:
            raise invalid("token.file", error.filename, f"must be a readable file here: {error.strerror}", "NOT_FOUND") from error
        except ValueError as error:
            raise invalid("token", "unusable", str(error)) from error

    def _retries(self, timeout: float | None) -> Retries:
        return Retries(self._retry, self._timeout if timeout is None else timeout, self._wait_for_ready, self._address)

    def _error(self, failed: Any, retries: Retries) -> tuple[Error, int | None, bool]:
        return _error(failed, self._address, retries)


class RemoteClient(_Remote, Client):
    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        _LIVING.add(self)

    def close(self) -> None:
        if self._of_process:
            return
        self._open().close()
        if self._shared is not None:
            self._shared.forget()

    def begin_in_child(self) -> None:
        """Leaves the connection to the process that this one was forked from."""
        if self._channel is not None:
            _LEFT.append(self._channel)  # to end it here would wait for threads that this process does not have
        self._channel, self._methods = None, {}

    def _open(self) -> Any:
        if self._channel is None:
            self._channel = self._new_channel(grpc)
        return self._channel

    def _run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
             out: Sequence[Any] | None) -> Message:
        exchange = _Exchange(rpc, request, like, out, self._shared)
        method, metadata = self._method(rpc.path), self._metadata()
        retries = self._retries(timeout)
        try:
            while True:
                try:
                    data = exchange.attempt(retries.remaining())
                    return exchange.answer(method(data, timeout=retries.remaining(), metadata=metadata))
                except grpc.RpcError as failed:
                    error, pushback, started = self._error(failed, retries)
                except Unavailable as unshared:  # the side socket does not answer
                    error, pushback, started = unshared, None, False
                if exchange.fail(error):
                    continue
                time.sleep(retries.wait_after(error, pushback, not (started and exchange.has_regions)))
        finally:
            exchange.end()

    def _tiles(self, name: str, request: Mapping[str, Any], like: Any, timeout: float | None) -> Iterator[Any]:
        rpc = d.api().rpcs[name]
        data, kind = join(encode(rpc.request, request, True).pieces()), _tensors.kind_of(like)
        return streams.tiles(self._opened_for_call(), rpc, data, kind, self._retries(timeout), self._metadata(), self._error)

    def _rows(self, rotation: Rotation, timeout: float | None) -> Iterator[RotatedRows[Any]]:
        return streams.rows(self._opened_for_call(), rotation, self._retries(timeout), self._metadata(), self._error)


class AsyncRemoteClient(_Remote, AsyncClient):
    _FOR_ONE_LOOP = True

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._process = os.getpid()
        self._blocking: grpc.Channel | None = None

    async def close(self) -> None:
        await self._open().close()
        if self._blocking is not None:
            self._blocking.close()
        if self._shared is not None:
            self._shared.forget()

    def _open(self) -> Any:
        if self._channel is None:
            self._channel, self._process = self._new_channel(grpc.aio), os.getpid()
        elif self._process != os.getpid():
            raise RuntimeError("gRPC's asyncio channels do not work in a forked process: make the client there, or start the "
                               "process by spawn or forkserver")
        return self._channel

    def _method(self, path: str) -> Any:
        self._open()
        return super()._method(path)

    async def _run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
                   out: Sequence[Any] | None) -> Message:
        exchange = _Exchange(rpc, request, like, out, self._shared)
        method, metadata = self._method(rpc.path), self._metadata()
        retries = self._retries(timeout)
        try:
            while True:
                try:
                    if exchange.may_wait:
                        data = await asyncio.to_thread(exchange.attempt, retries.remaining())
                    else:
                        data = exchange.attempt(retries.remaining())
                    return exchange.answer(await method(data, timeout=retries.remaining(), metadata=metadata))
                except grpc.RpcError as failed:
                    error, pushback, started = self._error(failed, retries)
                except Unavailable as unshared:  # the side socket does not answer
                    error, pushback, started = unshared, None, False
                if exchange.fail(error):
                    continue
                await asyncio.sleep(retries.wait_after(error, pushback, not (started and exchange.has_regions)))
        finally:
            exchange.end()

    def _tiles(self, name: str, request: Mapping[str, Any], like: Any, timeout: float | None) -> AsyncIterator[Any]:
        rpc = d.api().rpcs[name]
        data, kind = join(encode(rpc.request, request, True).pieces()), _tensors.kind_of(like)
        return streams.tiles_async(self._opened_for_call(), rpc, data, kind, self._retries(timeout), self._metadata(), self._error)

    def _rows(self, rotation: Rotation, timeout: float | None) -> AsyncIterator[RotatedRows[Any]]:
        # On a channel without asyncio, whose calls lose the server's status if it comes while they write.
        if self._blocking is None:
            self._blocking = self._new_channel(grpc)
        stop = streams.Stop()
        rows = streams.rows(self._blocking, rotation, self._retries(timeout), self._metadata(), self._error, stop)
        return in_threads(rows, stop.set)


_LIVING: weakref.WeakSet[RemoteClient] = weakref.WeakSet()
_LEFT: list[Any] = []  # channels of the parent


def _begin_in_child() -> None:
    for one in list(_LIVING):
        one.begin_in_child()


if hasattr(os, "register_at_fork"):  # not on every platform
    os.register_at_fork(after_in_child=_begin_in_child)

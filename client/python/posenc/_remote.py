"""Calls on a server, by grpcio's channels and the package's own wire code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import grpc

from posenc import _descriptors as d
from posenc import _tensors
from posenc._model import SHORTHANDS
from posenc._retry import Retries, RetryPolicy
from posenc._shared_memory import Lease, SharedMemory
from posenc._tls import TLS
from posenc._wire import Encoder, Message, join, new_message, own_tensors
from posenc.aio import AsyncClient
from posenc.client import Client
from posenc.errors import Error, NotFound, Unavailable, make_error


def _options(retry: RetryPolicy, tls: TLS | bool) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0),
        # A call whose bytes are stuck, e.g. to a stopped process, ends only with its connection.
        ("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 20_000),
        # Between attempts to connect, gRPC fails calls at once; its own first wait would outlast our first retries.
        ("grpc.initial_reconnect_backoff_ms", int(retry.initial_backoff * 1000)),
        ("grpc.max_reconnect_backoff_ms", int(retry.max_backoff * 1000))]
    if isinstance(tls, TLS) and tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return options


def _credentials(tls: TLS | bool) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(*(tls.contents() if isinstance(tls, TLS) else ()))


class _Exchange:
    """One call: the request's bytes, and what becomes of the answer."""

    def __init__(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, out: Sequence[Any] | None,
                 shared: SharedMemory | None):
        self._leases: dict[str, Lease] = {}
        if shared is not None:
            request, self._leases = shared.place(rpc, request)
        encoder = Encoder(SHORTHANDS, True)
        pieces, _ = encoder.message(rpc.request, request, "")
        self._data = join(pieces)
        self._shared = shared
        # Calls in a caller's own shared memory are repeated only if they had not begun. Our blocks are filled again.
        self.has_regions = encoder.regions > 2 * len(self._leases)
        self._rpc, self._kind, self._out = rpc, _tensors.kind_of(like), out
        for n, tensor in enumerate(out or ()):
            _tensors.destination(_tensors.kind_of(tensor), tensor, f"out[{n}]")

    def attempt(self) -> bytes:
        """Returns the bytes to send."""
        for lease in self._leases.values():
            lease.fill()
        return self._data

    def has_lost_memory(self, error: Error) -> bool:
        """True if the server does not know our blocks, because it has restarted. Then another exchange gets new ones."""
        if self._shared is None or not self._leases or not isinstance(error, NotFound):
            return False
        self._shared.forget()
        return True

    def answer(self, data: bytes) -> Message:
        answer = new_message(self._rpc.response, memoryview(data), self._kind)
        for name, lease in self._leases.items():
            answer.put(name, lease.answer(self._kind))
        for n, (name, tensor) in enumerate(zip(own_tensors(self._rpc.response), self._out or ())):
            answer.put(name, _tensors.copy_into(tensor, getattr(answer, name), f"out[{n}]"))
        return answer


def _error(error: Any, address: str) -> tuple[Error, int | None, bool]:
    """Returns the error of a failed call, the server's push-back in ms, and whether work on the call had begun."""
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
        hint = f"is posenc-server running there, and do both sides or none use TLS? Start it with `posenc-server --listen {address}`"
        return Unavailable(f"no answer from {address} ({message}); {hint}", code), wait, True
    # This client does not cancel a call that it waits for, so the server did.
    if code == "CANCELLED":
        return Unavailable(f"{address} has cancelled the call: is it shutting down?", "UNAVAILABLE"), wait, True
    # HTTP/2's ENHANCE_YOUR_CALM: the server's gRPC had no memory left before the message was complete.
    if code == "RESOURCE_EXHAUSTED" and "RST_STREAM" in message:
        return Unavailable(f"{address} had no memory left to receive the call", "UNAVAILABLE"), wait, True
    return make_error(code, message, {}), wait, True


class RemoteClient(Client):
    def __init__(self, address: str, tls: TLS | bool, timeout: float, retry: RetryPolicy | None,
                 shared_memory: str | None, token: str | None):
        self._address, self._timeout, self._retry = address, timeout, retry or RetryPolicy()
        self._shared = SharedMemory(shared_memory) if shared_memory else None
        self._metadata = (("authorization", f"Bearer {token}"),) if token else None
        options = _options(self._retry, tls)
        self._channel = (grpc.secure_channel(address, _credentials(tls), options) if tls else
                         grpc.insecure_channel(address, options))
        self._methods: dict[str, Any] = {}

    def close(self) -> None:
        self._channel.close()
        if self._shared is not None:
            self._shared.forget()

    def _run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
             out: Sequence[Any] | None) -> Message:
        exchange = _Exchange(rpc, request, like, out, self._shared)
        method = self._methods.get(rpc.path) or self._methods.setdefault(rpc.path, self._channel.unary_unary(rpc.path))
        retries = Retries(self._retry, self._timeout if timeout is None else timeout)
        renewed = False
        while True:
            try:
                return exchange.answer(method(exchange.attempt(), timeout=retries.remaining(), metadata=self._metadata))
            except grpc.RpcError as failed:
                error, pushback, started = _error(failed, self._address)
            if not renewed and exchange.has_lost_memory(error):
                renewed, exchange = True, _Exchange(rpc, request, like, out, self._shared)
                continue
            time.sleep(retries.wait_after(error, pushback, not (started and exchange.has_regions)))


class AsyncRemoteClient(AsyncClient):
    def __init__(self, address: str, tls: TLS | bool, timeout: float, retry: RetryPolicy | None,
                 shared_memory: str | None, token: str | None):
        self._address, self._timeout, self._retry = address, timeout, retry or RetryPolicy()
        self._shared = SharedMemory(shared_memory) if shared_memory else None
        self._metadata = (("authorization", f"Bearer {token}"),) if token else None
        options = _options(self._retry, tls)
        self._channel: Any = (grpc.aio.secure_channel(address, _credentials(tls), options) if tls else
                              grpc.aio.insecure_channel(address, options))
        self._methods: dict[str, Any] = {}

    async def close(self) -> None:
        await self._channel.close()
        if self._shared is not None:
            self._shared.forget()

    async def _run(self, rpc: d.Rpc, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
                   out: Sequence[Any] | None) -> Message:
        exchange = _Exchange(rpc, request, like, out, self._shared)
        method = self._methods.get(rpc.path) or self._methods.setdefault(rpc.path, self._channel.unary_unary(rpc.path))
        retries = Retries(self._retry, self._timeout if timeout is None else timeout)
        renewed = False
        while True:
            try:
                return exchange.answer(await method(exchange.attempt(), timeout=retries.remaining(), metadata=self._metadata))
            except grpc.RpcError as failed:
                error, pushback, started = _error(failed, self._address)
            if not renewed and exchange.has_lost_memory(error):
                renewed, exchange = True, _Exchange(rpc, request, like, out, self._shared)
                continue
            await asyncio.sleep(retries.wait_after(error, pushback, not (started and exchange.has_regions)))

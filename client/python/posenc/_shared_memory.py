"""Memory shared with a server on the same host (docs/shared-memory.md), for large operands.

An operand is copied into a block of shared memory, the server computes in place, and the answer is a view of the block. The
block serves another call when the answer is gone. Nothing of the tensors passes through gRPC.

A server may go on with a call that its caller has given up. So the block of a call whose end the server has not confirmed
serves no other call: its registration ends, and the server forgets the memory when it has ended the call.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

from posenc import _descriptors as d
from posenc import _tensors
from posenc._wire import Encoder, Message, join, new_message
from posenc.errors import DeadlineExceeded, Error, NotFound, Unavailable

# Where a server on this host is looked for unless connect() names its side socket: as the Helm chart has it.
VARIABLE, USUAL = "POSENC_SHARED_MEMORY_SOCKET", "/run/posenc/memory.sock"
SMALLEST = 1 << 20  # bytes; smaller tensors are sent in messages, which costs less than looking for a block
_SECONDS, _SECONDS_FOUND = 10.0, 1.0  # to wait for a side socket that was given, and one that was found
# The operands that a call may overwrite, by RPC, and whether they are in a message of their own.
_OPERANDS = {"ApplyRotary": (("q", True), ("k", True)), "AddBias": (("scores", False),)}


def shared_memory_of(address: str, given: str | bool | None) -> SharedMemory | None:
    """Returns the memory to share with the server at an address. `given`: the side socket, False for none, None to look."""
    if isinstance(given, str):
        return SharedMemory(given, found=False)
    if given is None and _LOCAL.match(address):
        path = os.environ.get(VARIABLE, USUAL)
        if path and os.path.exists(path):
            return SharedMemory(path, found=True)
    return None


_LOCAL = re.compile(r"(unix:|unix-abstract:|((dns|ipv4|ipv6):/*)?(localhost|127\.\d+\.\d+\.\d+|\[?::1\]?)(:|$))")


class _Block:
    """Memory that is registered at a server."""

    def __init__(self, memory: mmap.mmap, token: bytes, connection: socket.socket):
        self._memory, self.size, self.token, self.connection = memory, len(memory), token, connection
        self.farewell = _packet({"unregister": {"token": token}})
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))


class Lease:
    """An operand's place in a block, for one call and its answer."""

    def __init__(self, pool: SharedMemory, block: _Block, view: _tensors.View):
        self._pool, self._block, self._view, self._forks = pool, block, view, _forks
        self._in_call = False

    def region(self) -> dict[str, Any]:
        return {"token": self._block.token, "offset": 0, "byte_size": self._view.size}

    def fill(self) -> None:
        """Copies the operand to the block: before each attempt, because a failed one leaves undefined contents."""
        self._in_call = True
        ctypes.memmove(self._block.address, self._view.address, self._view.size)

    def end_call(self) -> None:
        """Says that the server has answered, and so does not use the block any more."""
        self._in_call = False

    def answer(self, kind: _tensors.Kind) -> Any:
        memory: Any = (ctypes.c_char * self._view.size).from_address(self._block.address)
        memory.owner = self
        return kind.wrap(self._view.dtype, self._view.shape, memory)

    def __del__(self) -> None:
        # A forked child may have an answer in the block.
        self._pool.give_back(self._block, again=not self._in_call and self._forks == _forks)


class SharedMemory:
    """Blocks that are registered at a server's side socket. Thread-safe.

    A socket that was found instead of given may be another server's, or closed to this user. Then it is not used: the first
    error turns shared memory off.
    """

    # Bound here, because modules may be gone when the interpreter ends.
    _MOST_FREE = 8  # blocks that wait for the next call
    _MOST_UNANSWERED = 64  # requests that nobody waits for: a server closes a connection whose answers are not taken

    def __init__(self, path: str, found: bool):
        self._path, self._found = path, found
        self._works = False  # the server has computed in a block
        self._off = False
        self._returned: deque[tuple[_Block, bool]] = deque()
        self._begin()
        _LIVING.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._free: list[_Block] = []
        self._unwanted: deque[bytes] = deque()  # requests to unregister that are not sent yet
        self._unanswered = 0  # requests to unregister that the server has not answered yet

    def begin_in_child(self) -> None:
        """Leaves the connection and its blocks to the process that this one was forked from."""
        if self._socket is not None:
            self._socket.close()
        self._returned.clear()
        self._begin()

    def large(self, rpc: d.Rpc, request: Mapping[str, Any]) -> dict[str, _tensors.View]:
        """Returns the operands of a request that belong in shared memory, by field."""
        found: dict[str, _tensors.View] = {}
        for name, is_operand in () if self._off else _OPERANDS.get(rpc.name, ()):
            holder: Any = request.get(name) if is_operand else request
            if not isinstance(holder, Mapping) or "output" in holder:
                continue
            tensor: Any = cast("Mapping[str, Any]", holder).get("tensor" if is_operand else name)
            if tensor is None or isinstance(tensor, (Mapping, Message)):
                continue
            view = _tensors.kind_of(tensor).view(tensor, f"{name}.tensor" if is_operand else name)
            if view.size >= SMALLEST:
                found[name] = view
        return found

    def place(self, rpc: d.Rpc, request: Mapping[str, Any], operands: Mapping[str, _tensors.View],
              seconds: float) -> tuple[Mapping[str, Any], dict[str, Lease]]:
        """Puts operands of a request into blocks. Returns the request with regions, and the places by field.

        May wait for the server, for at most so many seconds.
        """
        end = time.monotonic() + seconds
        leases: dict[str, Lease] = {}
        for name, view in operands.items():
            lease = self._take(view, end)
            if lease is None:
                continue
            leases[name] = lease
            placed = {"dtype": view.dtype, "shape": view.shape, "region": lease.region()}
            if dict(_OPERANDS[rpc.name])[name]:
                request = {**request, name: {**request[name], "tensor": placed, "output": lease.region()}}
            else:
                request = {**request, name: placed, "output": lease.region()}
        return request, leases

    def give_back(self, block: _Block, again: bool) -> None:
        """Keeps a block for the next call if it may serve one again, or forgets it. Waits for nobody.

        The garbage collector may call this anywhere, also in a thread that holds the lock.
        """
        self._returned.append((block, again))
        self._sort_returned()

    def forget(self) -> None:
        """Ends all registrations: the server has lost them, or the client is closed."""
        with self._lock:
            self._disconnect()
        self._sort_returned()

    def worked(self) -> None:
        self._works = True

    def has_lost(self, error: Error) -> bool:
        """True if the server does not know our blocks: it has restarted, or the socket is another server's."""
        refused = error.reason == "UNSUPPORTED" and error.field.endswith(("region", "output"))
        unknown = isinstance(error, NotFound) or self._found and refused
        if unknown:
            self.forget()
            self._off = self._found and not self._works
            self._works = False
        return unknown

    def _sort_returned(self) -> None:
        """Sorts what was given back. A thread that holds the lock does so when it releases it."""
        while self._returned and self._lock.acquire(blocking=False):
            try:
                while self._returned:
                    block, again = self._returned.popleft()
                    if block.connection is not self._socket:
                        continue  # its registration has ended with the connection
                    if again:
                        self._free.append(block)
                    else:
                        self._unwanted.append(block.farewell)
                while len(self._free) > self._MOST_FREE:
                    self._unwanted.append(self._free.pop(0).farewell)
                self._unregister()
            finally:
                self._lock.release()

    def _take(self, view: _tensors.View, end: float) -> Lease | None:
        """Returns a place, or None if there is no more memory to share."""
        size = 1 << (view.size - 1).bit_length()
        if not self._lock.acquire(timeout=max(0.0, end - time.monotonic())):
            raise self._late()
        try:
            for n, block in enumerate(self._free):
                if block.size == size:
                    return Lease(self, self._free.pop(n), view)
            block = self._register(size, end)
            return None if block is None else Lease(self, block, view)
        except Unavailable:
            if not self._found:
                raise
            self._off = not self._works
            return None
        finally:
            self._lock.release()
            self._sort_returned()

    def _register(self, size: int, end: float) -> _Block | None:
        """Requires the lock."""
        try:
            file, memory = _allocate(size)
        except OSError:
            return None
        try:
            token = self._ask(_packet({"register_memfd": {"byte_size": size}}), file, end).token
        finally:
            os.close(file)  # both sides have mapped it
        return _Block(memory, token, self._socket) if token and self._socket else None

    def _unregister(self) -> None:
        """Sends the requests that nobody waits for, as far as the server takes them. Requires the lock."""
        if self._socket is None:
            return
        self._socket.setblocking(False)
        try:
            while self._unanswered:
                if not self._socket.recv(8192):
                    return self._disconnect()
                self._unanswered -= 1
        except BlockingIOError:
            pass
        except OSError:
            return self._disconnect()
        try:
            while self._unwanted and self._unanswered < self._MOST_UNANSWERED:
                # Counted before, because an interrupt may end this anywhere: a missing answer is noticed, but another
                # request's would be taken for the next one's.
                self._unanswered += 1
                self._socket.send(self._unwanted[0])
                self._unwanted.popleft()
        except BlockingIOError:
            self._unanswered -= 1
        except OSError:
            self._disconnect()

    def _disconnect(self) -> None:
        """Ends the connection, and with it the registrations. Requires the lock."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._free.clear()
        self._unwanted.clear()
        self._unanswered = 0

    def _ask(self, packet: bytes, file: int, end: float) -> Any:
        """Sends a request to the side socket and returns its answer. Requires the lock."""
        self._unregister()
        is_new = self._socket is None
        answer, reason = b"", "it closed the connection"
        try:
            answer = self._exchange(packet, file, end)
        except OSError as error:
            reason = str(error)
            is_new = is_new or isinstance(error, TimeoutError)
        finally:
            if not answer:  # an interrupt may come at any point: the next request would get this one's answer
                self._disconnect()
        if answer:
            return new_message(d.api().messages["posenc.v1.SharedMemoryResponse"], memoryview(answer), _tensors.NUMPY)
        if time.monotonic() >= end:
            raise self._late()
        if not is_new:  # the server may have restarted since
            return self._ask(packet, file, end)
        raise Unavailable(f"no answer from the side socket {self._path} ({reason}); is posenc-server running with "
                          f"--shared-memory-socket {self._path}?", "UNAVAILABLE")

    def _exchange(self, packet: bytes, file: int, end: float) -> bytes:
        """Returns the answer's packet, which is empty if the server has closed the connection."""
        most = _SECONDS_FOUND if self._found else _SECONDS
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._wait_until(end, most)
            self._socket.connect(self._path)
        self._wait_until(end, most)
        socket.send_fds(self._socket, [packet], [file])
        while self._unanswered:
            if not self._socket.recv(8192):
                return b""
            self._unanswered -= 1
        return self._socket.recv(8192)

    def _wait_until(self, end: float, most: float) -> None:
        assert self._socket is not None
        self._socket.settimeout(max(0.001, min(most, end - time.monotonic())))

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"the side socket {self._path} did not answer within the call's time limit",
                                "DEADLINE_EXCEEDED")


def _allocate(size: int) -> tuple[int, mmap.mmap]:
    """Returns the descriptor of a sealed file in memory, and the file's memory."""
    file = os.memfd_create("posenc", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, size)
        import fcntl  # not on every platform
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return file, mmap.mmap(file, size)
    except OSError:
        os.close(file)
        raise


def _packet(request: Mapping[str, Any]) -> bytes:
    pieces, _ = Encoder({}, True).message(d.api().messages["posenc.v1.SharedMemoryRequest"], request, "")
    return join(pieces)


_LIVING: weakref.WeakSet[SharedMemory] = weakref.WeakSet()
_forks = 0  # of this process


def _count_fork() -> None:
    global _forks
    _forks += 1


def _begin_in_child() -> None:
    _count_fork()
    for one in list(_LIVING):
        one.begin_in_child()


# Before and after: blocks of answers that the child has, too, are known as such whatever other threads do meanwhile.
if hasattr(os, "register_at_fork"):  # not on every platform
    os.register_at_fork(before=_count_fork, after_in_parent=_count_fork, after_in_child=_begin_in_child)

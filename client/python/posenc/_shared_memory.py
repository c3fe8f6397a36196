"""Memory shared with a server on the same host (docs/shared-memory.md), for large operands.

An operand is copied into a block of shared memory, the server computes in place, and the answer is a view of the block. The
block serves another call when the answer is gone. Nothing of the tensors passes through gRPC.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import re
import socket
import threading
from collections.abc import Mapping
from typing import Any

from posenc import _descriptors as d
from posenc import _tensors
from posenc._wire import Encoder, Message, join, new_message
from posenc.errors import Error, NotFound, Unavailable

# Where a server on this host is looked for unless connect() names its side socket: as the Helm chart has it.
VARIABLE, USUAL = "POSENC_SHARED_MEMORY_SOCKET", "/run/posenc/memory.sock"
SMALLEST = 1 << 20  # bytes; smaller tensors are sent in messages, which costs less than looking for a block
_MOST_FREE = 8  # blocks that wait for the next call
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
    def __init__(self, size: int):
        self.file = os.memfd_create("posenc", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(self.file, size)
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.memory = mmap.mmap(self.file, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.size, self.token = size, b""
        self.connection: socket.socket | None = None  # that has registered it

    def __del__(self) -> None:
        os.close(self.file)


class Lease:
    """An operand's place in a block, for one call and its answer."""

    def __init__(self, pool: SharedMemory, block: _Block, view: _tensors.View):
        self._pool, self._block, self._view = pool, block, view

    def region(self) -> dict[str, Any]:
        return {"token": self._block.token, "offset": 0, "byte_size": self._view.size}

    def fill(self) -> None:
        """Copies the operand to the block: before each attempt, because a failed one leaves undefined contents."""
        ctypes.memmove(self._block.address, self._view.address, self._view.size)

    def answer(self, kind: _tensors.Kind) -> Any:
        memory: Any = (ctypes.c_char * self._view.size).from_address(self._block.address)
        memory.owner = self
        return kind.wrap(self._view.dtype, self._view.shape, memory)

    def __del__(self) -> None:
        self._pool.give_back(self._block)


class SharedMemory:
    """Blocks that are registered at a server's side socket. Thread-safe.

    A socket that was found instead of given may be another server's, or closed to this user. Then it is not used: the first
    error turns shared memory off.
    """

    def __init__(self, path: str, found: bool):
        self._path, self._found = path, found
        self._works = False  # the server has computed in a block
        self._off = False
        self._lock = threading.RLock()  # the garbage collector may give a block back anywhere
        self._socket: socket.socket | None = None
        self._free: list[_Block] = []

    def place(self, rpc: d.Rpc, request: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Lease]]:
        """Puts the large operands of a request into blocks. Returns the request with regions, and the places by field."""
        leases: dict[str, Lease] = {}
        for name, is_operand in () if self._off else _OPERANDS.get(rpc.name, ()):
            holder: Any = request.get(name) if is_operand else request
            if not isinstance(holder, Mapping) or "output" in holder:
                continue
            tensor = holder.get("tensor" if is_operand else name)
            if tensor is None or isinstance(tensor, (Mapping, Message)):
                continue
            view = _tensors.kind_of(tensor).view(tensor, f"{name}.tensor" if is_operand else name)
            lease = self._take(view) if view.size >= SMALLEST else None
            if lease is None:
                continue
            leases[name] = lease
            placed = {"dtype": view.dtype, "shape": view.shape, "region": lease.region()}
            request = ({**request, name: {**holder, "tensor": placed, "output": lease.region()}} if is_operand else
                       {**request, name: placed, "output": lease.region()})
        return request, leases

    def give_back(self, block: _Block) -> None:
        """Keeps a block for the next call, or forgets it."""
        with self._lock:
            if block.token and block.connection is self._socket is not None:
                self._free.append(block)
            while len(self._free) > _MOST_FREE:
                self._unregister(self._free.pop(0))

    def forget(self) -> None:
        """Ends all registrations: the server has lost them, or the client is closed."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
            self._free.clear()

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

    def _take(self, view: _tensors.View) -> Lease | None:
        """Returns a place, or None if the server does not register more memory."""
        size = 1 << (view.size - 1).bit_length()
        with self._lock:
            for n, block in enumerate(self._free):
                if block.size == size:
                    return Lease(self, self._free.pop(n), view)
            block = _Block(size)
            try:
                answer = self._ask({"register_memfd": {"byte_size": size}}, block.file)
            except Unavailable:
                self._off = self._found
                if not self._found:
                    raise
                return None
            block.token, block.connection = answer.token or b"", self._socket
        return Lease(self, block, view) if block.token else None

    def _unregister(self, block: _Block) -> None:
        self._ask({"unregister": {"token": block.token}})

    def _ask(self, request: Mapping[str, Any], *files: int) -> Any:
        """Sends a request to the side socket and returns its answer. Requires the lock."""
        pieces, _ = Encoder({}, True).message(d.api().messages["posenc.v1.SharedMemoryRequest"], request, "")
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._socket.settimeout(_SECONDS_FOUND if self._found else _SECONDS)
                self._socket.connect(self._path)
            socket.send_fds(self._socket, [join(pieces)], list(files))
            packet = self._socket.recv(8192)
        except OSError as error:
            packet = b""
            reason = str(error)
        else:
            reason = "it closed the connection"
        if not packet:
            self._socket = None
            self._free.clear()
            raise Unavailable(f"no answer from the side socket {self._path} ({reason}); is posenc-server running with "
                              f"--shared-memory-socket {self._path}?", "UNAVAILABLE")
        return new_message(d.api().messages["posenc.v1.SharedMemoryResponse"], memoryview(packet), _tensors.NUMPY)

"""The caller's side of shared memory, made only from the proto files and Python's own modules."""

import contextlib
import fcntl
import mmap
import os
import signal
import socket
import struct

from google.protobuf.message import Message
from posenc.v1 import shared_memory_pb2, tensor_pb2

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def sealed_memfd(size, seals=SEALS):
    file = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


class Side:
    """A connection to the side socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)
        self.socket.connect(str(path))

    def close(self):
        self.socket.close()

    def ask(self, request, files=()):
        """Sends a request, or any bytes, and returns the answer; None if the connection has ended."""
        packet = request if isinstance(request, bytes) else request.SerializeToString()
        socket.send_fds(self.socket, [packet], list(files))
        return self.receive()

    def receive(self):
        try:
            packet = self.socket.recv(8192)
        except ConnectionError:
            return None
        return shared_memory_pb2.SharedMemoryResponse.FromString(packet) if packet else None

    def register_memfd(self, file, size, **settings):
        return self.ask(shared_memory_pb2.SharedMemoryRequest(
            register_memfd=shared_memory_pb2.RegisterMemfd(byte_size=size, **settings)), [file])

    def register_posix(self, name, size, **settings):
        return self.ask(shared_memory_pb2.SharedMemoryRequest(
            register_posix=shared_memory_pb2.RegisterPosix(name=name, byte_size=size, **settings)))

    def unregister(self, token):
        return self.ask(shared_memory_pb2.SharedMemoryRequest(
            unregister=shared_memory_pb2.UnregisterMemory(token=token)))

    def memory(self, size):
        return Memory(self, sealed_memfd(size), size)


@contextlib.contextmanager
def standing_still(server):
    server.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        server.signal(signal.SIGCONT)


class LingeringSocket:
    """A TCP socket with unsent data, whose last close() waits for so many seconds."""

    def __init__(self, seconds=1000):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.socket = socket.create_connection(self.listener.getsockname())
        self.reader, _ = self.listener.accept()  # reads nothing
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.socket.send(bytes(65536))

    def pass_to(self, connection):
        """Sends the descriptor with a byte, to a server that stands still: it is then the last one to close it."""
        socket.send_fds(connection, [b"x"], [self.socket.fileno()])
        self.socket.close()

    def close(self):
        self.reader.close()  # ends the wait of whoever closes the socket
        self.listener.close()
        self.socket.close()


class Memory:
    """A file in memory that is mapped here and registered."""

    def __init__(self, side, file, size):
        self.file, self.size, self.taken = file, size, 0
        self.bytes = mmap.mmap(file, size)
        answer = side.register_memfd(file, size)
        assert len(answer.token) == 16, answer
        self.token = answer.token

    def part(self, offset, size):
        return tensor_pb2.Region(token=self.token, offset=offset, byte_size=size)

    def take(self, size):
        """Returns a region of the next `size` bytes, one byte after the previous region to break alignment."""
        offset = self.taken + 1
        self.taken = offset + size
        assert self.taken <= self.size
        return self.part(offset, size)

    def put(self, data):
        region = self.take(len(data))
        self.bytes[region.offset:region.offset + len(data)] = data
        return region

    def get(self, region):
        assert region.token == self.token
        return self.bytes[region.offset:region.offset + region.byte_size]


def tensors(message, path=()):
    """Yields each tensor of a message, at any depth, with the names of the fields that lead to it."""
    if isinstance(message, tensor_pb2.Tensor):
        yield path, message
        return
    for field, value in message.ListFields():
        if field.message_type is None or not hasattr(value, "__len__") and not isinstance(value, Message):
            continue
        for inner in [value] if isinstance(value, Message) else value:
            if isinstance(inner, Message):
                yield from tensors(inner, (*path, field.name))


def shared(request, memory):
    """Returns a copy of the request with all of its tensors in the memory, and the number of tensors."""
    copy = type(request)()
    copy.CopyFrom(request)
    count = 0
    for _, tensor in tensors(copy):
        data = tensor.data
        tensor.ClearField("data")
        tensor.region.CopyFrom(memory.put(data))
        count += 1
    return copy, count

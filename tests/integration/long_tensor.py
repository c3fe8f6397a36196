"""scripts/soak --tensor-gib N: sends a tensor larger than a message and the server's memory by StreamApplyRotary."""

import itertools
import pathlib
import tempfile
import threading
import time

from conftest import BUILD  # first: it makes the messages importable
import grpc
import numpy
import samples
from client import Client
from posenc.v1 import rotary_pb2, service_pb2, tensor_pb2
from server_process import ServerProcess

HEADS, HEAD_DIM = 8, 128
ROW = HEADS * HEAD_DIM * 2
CHUNK = 4 << 20
IN_FLIGHT = 8  # chunks sent and not answered
SECONDS = 580  # the server ends a stream after 600
COMPARED = 64  # one chunk in so many is compared with the unary call's answer
MEMORY = 256 << 20


def rotation(tokens, offset, data=b""):
    request = samples.rotary(dtype=samples.BF16, offset=offset)
    request.rotary.settings.CopyFrom(samples.rope_settings(HEAD_DIM, 5e5))
    request.q.tensor.CopyFrom(
        tensor_pb2.Tensor(dtype=samples.BF16, shape=[1, tokens, HEADS, HEAD_DIM], data=data))
    return request


class Sender:
    """Streams the chunks from `first_missing` on, all with the same data, and checks answers."""

    def __init__(self, client, size, data):
        self._client, self._size, self._data = client, size, data
        self.first_missing = 0

    def run(self, until):
        """Streams until the first `until` bytes are answered, then cancels the stream if it has not ended."""
        room = threading.Semaphore(IN_FLIGHT)
        chunks = range(self.first_missing, self._size, CHUNK)

        def requests():
            yield service_pb2.StreamApplyRotaryRequest(header=rotation(self._size // ROW, 0))
            for begin in chunks:
                room.acquire()
                chunk = service_pb2.RotaryChunk(operand=rotary_pb2.OPERAND_QUERY)
                chunk.rows.byte_offset = begin
                chunk.rows.data = self._data[:min(CHUNK, self._size - begin)]
                yield service_pb2.StreamApplyRotaryRequest(chunk=chunk)

        call = self._client.method("StreamApplyRotary")(requests(), timeout=SECONDS)
        answered = {}
        for answer in itertools.islice(call, 1, None):  # the first answers the header
            room.release()
            rows = answer.chunk.rows
            answered[rows.byte_offset] = len(rows.data)
            if rows.byte_offset // CHUNK % COMPARED == 0:
                self.compare(rows)
            while self.first_missing in answered:  # answers come in any order
                self.first_missing += answered.pop(self.first_missing)
            if self.first_missing >= until:
                break
        call.cancel()
        for _ in range(IN_FLIGHT + 1):  # gRPC's thread may wait for room
            room.release()

    def compare(self, rows):
        whole = rotation(len(rows.data) // ROW, rows.byte_offset // ROW, self._data[:len(rows.data)])
        expected = self._client.call("ApplyRotary", whole).q.data
        assert rows.data == expected, f"the chunk at byte {rows.byte_offset} differs from the unary answer"


def run(gib):
    size = int(gib * (1 << 30)) // ROW * ROW
    data = (numpy.random.default_rng(1).standard_normal(CHUNK // 2).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    flags = ["--max-in-flight-bytes", str(MEMORY), "--max-request-bytes", "32MiB", "--max-output-bytes", "32MiB",
             "--answer-pool-bytes", "64MiB", "--log-level", "error"]
    with (tempfile.TemporaryDirectory() as directory,
          ServerProcess([BUILD / "bin/posenc-server"], pathlib.Path(directory), *flags) as server):
        client = Client(server.port)
        sender = Sender(client, size, data)
        begin = time.monotonic()
        sender.run(size // 3)
        print(f"cancelled at byte {sender.first_missing}, going on from there", flush=True)
        sender.run(size)
        seconds = time.monotonic() - begin
        client.when_idle()
        peak = server.peak_memory()
    print(f"{size / 1e9:.1f} GB in {seconds:.0f} s, {size / 1e9 / seconds:.2f} GB/s; the server's memory at most "
          f"{peak >> 20} MiB, of --max-in-flight-bytes {MEMORY >> 20} MiB")
    assert sender.first_missing == size
    # The bytes in flight, the answer buffer pool, and what an idle server needs.
    limit = MEMORY + (64 << 20) + (96 << 20)
    assert peak < limit, f"more than {limit >> 20} MiB"

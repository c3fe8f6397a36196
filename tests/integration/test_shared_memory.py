"""Tests tensors in shared memory: answers have the same bytes, and nothing that a caller does ends the server."""

import contextlib
import ctypes
import mmap
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import grpc
import numpy
import pytest
import samples
from client import SECONDS, Client
from posenc.v1 import rotary_pb2, service_pb2, shared_memory_pb2
from rich_requests import rich_requests
from shared_memory import LingeringSocket, Side, sealed_memfd, shared, standing_still, tensors
from tensors import FP32, FP64, INT64, tensor
from unanswered_file import unanswered_file

MEBIBYTE = 2**20
MOST_WAITING = 64  # descriptors that the side socket closes
INVALID, NOT_FOUND, EXHAUSTED, DATA_LOSS = (
    getattr(grpc.StatusCode, name) for name in ("INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "DATA_LOSS"))


@pytest.fixture
def directory():
    """A directory whose path is short enough for a socket."""
    path = tempfile.mkdtemp(prefix="posenc-")
    yield pathlib.Path(path)
    shutil.rmtree(path)


@pytest.fixture
def start(start_server, directory):
    """A function that starts a server with a side socket, and connects to both."""
    with contextlib.ExitStack() as stack:
        def start(*flags):
            path = directory / "memory.sock"
            server = start_server("--shared-memory-socket", path, "--shared-memory-prefix", "/posenc-", *flags)
            client = stack.enter_context(Client(server.port))
            side = stack.enter_context(contextlib.closing(Side(path)))
            client.server, client.path = server, path
            return client, side
        yield start


@contextlib.contextmanager
def posix_memory(size):
    """A POSIX shared-memory object: its name, its descriptor and its bytes."""
    libc = ctypes.CDLL(None, use_errno=True)
    name = f"/posenc-{os.getpid()}-{time.monotonic_ns()}"
    file = libc.shm_open(name.encode(), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    assert file >= 0, os.strerror(ctypes.get_errno())
    try:
        os.ftruncate(file, size)
        yield name, file, mmap.mmap(file, size)
    finally:
        libc.shm_unlink(name.encode())
        os.close(file)


def wait_until(condition, what):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what


# The fields of a request that place its answer's tensors, and those tensors.
OUTPUTS = {"ApplyRotary": {"q.output": "q", "k.output": "k"},
           "GenerateTable": {"cos_output": "cos", "sin_output": "sin"},
           "GenerateEmbedding": {"output": "embedding"}, "GenerateBias": {"output": "bias"},
           "AddBias": {"output": "scores"}, "RelativeScores": {"output": "scores"},
           "RelativeValues": {"output": "values"}}
# The operands that an answer may overwrite.
OPERANDS = {"ApplyRotary": {"q.output": "q.tensor", "k.output": "k.tensor"}, "AddBias": {"output": "scores"},
            "GenerateEmbedding": {"output": "add_to"}, "RelativeScores": {"output": "add_to"},
            "RelativeValues": {"output": "add_to"}}


def at(message, path):
    """Returns the field at a path, or None if a message on the path is not set."""
    for name in path.split("."):
        if not message.HasField(name):
            return None
        message = getattr(message, name)
    return message


def set_region(message, path, region):
    for name in path.split("."):
        message = getattr(message, name)
    message.CopyFrom(region)


def without_places(answer, memory):
    """Returns the answer as it would be without shared memory."""
    copy = type(answer)()
    copy.CopyFrom(answer)
    for _, tensor in tensors(copy):
        if tensor.HasField("region"):
            assert not tensor.data
            tensor.data = memory.get(tensor.region)
            tensor.ClearField("region")
    return copy


def large_requests():
    """Yields requests that are computed in several slabs."""
    values = numpy.random.default_rng(5).standard_normal((2, 700, 4, 64))
    yield "ApplyRotary", samples.rotary(values, values[:, :, :1], rotary_dim=64, offset=3)
    yield "ApplyRotary", samples.rotary(values, rotary_dim=32, layout=rotary_pb2.LAYOUT_BHSD)
    yield "GenerateTable", samples.table(count=5000, rotary_dim=64, dtype=FP64)
    yield "GenerateEmbedding", samples.embedding(dim=128, count=3000)
    yield "GenerateBias", samples.bias(heads=4, queries=300, keys=300)
    not_rotated = samples.rotary(values)
    not_rotated.rotary.Clear()
    not_rotated.rotary.model.config_json = (
        b'{"model_type": "cohere2", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4, '
        b'"sliding_window_pattern": 4, "rope_theta": 10000.0, "sliding_window": 16}')
    not_rotated.rotary.model.layer_type = "full_attention"
    yield "ApplyRotary", not_rotated


def test_the_same_bytes_from_regions_and_to_them(start):
    client, side = start()
    in_regions, to_regions, in_place = 0, set(), set()
    for method, request in [*rich_requests(), *large_requests()]:
        if method == "GetServerInfo":
            continue
        expected = client.call(method, request)
        memory = side.memory(32 * MEBIBYTE)
        moved, count = shared(request, memory)
        assert client.call(method, moved) == expected, method
        in_regions += count
        outputs = {place: answer for place, answer in OUTPUTS.get(method, {}).items()
                   if method != "ApplyRotary" or request.HasField(answer)}
        if not outputs:
            continue
        for source in (request, moved):  # data and regions
            to_other = type(source)()
            to_other.CopyFrom(source)
            for place, answer in outputs.items():
                set_region(to_other, place, memory.take(len(at(expected, answer).data)))
            answer = client.call(method, to_other)
            for place, name in outputs.items():
                assert at(answer, name).region == at(to_other, place)
                to_regions.add((method, place))
            assert without_places(answer, memory) == expected, method
        own = type(moved)()
        own.CopyFrom(moved)
        for place, operand in OPERANDS.get(method, {}).items():
            operand_tensor = at(own, operand)
            if place in outputs and operand_tensor is not None:
                set_region(own, place, operand_tensor.region)
                in_place.add((method, place))
        if own != moved:
            assert without_places(client.call(method, own), memory) == expected, method
    assert in_regions > 50
    assert to_regions == {(method, place) for method, places in OUTPUTS.items() for place in places}
    assert in_place == {(method, place) for method, places in OPERANDS.items() for place in places}


def test_a_rotation_may_be_larger_than_any_message(start):
    client, side = start("--max-request-bytes", "64KiB", "--max-output-bytes", "64KiB", "--max-in-flight-bytes", "1MiB")
    values = numpy.random.default_rng(3).standard_normal((1, 4096, 4, 64)).astype("<f4")
    request = samples.rotary(numpy.ones((1, 1, 4, 64)), rotary_dim=64)
    memory = side.memory(values.nbytes + 100)
    request.q.tensor.ClearField("data")
    request.q.tensor.shape[1] = 4096
    request.q.tensor.region.CopyFrom(memory.put(values.tobytes()))
    refusal = client.refusal("ApplyRotary", request)
    assert (refusal.code, refusal.reason) == (EXHAUSTED, "TOO_LARGE"), "the answer is no message either"
    request.q.output.CopyFrom(request.q.tensor.region)
    client.call("ApplyRotary", request)
    rotated = numpy.frombuffer(memory.get(request.q.output), "<f4").reshape(values.shape)
    assert numpy.array_equal(rotated[:, 0], values[:, 0]) and not numpy.array_equal(rotated[:, 1], values[:, 1])


def test_what_is_copied_counts_as_the_requests(start):
    client, side = start("--max-request-bytes", "64KiB")
    memory = side.memory(2 * MEBIBYTE)
    request = samples.rotary(numpy.ones((1, 10000, 1, 8)))
    shared_request, _ = shared(request, memory)
    shared_request.q.output.CopyFrom(shared_request.q.tensor.region)
    shared_request.positions.ids.CopyFrom(tensor(numpy.arange(10000), INT64))
    shared_request.positions.ids.region.CopyFrom(memory.put(shared_request.positions.ids.data))
    shared_request.positions.ids.ClearField("data")
    refusal = client.refusal("ApplyRotary", shared_request)
    assert (refusal.code, refusal.reason, refusal.started) == (EXHAUSTED, "TOO_LARGE", "false")
    assert "80000 in regions" in refusal.message


def in_region(memory, **more):
    request, _ = shared(samples.rotary(), memory)
    for name, value in more.items():
        setattr(request.q.tensor.region, name, value)
    return request


def test_wrong_regions_are_named(start):
    client, side = start()
    memory, other = side.memory(4096), side.memory(4096)
    token = in_region(memory).q.tensor.region
    assert token.byte_size == 64
    for change, code, reason, field in [
            (dict(token=b"0123456789abcdef"), NOT_FOUND, "NOT_FOUND", "q.tensor.region.token"),
            (dict(token=b"short"), INVALID, "MISMATCH", "q.tensor.region.token"),
            (dict(offset=-1), INVALID, "OUT_OF_RANGE", "q.tensor.region.offset"),
            (dict(offset=4096 - 63), INVALID, "OUT_OF_RANGE", "q.tensor.region"),
            (dict(offset=2**63 - 1), INVALID, "OUT_OF_RANGE", "q.tensor.region"),
            (dict(byte_size=2**63 - 1), INVALID, "OUT_OF_RANGE", "q.tensor.region"),
            (dict(byte_size=63), INVALID, "MISMATCH", "q.tensor.region.byte_size")]:
        refusal = client.refusal("ApplyRotary", in_region(memory, **change))
        assert (refusal.code, refusal.reason, refusal.field) == (code, reason, field), change
        assert refusal.started == "false"
    both = in_region(memory)
    both.q.tensor.data = bytes(64)
    refusal = client.refusal("ApplyRotary", both)
    assert (refusal.reason, refusal.field) == ("CONFLICT", "q.tensor.data")
    overlapping = in_region(memory)
    overlapping.q.output.CopyFrom(overlapping.q.tensor.region)
    overlapping.q.output.offset += 1
    refusal = client.refusal("ApplyRotary", overlapping)
    assert (refusal.reason, refusal.field) == ("CONFLICT", "q.output") and "q.tensor" in refusal.message
    short = in_region(memory)
    short.q.output.CopyFrom(other.part(0, 63))
    refusal = client.refusal("ApplyRotary", short)
    assert (refusal.reason, refusal.field) == ("MISMATCH", "q.output.byte_size")
    half = samples.table()
    half.cos_output.CopyFrom(memory.part(0, 64))
    assert client.refusal("GenerateTable", half).field == "sin_output"
    half.sin_output.CopyFrom(memory.part(64, 64))
    client.call("GenerateTable", half)
    stream = service_pb2.StreamTableRequest(table=half)
    assert client.refusal("StreamTable", stream).reason == "UNSUPPORTED"


def test_read_only_memory_is_no_output(start):
    client, side = start()
    memory = side.memory(4096)
    request = in_region(memory)
    answer = side.register_memfd(memory.file, 4096, read_only=True)
    request.q.tensor.region.token = answer.token
    expected = client.call("ApplyRotary", samples.rotary())
    assert client.call("ApplyRotary", request) == expected
    request.q.output.CopyFrom(request.q.tensor.region)
    refusal = client.refusal("ApplyRotary", request)
    assert (refusal.reason, refusal.field) == ("CONFLICT", "q.output")


def test_off_unless_it_is_asked_for(client):
    info = client.info()
    assert (info.limits.max_regions, info.limits.max_region_bytes) == (0, 0)
    request = samples.rotary()
    request.q.output.token = b"0123456789abcdef"
    refusal = client.refusal("ApplyRotary", request)
    assert (refusal.code, refusal.reason, refusal.field) == (INVALID, "UNSUPPORTED", "q.output")


def test_regions_end_with_their_connection(start):
    client, side = start("--max-regions", "3", "--max-region-bytes", "1MiB")
    limits = client.info().limits
    assert (limits.max_regions, limits.max_region_bytes) == (3, MEBIBYTE)
    other = Side(client.path)
    stays, goes = side.memory(5000), other.memory(6000)
    counters = client.info().counters
    assert (counters.regions, counters.region_bytes) == (2, 11000)
    assert other.unregister(stays.token).error.code == NOT_FOUND.value[0], "another connection's"
    other.close()
    wait_until(lambda: client.info().counters.regions == 1, "the region has outlived its connection")
    assert client.refusal("ApplyRotary", in_region(goes)).code == NOT_FOUND
    client.call("ApplyRotary", in_region(stays))
    assert side.unregister(stays.token).unregistered
    assert client.refusal("ApplyRotary", in_region(stays)).code == NOT_FOUND
    assert client.info().counters.region_bytes == 0


def test_regions_have_limits(start):
    client, side = start("--max-regions", "2", "--max-region-bytes", "1MiB")
    file = sealed_memfd(2 * MEBIBYTE)
    error = side.register_memfd(file, MEBIBYTE + 1).error
    assert error.code == EXHAUSTED.value[0] and "max_region_bytes" in error.message
    assert side.register_memfd(file, 1).token and side.register_memfd(file, 1).token
    error = side.register_memfd(file, 1).error
    assert error.code == EXHAUSTED.value[0] and "max_regions" in error.message
    assert client.info().counters.regions == 2


def test_malformed_packets_harm_nobody(start):
    client, side = start()
    memory = side.memory(4096)
    random = numpy.random.default_rng(11)
    for size in (1, 2, 7, 100, 4096):
        for _ in range(20):
            answer = side.ask(random.bytes(size), [memory.file] * int(random.integers(4)))
            if answer is None:  # too many descriptors
                side = Side(client.path)
                memory = side.memory(4096)
    assert side.ask(bytes(5000)).error.code == EXHAUSTED.value[0]
    assert side.receive() is None, "a packet too long is the connection's end"
    with contextlib.closing(Side(client.path)) as again:
        client.call("ApplyRotary", in_region(again.memory(4096)))


def test_a_failure_of_poll_is_logged_and_survived(start):
    client, side = start()
    limits = resource.prlimit(client.server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(client.server.pid, resource.RLIMIT_NOFILE, (1, limits[1]))  # poll() refuses more than one
    side.socket.send(b"x")
    client.server.log_with("side socket error=\"poll: ")
    resource.prlimit(client.server.pid, resource.RLIMIT_NOFILE, limits)
    assert side.receive().error.code == INVALID.value[0]


def test_a_descriptor_that_lingers_holds_nobody(start):
    # Closing it takes until its peer closes, or until the time that the caller has set.
    client, side = start()
    with contextlib.closing(LingeringSocket()) as lingering, contextlib.closing(Side(client.path)) as hostile:
        with standing_still(client.server):
            lingering.pass_to(hostile.socket)
        assert hostile.receive().error.code == INVALID.value[0]
        assert len(side.register_memfd(sealed_memfd(4096), 4096).token) == 16


def test_descriptors_that_linger_do_not_hold_the_end(start):
    client, _ = start("--drain-timeout", "1")
    with contextlib.ExitStack() as stack:
        lingering = [stack.enter_context(contextlib.closing(LingeringSocket())) for _ in range(MOST_WAITING)]
        hostile = [stack.enter_context(contextlib.closing(Side(client.path))) for _ in lingering]
        with standing_still(client.server):
            for one, side in zip(lingering, hostile):
                one.pass_to(side.socket)
        for side in hostile:
            assert side.receive().error.code == INVALID.value[0]
        client.server.signal(signal.SIGTERM)
        assert client.server.wait() == 0
        assert "files are still read or closed" in client.server.log()


def test_a_descriptor_whose_close_waits_holds_nobody(start, tmp_path):
    client, side = start()
    with unanswered_file(tmp_path / "file") as file, contextlib.ExitStack() as stack:
        if file is None:
            pytest.skip("only root can mount file systems, where there is /dev/fuse")
        for number in range(MOST_WAITING + 1):
            hostile = stack.enter_context(contextlib.closing(Side(client.path)))
            socket.send_fds(hostile.socket, [b"x"], [file])
            answer = hostile.receive()
            if number == 0:
                assert answer.error.code == INVALID.value[0]
                assert len(side.register_memfd(sealed_memfd(4096), 4096).token) == 16, "others are served"
        assert answer.error.code == EXHAUSTED.value[0]
        assert f"must be without descriptors while {MOST_WAITING} wait to be closed" in answer.error.message
        assert side.register_posix("/none", 4096).error.code == INVALID.value[0], "goes on without descriptors"
        client.call("ApplyRotary", samples.rotary())
    # Once the file system is gone, all are closed.
    memory = sealed_memfd(4096)

    def registers():
        with contextlib.closing(Side(client.path)) as again:
            return len(again.register_memfd(memory, 4096).token) == 16
    wait_until(registers, "no descriptors are taken")


def test_memory_by_name(start):
    client, side = start()
    with posix_memory(4096) as (name, _, data):
        token = side.register_posix(name, 4096).token
        request = samples.rotary()
        data[:64] = request.q.tensor.data
        request.q.tensor.ClearField("data")
        request.q.tensor.region.token, request.q.tensor.region.byte_size = token, 64
        assert client.call("ApplyRotary", request) == client.call("ApplyRotary", samples.rotary())
        for other in ("/other", name + "/..", name[1:], "/posenc-", "/posenc-\0"):
            assert side.register_posix(other, 4096).error.code == INVALID.value[0], other
        assert side.register_posix(name, 4097).error.code == INVALID.value[0]


def long_table(memory, offset, rows=2**17, dim=128):
    """Returns a long-running request and its size. Its progress is visible in the memory: the first cosine is 1."""
    request = samples.table(count=rows, rotary_dim=dim, dtype=FP64)
    half = rows * dim // 2 * 8
    request.cos_output.CopyFrom(memory.part(offset, half))
    request.sin_output.CopyFrom(memory.part(offset + half, half))
    return request, 2 * half


def test_memory_stays_while_a_call_uses_it(start):
    client, side = start("--threads", "1")
    memory = side.memory(256 * MEBIBYTE)
    request, size = long_table(memory, 0)
    call = client.method("GenerateTable").future(request, timeout=SECONDS)
    wait_until(lambda: memory.bytes[:8] != bytes(8), "the call has not begun")
    assert side.unregister(memory.token).unregistered
    counters = client.info().counters
    assert call.done() or counters.regions == 1, "unregistered, but held"
    call.result()
    wait_until(lambda: client.info().counters.regions == 0, "the call has ended and still holds it")
    plain = samples.table(count=2**17, rotary_dim=128, dtype=FP64)
    assert memory.bytes[:size // 2] == client.call("GenerateTable", plain).cos.data


def assert_lost(call, field):
    with pytest.raises(grpc.RpcError) as error:
        call.result()
    assert error.value.code() == DATA_LOSS and field in error.value.details()


def test_memory_that_is_truncated_under_a_writer(start):
    client, side = start("--threads", "2")
    size = 256 * MEBIBYTE
    with posix_memory(size) as (name, file, data):
        token = side.register_posix(name, size).token

        class Memory:
            @staticmethod
            def part(offset, byte_size):
                return type(samples.table().cos_output)(token=token, offset=offset, byte_size=byte_size)

        request, _ = long_table(Memory, 0)
        call = client.method("GenerateTable").future(request, timeout=SECONDS)
        wait_until(lambda: data[:8] != bytes(8), "the call has not begun")
        os.ftruncate(file, 4096)
        assert_lost(call, "output")
        # The server goes on; the memory is lost for good.
        client.call("ApplyRotary", samples.rotary())
        refusal = client.refusal("GenerateTable", request)
        assert (refusal.code, refusal.reason, refusal.field) == (DATA_LOSS, "DAMAGED", "cos_output")
        os.ftruncate(file, size)
        assert client.refusal("GenerateTable", request).code == DATA_LOSS
        assert side.register_posix(name, size).token


def test_memory_that_is_truncated_under_a_reader(start):
    client, side = start("--threads", "1")
    size = 64 * MEBIBYTE
    with posix_memory(size) as (name, file, data):
        token = side.register_posix(name, size).token
        output = side.memory(size)
        request = samples.rotary(numpy.ones((1, 1, 1, 128)), rotary_dim=128, theta=1e6)
        request.q.tensor.ClearField("data")
        request.q.tensor.shape[1] = size // 512
        request.q.tensor.region.token, request.q.tensor.region.byte_size = token, size
        request.q.output.CopyFrom(output.part(0, size))
        data[:4] = numpy.float32(1).tobytes()
        call = client.method("ApplyRotary").future(request, timeout=SECONDS)
        wait_until(lambda: output.bytes[:4] != bytes(4), "the call has not begun")
        os.ftruncate(file, 0)
        assert_lost(call, "q.tensor")
    client.call("ApplyRotary", samples.rotary())


def test_memory_that_is_truncated_before_a_call(start):
    client, side = start()
    with posix_memory(4 * MEBIBYTE) as (name, file, _):
        token = side.register_posix(name, 4 * MEBIBYTE).token
        os.ftruncate(file, 0)
        # The region is read while the request is prepared. Zeros in its place would be legal positions.
        request = samples.rotary()
        request.positions.ids.CopyFrom(tensor([3, 4], INT64))
        request.positions.ids.ClearField("data")
        request.positions.ids.region.token, request.positions.ids.region.byte_size = token, 16
        refusal = client.refusal("ApplyRotary", request)
        assert (refusal.code, refusal.field) == (DATA_LOSS, "positions.ids.region")
    client.call("ApplyRotary", samples.rotary())


def test_tokens_are_in_no_log(start):
    client, side = start("--log-level", "debug")
    memory = side.memory(4096)
    client.call("ApplyRotary", in_region(memory))
    unknown = in_region(memory, token=b"0123456789abcdef")
    assert "0123456789" not in client.refusal("ApplyRotary", unknown).message
    side.unregister(memory.token)
    client.refusal("ApplyRotary", in_region(memory))
    log = client.server.log_with("NOT_FOUND")
    assert "0123456789" not in log
    assert memory.token.hex() not in log and repr(memory.token)[2:-1] not in log


def test_a_killed_servers_sockets_are_replaced(start_server, directory):
    flags = ("--shared-memory-socket", directory / "memory.sock", "--listen", f"unix:{directory / 'grpc.sock'}")
    first = start_server(*flags)
    first.kill()
    assert (directory / "memory.sock").exists()
    start_server(*flags)
    Side(directory / "memory.sock").memory(4096)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_users_are_turned_away(start):
    client, _ = start()
    os.chmod(client.path.parent, 0o755)
    os.chmod(client.path, 0o666)
    # The server runs as root. The user nobody is neither root nor the server's user. A process of its own connects: one
    # with gRPC's threads must not fork.
    connect = ("import socket, sys; side = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
               "side.connect(sys.argv[1]); sys.stdout.buffer.write(side.recv(8192))")
    answer = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", sys.executable, "-c", connect, client.path],
                            capture_output=True, timeout=SECONDS, cwd="/")
    assert answer.returncode == 0, answer
    assert shared_memory_pb2.SharedMemoryResponse.FromString(answer.stdout).error.code == 7, "PERMISSION_DENIED"


def test_unix_and_tcp_at_once(start_server, directory):
    path = directory / "grpc.sock"
    server = start_server("--listen", f"unix:{path}")
    with Client(server.port) as by_tcp:
        by_tcp.call("ApplyRotary", samples.rotary())
        with contextlib.closing(grpc.insecure_channel(f"unix:{path}")) as channel:
            call = channel.unary_unary("/posenc.v1.PositionalEncodingService/ApplyRotary",
                                       type(samples.rotary()).SerializeToString,
                                       service_pb2.ApplyRotaryResponse.FromString)
            assert call(samples.rotary(), timeout=SECONDS) == by_tcp.call("ApplyRotary", samples.rotary())


def test_a_live_servers_unix_socket_is_not_taken(start_server, build, directory):
    path = directory / "grpc.sock"
    server = start_server("--listen", f"unix:{path}")
    second = subprocess.run([build / "bin" / "posenc-server", "--listen", f"unix:{path}"], capture_output=True,
                            text=True, timeout=SECONDS)
    assert second.returncode == 1 and "in use" in second.stderr
    with contextlib.closing(grpc.insecure_channel(f"unix:{path}")) as channel:
        grpc.channel_ready_future(channel).result(SECONDS)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


def test_what_is_remembered_of_a_call_is_not_what_lay_in_its_memory(start):
    """Small calls that differ only in the bytes of their operands are prepared once."""
    client, side = start()
    values = [numpy.random.default_rng(n).standard_normal((1, 1, 8, 64)) for n in range(4)]
    requests = [samples.rotary(value, rotary_dim=64, offset=3) for value in values]
    expected = [client.call("ApplyRotary", request).q.data for request in requests]
    memory = side.memory(MEBIBYTE)
    size = len(expected[0])
    moved = samples.rotary(values[0], rotary_dim=64, offset=3)
    moved.q.tensor.data = b""
    moved.q.tensor.region.CopyFrom(memory.part(0, size))
    moved.q.output.CopyFrom(memory.part(size, size))
    for request, answer in [*zip(requests, expected)] * 2:
        memory.bytes[:size] = request.q.tensor.data
        assert client.call("ApplyRotary", moved).q.region == moved.q.output
        assert memory.bytes[size:2 * size] == answer
    kept = type(moved).FromString(moved.SerializeToString())

    moved.positions.ids.CopyFrom(tensor(numpy.array([3]), INT64))
    moved.positions.ids.data = b""
    moved.positions.ids.region.CopyFrom(memory.part(2 * size, 8))
    for position in [3, 5, 3, 9, 9]:
        memory.bytes[2 * size:2 * size + 8] = position.to_bytes(8, "little")
        client.call("ApplyRotary", moved)
        request = samples.rotary(values[-1], rotary_dim=64, offset=position)
        assert memory.bytes[size:2 * size] == client.call("ApplyRotary", request).q.data

    client.call("ApplyRotary", kept)
    side.unregister(memory.token)
    assert client.refusal("ApplyRotary", kept).code == NOT_FOUND

"""Shared memory of the Open Inference Protocol: names, bounds, scopes, and memory that goes away."""

import concurrent.futures
import contextlib
import json
import mmap
import os
import pathlib

import grpc
import numpy
import pytest
import samples
from client import Client
from google.protobuf import json_format
from inference import service_pb2 as oip
from inference_client import InferenceClient, infer, set_parameters
from server_process import SANITIZER_BYTES, ServerProcess, limited
from shared_memory import Side
from tensors import FP32, INT64
from test_lifecycle import wait_until

SETTINGS = json_format.MessageToJson(samples.rope_settings())
SHAPE = (1, 2, 1, 8)
SIZE = 64
Q = numpy.arange(16, dtype="f4").reshape(SHAPE)
INVALID = grpc.StatusCode.INVALID_ARGUMENT


class Memory:
    """A POSIX object."""

    def __init__(self, name, size):
        self.key, self.path = "/" + name, pathlib.Path("/dev/shm") / name
        self.path.write_bytes(bytes(size))
        with open(self.path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), size)

    def write(self, offset, values):
        self.map[offset:offset + values.nbytes] = values.tobytes()

    def read(self, offset, shape=SHAPE):
        return numpy.frombuffer(self.map[offset:offset + 4 * int(numpy.prod(shape))], "<f4").reshape(shape)


@pytest.fixture
def memory():
    made = []

    def make(size=4096):
        made.append(Memory(f"posenc-oip-{os.getpid()}-{len(made)}", size))
        return made[-1]
    yield make
    for one in made:
        one.path.unlink(missing_ok=True)


@pytest.fixture
def server(start_server):
    return start_server("--inference-memory-prefix", "/posenc-oip-")


@pytest.fixture
def client(server):
    with InferenceClient(server.port) as client:
        yield client


def register(client, name, memory, byte_size=4096, offset=0):
    client.call("SystemSharedMemoryRegister", name=name, key=memory.key, offset=offset, byte_size=byte_size)


def region(name, byte_size=SIZE, offset=None):
    return {"shared_memory_region": name, "shared_memory_byte_size": byte_size,
            **({} if offset is None else {"shared_memory_offset": offset})}


def rotation(source, target=None):
    """A rotation of q in the region `source`; `target`: the parameters of its output."""
    request = infer("posenc.rotary", layout="BSHD", offset=3, settings=SETTINGS)
    set_parameters(request.inputs.add(name="q", datatype="FP32", shape=SHAPE), source)
    if target is not None:
        set_parameters(request.outputs.add(name="q"), target)
    return request


def expected(client):
    return client.infer(infer("posenc.rotary", [("q", Q, FP32)], layout="BSHD", offset=3, settings=SETTINGS))["q"]


def test_input_and_output(client, memory):
    one = memory()
    one.write(128, Q)
    register(client, "a", one, byte_size=2048, offset=64)  # so the region's byte 64 is the object's byte 128
    assert numpy.array_equal(client.infer(rotation(region("a", offset=64)))["q"], expected(client))
    response = client.call("ModelInfer", rotation(region("a", offset=64), region("a", byte_size=100, offset=1024)))
    assert list(response.raw_output_contents) == [b""] and list(response.outputs[0].shape) == list(SHAPE)
    assert numpy.array_equal(one.read(64 + 1024), expected(client))
    client.call("ModelInfer", rotation(region("a", offset=64), region("a", offset=64)))  # in place
    assert numpy.array_equal(one.read(128), expected(client))


def test_regions_of_one_object(client, memory):
    """Each is mapped from its own offset. Calls see where they overlap."""
    one = memory(3 * 4096)
    register(client, "a", one, byte_size=4096, offset=4096 + 4)
    register(client, "b", one, byte_size=4096, offset=2 * 4096)
    one.write(4096 + 4, Q)
    client.call("ModelInfer", rotation(region("a"), region("b")))
    assert numpy.array_equal(one.read(2 * 4096), expected(client))
    overlapping = rotation(region("a", offset=4096 - SIZE), region("b"))  # the last 4 bytes of "a" are in "b"
    assert client.refusal("ModelInfer", overlapping).reason == "CONFLICT"


def test_repeated_requests_see_the_memory_as_it_is(client, memory):
    """They are prepared once; names may be given to other regions meanwhile."""
    one, two = memory(), memory()
    register(client, "a", one)
    wanted = expected(client)
    for factor in (1, 2, 4):  # exact
        one.write(0, factor * Q)
        response = client.call("ModelInfer", rotation(region("a"), region("a", offset=1024)))
        assert list(response.raw_output_contents) == [b""]
        assert numpy.array_equal(one.read(1024), factor * wanted)
    client.call("SystemSharedMemoryUnregister", name="a")
    assert client.refusal("ModelInfer", rotation(region("a"), region("a", offset=1024))).code == grpc.StatusCode.NOT_FOUND
    register(client, "a", two)
    two.write(0, 8 * Q)
    client.call("ModelInfer", rotation(region("a"), region("a", offset=1024)))
    assert numpy.array_equal(two.read(1024), 8 * wanted) and numpy.array_equal(one.read(1024), 4 * wanted)


def test_positions_are_read_each_time(client, memory):
    """In one region, for requests of the same bytes, unary and in a stream."""
    one = memory()
    one.write(0, Q)
    register(client, "a", one)
    request = rotation(region("a"), region("a", offset=1024))
    del request.parameters["offset"]
    set_parameters(request.inputs.add(name="position_ids", datatype="INT64", shape=[2]),
                   region("a", byte_size=16, offset=512))
    for first, second in [(3, 4), (3, 4), (9, 4), (3, 4), (3, 5), (3, 5)]:
        wanted = client.infer(infer("posenc.rotary", [("q", Q, FP32), ("position_ids", [first, second], INT64)],
                                    layout="BSHD", settings=SETTINGS))["q"]
        one.write(512, numpy.array([first, second], "<i8"))
        client.call("ModelInfer", request)
        assert numpy.array_equal(one.read(1024), wanted), (first, second)
        one.write(1024, 0 * Q)
        [answer] = client.method("ModelStreamInfer")(iter([request]))
        assert not answer.error_message and numpy.array_equal(one.read(1024), wanted), (first, second)
    one.write(512, numpy.array([2**60, 4], "<i8"))
    assert client.refusal("ModelInfer", request).field == "position_ids[0]"


def test_raw_bytes_beside_memory(client, memory):
    one = memory()
    one.write(0, Q)
    register(client, "a", one)
    request = rotation(region("a"))
    request.inputs.add(name="k", datatype="FP32", shape=SHAPE)
    request.raw_input_contents.append((2 * Q).tobytes())
    answer = client.infer(request)
    assert numpy.array_equal(answer["q"], expected(client)) and numpy.array_equal(answer["k"], 2 * expected(client))


def test_tables_into_memory(client, memory):
    one = memory()
    register(client, "a", one)
    request = infer("posenc.table", offset=0, count=4, dtype="FP32", form="HALF_WIDTH", settings=SETTINGS)
    plain = client.infer(request)
    set_parameters(request.outputs.add(name="sin"), region("a", byte_size=1024, offset=512))
    response = client.call("ModelInfer", request)
    assert [output.name for output in response.outputs] == ["sin"] and list(response.raw_output_contents) == [b""]
    assert numpy.array_equal(one.read(512, (4, 4)), plain["sin"])


OUT_OF_BOUNDS = {"offset": region("a", offset=4096), "end": region("a", offset=4096 - SIZE + 1),
                 "negative": region("a", offset=-1), "wraps": region("a", offset=2**63 - 1), "size": region("a", byte_size=2**63 - 1),
                 "negative size": region("a", byte_size=-1)}


@pytest.mark.parametrize("part", OUT_OF_BOUNDS.values(), ids=OUT_OF_BOUNDS)
def test_parts_outside_the_region(client, memory, part):
    register(client, "a", memory())
    for request in (rotation(part), rotation(region("a"), part)):
        refusal = client.refusal("ModelInfer", request)
        assert (refusal.code, refusal.reason) == (INVALID, "OUT_OF_RANGE")


def test_what_is_wrong_with_a_tensor(client, memory):
    register(client, "a", memory())
    lacks_size = rotation({"shared_memory_region": "a"})
    assert client.refusal("ModelInfer", lacks_size).reason == "MISSING"
    assert client.refusal("ModelInfer", rotation(region("b"))).code == grpc.StatusCode.NOT_FOUND
    assert client.refusal("ModelInfer", rotation(region("a", byte_size=SIZE - 4))).reason == "MISMATCH"
    small = rotation(region("a"), region("a", byte_size=SIZE - 1, offset=512))
    assert client.refusal("ModelInfer", small).reason == "OUT_OF_RANGE"
    assert client.refusal("ModelInfer", rotation(region("a"), region("a", offset=4))).reason == "CONFLICT"  # overlap
    beside = rotation(region("a"))
    beside.inputs[0].contents.fp32_contents.append(1)
    assert client.refusal("ModelInfer", beside).reason == "CONFLICT"
    as_text = rotation({"shared_memory_region": "a", "shared_memory_byte_size": "64"})
    assert client.refusal("ModelInfer", as_text).reason == "MISMATCH"


def test_what_is_wrong_with_a_registration(client, memory):
    one = memory()
    register(client, "a", one)
    doubled = client.refusal("SystemSharedMemoryRegister", name="a", key=one.key, byte_size=64)
    assert doubled.code == grpc.StatusCode.ALREADY_EXISTS
    for fields in ({"byte_size": 0}, {"byte_size": 4097}, {"byte_size": 64, "offset": 4096 - 63}, {"byte_size": 2**64 - 1},
                   {"byte_size": 64, "offset": 2**64 - 1}, {"byte_size": 64, "offset": 2**63 - 1}, {"byte_size": 64, "key": ""},
                   {"byte_size": 64, "key": "/posenc-oip-/../x"},
                   {"byte_size": 64, "key": "/other"}, {"byte_size": 64, "key": one.key + "\0"}, {"byte_size": 64, "name": ""},
                   {"byte_size": 64, "name": "n" * 1000}):
        refusal = client.refusal("SystemSharedMemoryRegister", **{"name": "b", "key": one.key, **fields})
        assert refusal.code == INVALID, fields
    for fields, field, value in [({"byte_size": 64, "offset": 2**40}, "offset", 2**40),
                                 ({"byte_size": 64, "offset": 2**64 - 1}, "offset", 2**64 - 1),
                                 ({"byte_size": 2**63, "offset": 1}, "byte_size", 2**63),
                                 ({"byte_size": 4097, "offset": 1}, "byte_size", 4097)]:
        refusal = client.refusal("SystemSharedMemoryRegister", name="b", key=one.key, **fields)
        assert (refusal.field, refusal.value) == (field, str(value)), fields
    unopened = client.refusal("SystemSharedMemoryRegister", name="b", key="/posenc-oip-nothing", byte_size=64)
    assert (unopened.code, unopened.reason, unopened.field) == (grpc.StatusCode.INTERNAL, "UNSUPPORTED", "key")
    assert list(client.call("SystemSharedMemoryStatus").regions) == ["a"]


def test_status_and_unregistering(client, memory):
    one, two = memory(), memory()
    register(client, "a", one, byte_size=64, offset=32)
    register(client, "b", two)
    status = client.call("SystemSharedMemoryStatus").regions
    assert {name: (part.name, part.key, part.offset, part.byte_size) for name, part in status.items()} == {
        "a": ("a", one.key, 32, 64), "b": ("b", two.key, 0, 4096)}
    assert list(client.call("SystemSharedMemoryStatus", name="a").regions) == ["a"]
    assert client.refusal("SystemSharedMemoryStatus", name="c").code == grpc.StatusCode.NOT_FOUND
    client.call("SystemSharedMemoryUnregister", name="a")
    client.call("SystemSharedMemoryUnregister", name="a")
    assert list(client.call("SystemSharedMemoryStatus").regions) == ["b"]
    assert client.refusal("ModelInfer", rotation(region("a"))).code == grpc.StatusCode.NOT_FOUND
    register(client, "a", two)  # the name is free again, and means the other object
    two.write(0, Q)
    assert numpy.array_equal(client.infer(rotation(region("a")))["q"], expected(client))
    client.call("SystemSharedMemoryUnregister")
    assert not client.call("SystemSharedMemoryStatus").regions
    assert client.call("ServerMetadata").extensions[-1] == "system_shared_memory"


def test_a_name_that_many_register_at_once_is_one_region(server, client, memory):
    one = memory()

    def register(_):
        with InferenceClient(server.port) as other:
            try:
                other.call("SystemSharedMemoryRegister", name="same", key=one.key, byte_size=SIZE)
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(register, range(32)))
    assert sorted(codes, key=str) == [grpc.StatusCode.ALREADY_EXISTS] * 31 + [grpc.StatusCode.OK]
    with Client(server.port) as typed:
        wait_until(lambda: typed.info().counters.regions == 1, "those that came too late stay registered")
        client.call("SystemSharedMemoryUnregister", name="same")
        wait_until(lambda: typed.info().counters.regions == 0, "the region stays registered")


def test_memory_of_gpus(client):
    assert not client.call("CudaSharedMemoryStatus").regions
    client.call("CudaSharedMemoryUnregister")
    client.call("CudaSharedMemoryUnregister", name="a")
    assert client.refusal("CudaSharedMemoryRegister", name="a", byte_size=64).code == INVALID
    assert client.refusal("CudaSharedMemoryStatus", name="a").code == grpc.StatusCode.NOT_FOUND


def test_truncated_memory(client, memory):
    one = memory()
    register(client, "a", one)
    os.truncate(one.path, 0)
    refusal = client.refusal("ModelInfer", rotation(region("a")))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.DATA_LOSS, "DAMAGED")
    assert client.refusal("ModelInfer", rotation(region("a"))).reason == "DAMAGED"


def test_limits_of_registrations(start_server, memory):
    server = start_server("--inference-memory-prefix", "/", "--max-regions", "2", "--max-region-bytes", "8192")
    with InferenceClient(server.port) as client:
        one = memory(65536)
        assert client.refusal("SystemSharedMemoryRegister", name="x", key=one.key, byte_size=8193).reason == "TOO_LARGE"
        register(client, "a", one)
        register(client, "b", one)
        assert client.refusal("SystemSharedMemoryRegister", name="c", key=one.key, byte_size=1).reason == "TOO_LARGE"
        client.call("SystemSharedMemoryUnregister", name="a")
        register(client, "c", one, offset=61440)  # only what is mapped counts


def test_names_leave_half_to_connections(start_server, memory, tmp_path):
    socket = tmp_path / "memory"
    server = start_server("--inference-memory-prefix", "/", "--shared-memory-socket", socket, "--max-regions", "4",
                          "--max-region-bytes", "8192")
    with InferenceClient(server.port) as client, contextlib.closing(Side(socket)) as side:
        one = memory(65536)
        refusal = client.refusal("SystemSharedMemoryRegister", name="x", key=one.key, byte_size=4097)
        assert (refusal.reason, refusal.field) == ("TOO_LARGE", "byte_size") and "half" in refusal.limit
        for name in ("a", "b"):
            client.call("SystemSharedMemoryRegister", name=name, key=one.key, byte_size=1)
        refusal = client.refusal("SystemSharedMemoryRegister", name="c", key=one.key, byte_size=1)
        assert (refusal.reason, refusal.field) == ("TOO_LARGE", "name") and "half" in refusal.limit
        assert side.memory(4096).token and side.memory(1).token


def test_off_by_default(start_server, memory):
    server = start_server()
    with InferenceClient(server.port) as client:
        one = memory()
        refusal = client.refusal("SystemSharedMemoryRegister", name="a", key=one.key, byte_size=64)
        assert (refusal.code, refusal.reason, refusal.field) == (grpc.StatusCode.UNIMPLEMENTED, "UNSUPPORTED", "key")
        refusal = client.refusal("SystemSharedMemoryUnregister", name="a")
        assert (refusal.code, refusal.reason, refusal.field) == (grpc.StatusCode.UNIMPLEMENTED, "UNSUPPORTED", "name")
        client.call("SystemSharedMemoryUnregister")
        assert not client.call("SystemSharedMemoryStatus").regions
        assert client.refusal("ModelInfer", rotation(region("a"))).code == grpc.StatusCode.NOT_FOUND
        assert "system_shared_memory" not in client.call("ServerMetadata").extensions


def test_names_belong_to_their_caller(start_server, memory, tmp_path):
    socket = f"unix:{tmp_path}/grpc.sock"
    server = start_server("--inference-memory-prefix", "/", "--listen", socket)
    one, two = memory(), memory()
    with InferenceClient(server.port) as tcp, InferenceClient(socket) as unix:
        register(tcp, "a", one)
        register(unix, "a", two)
        assert tcp.call("SystemSharedMemoryStatus").regions["a"].key == one.key
        assert unix.call("SystemSharedMemoryStatus").regions["a"].key == two.key
        tcp.call("SystemSharedMemoryUnregister")
        assert list(unix.call("SystemSharedMemoryStatus").regions) == ["a"]
        assert tcp.refusal("ModelInfer", rotation(region("a"))).code == grpc.StatusCode.NOT_FOUND
        two.write(0, Q)
        assert numpy.array_equal(unix.infer(rotation(region("a")))["q"], expected(unix))


@pytest.mark.parametrize("header", ["x-posenc-peer", "x-forwarded-for", "forwarded", "via", "x-real-ip",
                                    "x-envoy-expected-rq-timeout-ms"])
def test_calls_that_come_by_a_proxy_are_not_local(start_server, memory, tmp_path, header):
    """Over a Unix socket and over loopback. What the proxy says of its caller is not believed, but that it is a proxy is."""
    socket = f"unix:{tmp_path}/grpc.sock"
    server = start_server("--inference-memory-prefix", "/", "--listen", socket)
    one = memory()
    one.write(0, Q)
    for address in (socket, server.port):
        with InferenceClient(address) as client, InferenceClient(address) as proxy:
            register(client, "a", one)
            by_proxy = grpc.intercept_channel(proxy.channel, AddHeader(header))
            proxy.channel = by_proxy
            for refusal in (proxy.refusal("SystemSharedMemoryRegister", name="b", key=one.key, byte_size=4096),
                            proxy.refusal("SystemSharedMemoryStatus"), proxy.refusal("ModelInfer", rotation(region("a")))):
                assert refusal.code == grpc.StatusCode.PERMISSION_DENIED, address
            proxy.call("SystemSharedMemoryUnregister")
            assert numpy.array_equal(client.infer(rotation(region("a")))["q"], expected(proxy))


class AddHeader(grpc.UnaryUnaryClientInterceptor):
    def __init__(self, name):
        self.name = name

    def intercept_unary_unary(self, call, details, request):
        return call(details._replace(metadata=[*(details.metadata or ()), (self.name, "ipv4:192.0.2.1:5")]), request)


def test_the_right_to_shared_memory(start_server, memory, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"identities": [
        {"name": "unix", "unix_sockets": True, "allow": ["compute", "shared_memory"]},
        {"name": "tcp", "anonymous": True, "allow": ["compute"]}]}))
    socket = f"unix:{tmp_path}/grpc.sock"
    server = start_server("--inference-memory-prefix", "/", "--listen", socket, "--policy", policy)
    one = memory()
    with InferenceClient(server.port) as tcp, InferenceClient(socket) as unix:
        register(unix, "a", one)
        assert tcp.refusal("SystemSharedMemoryStatus").code == grpc.StatusCode.PERMISSION_DENIED
        assert tcp.refusal("ModelInfer", rotation(region("a"))).code == grpc.StatusCode.NOT_FOUND
        assert unix.infer(rotation(region("a")))["q"].shape == SHAPE


@pytest.mark.skipif(SANITIZER_BYTES > 0, reason="AddressSanitizer reserves terabytes of virtual memory")
def test_regions_leave_virtual_memory_for_calls(server_program, tmp_path):
    program = limited(server_program, 2048)
    path = pathlib.Path(f"/dev/shm/posenc-oip-{os.getpid()}-sparse")
    try:
        with open(path, "wb") as file:
            file.truncate(1 << 31)
        with ServerProcess(program, tmp_path, "--inference-memory-prefix", "/posenc-oip-", "--threads", "2") as server, \
                InferenceClient(server.port) as client:
            taken, size = 0, 1 << 30
            while size >= 4096:
                name = f"region-{taken}"
                try:
                    client.call("SystemSharedMemoryRegister", name=name, key=f"/{path.name}", byte_size=size)
                    taken += size
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
                    size //= 2
            assert taken == 1 << 29
            for _ in range(4):
                request = oip.ModelInferRequest(model_name="posenc.table", raw_input_contents=[bytes(8 << 20)])
                assert client.refusal("ModelInfer", request).code == INVALID
    finally:
        path.unlink()

"""The cases of Triton's own tests L0_input_validation, L0_shared_memory, L0_cuda_shared_memory and L0_grpc that have a
meaning here, with the codes that Triton gives. docs/oip.md says which have none, and why. More of the same kind are in
test_oip.py, test_oip_shared_memory.py and test_oip_repository.py."""

import concurrent.futures
import os

import grpc
import numpy
import pytest
import samples
from google.protobuf import json_format
from inference_client import InferenceClient, infer, set_parameters
from tensors import FP32, INT32, INT64
from test_oip_shared_memory import Memory, region

INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
SETTINGS = json_format.MessageToJson(samples.rope_settings())
SHAPE = (1, 2, 1, 8)
SIZE = 64
Q = numpy.arange(16, dtype="f4").reshape(SHAPE)
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def client(server_program, tmp_path_factory):
    from server_process import ServerProcess
    with ServerProcess(server_program, tmp_path_factory.mktemp("server"), "--inference-memory-prefix", "/") as server:
        with InferenceClient(server.port) as client:
            yield client


@pytest.fixture
def memory(client):
    """A function that makes POSIX objects. At the end, no name is registered."""
    made = []

    def make(size=SIZE):
        made.append(Memory(f"posenc-oip-triton-{os.getpid()}-{len(made)}", size))
        return made[-1]
    yield make
    client.call("SystemSharedMemoryUnregister")
    for one in made:
        one.path.unlink(missing_ok=True)


def register(client, name, one, byte_size=SIZE, offset=0):
    client.call("SystemSharedMemoryRegister", name=name, key=one.key, offset=offset, byte_size=byte_size)


def names(client):
    return sorted(client.call("SystemSharedMemoryStatus").regions)


def rotation(*tensors, **parameters):
    return infer("posenc.rotary", tensors, **{"layout": "BSHD", "offset": 3, "settings": SETTINGS, **parameters})


def in_memory(*regions, output=None):
    """A rotation of q, and k, in these regions; `output` is where q goes."""
    request = rotation()
    for name, part in zip("qk", regions):
        set_parameters(request.inputs.add(name=name, datatype="FP32", shape=SHAPE), part)
    if output is not None:
        set_parameters(request.outputs.add(name="q"), output)
    return request


# L0_input_validation

def test_required_inputs(client):
    """None of them, and some but not all; optional ones do not replace them."""
    positions = rotation(("position_ids", [0, 1], INT64))
    del positions.parameters["offset"]
    for request in (rotation(), rotation(("k", Q, FP32)), positions):
        refusal = client.refusal("ModelInfer", request)
        assert (refusal.code, refusal.reason, refusal.field) == (INVALID, "MISSING", "q")


def test_all_inputs_are_optional(client):
    request = infer("posenc.table", offset=0, count=2, dtype="FP32", form="HALF_WIDTH", settings=SETTINGS)
    assert list(client.infer(request)) == ["cos", "sin"]


@pytest.mark.parametrize("given", [14, 18])
def test_bytes_and_shape_differ(client, given):
    request = rotation(("q", numpy.ones(given), FP32))
    del request.inputs[0].shape[:]
    request.inputs[0].shape.extend(SHAPE)
    refusal = client.refusal("ModelInfer", request)
    assert (refusal.code, refusal.reason, refusal.field) == (INVALID, "MISMATCH", "q")
    assert refusal.value == f"{4 * given} bytes" and "64" in refusal.limit


def test_text_is_no_tensor(client):
    for dtype in ("BYTES", "STRING", "INT8", "UINT8"):
        request = rotation(("q", Q, FP32))
        request.inputs[0].datatype = dtype
        refusal = client.refusal("ModelInfer", request)
        assert (refusal.code, refusal.field) == (INVALID, "q.datatype"), dtype


def test_values_that_decide_a_shape_are_too_few_in_memory(client, memory):
    """position_ids stand for Triton's shape tensors: their values are read before the work."""
    one = memory()
    register(client, "p", one)
    request = rotation(("q", Q, FP32))
    del request.parameters["offset"]
    set_parameters(request.inputs.add(name="position_ids", datatype="INT32", shape=[2]), region("p", byte_size=4))
    refusal = client.refusal("ModelInfer", request)
    assert (refusal.code, refusal.reason) == (INVALID, "MISMATCH")


# L0_shared_memory

def test_status_follows_registrations(client, memory):
    one, two = memory(), memory()
    client.call("SystemSharedMemoryUnregister", name="a")  # before it is registered
    assert names(client) == []
    register(client, "a", one)
    assert names(client) == ["a"]
    assert client.refusal("SystemSharedMemoryRegister", name="a", key=one.key,
                          byte_size=SIZE).code == grpc.StatusCode.ALREADY_EXISTS
    assert names(client) == ["a"]
    one.write(0, Q)
    client.call("ModelInfer", in_memory(region("a")))
    register(client, "b", two)  # after a call
    assert names(client) == ["a", "b"]
    client.call("ModelInfer", in_memory(region("a"), output=region("b")))
    client.call("SystemSharedMemoryUnregister", name="b")
    assert names(client) == ["a"]
    client.call("SystemSharedMemoryUnregister")
    assert names(client) == []
    assert client.refusal("SystemSharedMemoryStatus", name="a").code == NOT_FOUND


def test_an_input_region_is_too_large(client, memory):
    register(client, "a", memory(128), byte_size=128)
    refusal = client.refusal("ModelInfer", in_memory(region("a", byte_size=128)))
    assert (refusal.code, refusal.reason) == (INVALID, "MISMATCH")


def test_a_large_offset_of_the_registration(client, memory):
    one = memory(1024 * PAGE)
    one.write(1023 * PAGE, Q)
    register(client, "a", one, byte_size=PAGE, offset=1023 * PAGE)
    expected = client.infer(rotation(("q", Q, FP32)))["q"]
    assert numpy.array_equal(client.infer(in_memory(region("a")))["q"], expected)
    client.call("ModelInfer", in_memory(region("a"), output=region("a", offset=SIZE)))
    assert numpy.array_equal(one.read(1023 * PAGE + SIZE), expected)


def test_an_output_outside_its_region(client, memory):
    """The object is larger than the region, and the region does not begin where the object does."""
    one = memory(PAGE + SIZE)
    register(client, "a", one, offset=PAGE)
    for part in (region("a", offset=SIZE), region("a", offset=1), region("a", byte_size=SIZE + 1),
                 region("a", byte_size=2**63 - 1, offset=32), region("a", offset=-32)):
        refusal = client.refusal("ModelInfer", in_memory(region("a"), output=part))
        assert (refusal.code, refusal.reason) == (INVALID, "OUT_OF_RANGE"), part
    # An int64 of the protocol ends at 2^63 - 1, so only uint64_param can hold more.
    request = in_memory(region("a"), output=region("a", offset=32))
    request.outputs[0].parameters["shared_memory_byte_size"].uint64_param = 2**64 - 32
    assert client.refusal("ModelInfer", request).code == INVALID


@pytest.mark.parametrize("byte_size, offset", [(SIZE + 1, 0), (SIZE, 1), (1, SIZE), (0, SIZE + 1)])
def test_a_registration_outside_its_object(client, memory, byte_size, offset):
    refusal = client.refusal("SystemSharedMemoryRegister", name="a", key=memory().key, byte_size=byte_size, offset=offset)
    assert refusal.code == INVALID and names(client) == []


@pytest.mark.parametrize("key", ["", "/", "///", "name", "//name", "/a/b"])
def test_keys_that_name_no_object(client, key):
    refusal = client.refusal("SystemSharedMemoryRegister", name="a", key=key, byte_size=10000)
    assert (refusal.code, refusal.field) == (INVALID, "key")


def test_an_object_that_there_is_not(client):
    refusal = client.refusal("SystemSharedMemoryRegister", name="a", key="/posenc-oip-triton-nothing", byte_size=64)
    assert (refusal.code, refusal.field) == (grpc.StatusCode.INTERNAL, "key")


def test_unregistering_during_calls(client, memory):
    """A call that has found its regions ends as if they were still registered; a later one does not find them."""
    shape = (1, 4096, 16, 8)
    size = 4 * int(numpy.prod(shape))
    one = memory(2 * size)
    q = numpy.ones(shape, "f4")
    one.write(0, q)
    request = rotation()
    set_parameters(request.inputs.add(name="q", datatype="FP32", shape=shape), region("a", byte_size=size))
    set_parameters(request.outputs.add(name="q"), region("a", byte_size=size, offset=size))
    expected = client.infer(rotation(("q", q, FP32)))["q"]
    codes = set()
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for _ in range(20):
            register(client, "a", one, byte_size=2 * size)
            calls = [threads.submit(client.method("ModelInfer"), request, timeout=60) for _ in range(2)]
            client.call("SystemSharedMemoryUnregister")
            assert names(client) == []
            for call in calls:
                error = call.exception()
                codes.add("OK" if error is None else error.code().name)
                if error is None:
                    assert numpy.array_equal(one.read(size, shape), expected)
    assert codes <= {"OK", "NOT_FOUND"}


# L0_cuda_shared_memory

def test_memory_of_gpus(client):
    for fields in ({}, {"name": "a"}, {"name": "a", "raw_handle": b"1234", "byte_size": 64},
                   {"name": "a", "raw_handle": bytes(64), "byte_size": 2**31}):
        assert client.refusal("CudaSharedMemoryRegister", **fields).code == INVALID
    assert not client.call("CudaSharedMemoryStatus").regions
    assert client.refusal("CudaSharedMemoryStatus", name="a").code == NOT_FOUND
    client.call("CudaSharedMemoryUnregister", name="a")
    client.call("CudaSharedMemoryUnregister")


# L0_grpc

def test_an_output_is_asked_for_twice(client):
    request = rotation(("q", Q, FP32))
    for _ in range(2):
        request.outputs.add(name="q")
    refusal = client.refusal("ModelInfer", request)
    assert (refusal.code, refusal.reason) == (INVALID, "CONFLICT")
    assert client.call("ServerLive").live


def test_contents_with_many_elements(client):
    """As many as fit beside the tensors' raw bytes: 1 MiB elements, 4 MiB."""
    shape = (1, 8192, 16, 8)
    values = numpy.arange(int(numpy.prod(shape)), dtype="f4")
    request = rotation()
    request.inputs.add(name="q", datatype="FP32", shape=shape).contents.fp32_contents.extend(values)
    expected = client.infer(rotation(("q", values.reshape(shape), FP32)))["q"]
    assert numpy.array_equal(client.infer(request)["q"], expected)
    request.inputs[0].contents.fp32_contents.extend(values)  # more than a request may have besides raw bytes
    refusal = client.refusal("ModelInfer", request)
    assert (refusal.code, refusal.reason, refusal.field) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE", "request")


def test_explicit_integers(client):
    request = rotation(("q", Q, FP32), ("position_ids", [4, 9], INT32))
    del request.parameters["offset"]
    expected = client.infer(request)["q"]
    del request.raw_input_contents[:]
    request.inputs[0].contents.fp32_contents.extend(Q.ravel())
    request.inputs[1].contents.int_contents.extend([4, 9])
    assert numpy.array_equal(client.infer(request)["q"], expected)


def test_model_control_is_off(client):
    for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
        assert client.refusal(method, model_name="posenc.rotary").code == grpc.StatusCode.UNAVAILABLE

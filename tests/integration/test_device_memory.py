"""Tests rotation of tensors in a device's memory, by calls that carry none of their bytes."""

import contextlib
import ctypes
import mmap
import os
import tempfile
import time

import grpc
import numpy
import pytest
import samples
from client import Client
from posenc.v1 import rotary_pb2, service_pb2, shared_memory_pb2, tensor_pb2
from shared_memory import Side
from test_moved_keys import expect_only_these_moved, paged

SIZE = 1 << 20


class DeviceMemory:
    """Memory of the fake device: POSIX shared memory, whose name is the handle."""

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.name = f"/posenc-device-{os.getpid()}-{time.monotonic_ns()}"
        file = self.libc.shm_open(self.name.encode(), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        os.ftruncate(file, SIZE)
        self.bytes = mmap.mmap(file, SIZE)
        os.close(file)

    @property
    def handle(self):
        return self.name.encode().ljust(64, b"\0")

    def close(self):
        self.libc.shm_unlink(self.name.encode())


def register(side, memory, device="fake:0", size=SIZE, handle=None, **settings):
    return side.ask(shared_memory_pb2.SharedMemoryRequest(
        register_device_memory=shared_memory_pb2.RegisterDeviceMemory(
            device=device, handle=memory.handle if handle is None else handle, byte_size=size, **settings)))


@pytest.fixture
def start(start_server, build):
    with contextlib.ExitStack() as stack:
        def start(settings="devices=2"):
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="posenc-"))  # short enough for a socket
            path = f"{directory}/memory.sock"
            server = start_server("--device-plugin", build / "tests" / "fake_plugin.so", "--shared-memory-socket", path,
                                  "--shared-memory-prefix", "/posenc-", POSENC_FAKE_PLUGIN=settings)
            client = stack.enter_context(Client(server.port))
            side = stack.enter_context(contextlib.closing(Side(path)))
            return client, side, stack.enter_context(contextlib.closing(DeviceMemory()))

        yield start


def rotation(layout=rotary_pb2.LAYOUT_BSHD, with_k=True):
    values = numpy.arange(2 * 3 * 5 * 8).reshape(2, 3, 5, 8) % 23 - 7
    return samples.rotary(values, values[:, :, ::-1] if with_k else None, layout=layout, offset=1000)


def in_memory(request, token, start=16):
    """Returns the request with its operands in the memory, to be rotated in place, and (operand, slice) of each."""
    moved = type(request).FromString(request.SerializeToString())
    places = []
    for name in ("q", "k"):
        if not request.HasField(name):
            continue
        operand = getattr(moved, name)
        region = tensor_pb2.Region(token=token, offset=start, byte_size=len(operand.tensor.data))
        operand.tensor.data = b""
        operand.tensor.region.CopyFrom(region)
        operand.output.CopyFrom(region)
        places.append((name, slice(start, start + region.byte_size)))
        start += region.byte_size + 64
    return moved, places


@pytest.mark.parametrize("layout", [rotary_pb2.LAYOUT_BSHD, rotary_pb2.LAYOUT_BHSD])
@pytest.mark.parametrize("with_k", [True, False])
def test_they_are_rotated_in_place(start, client, layout, with_k):
    on_device, side, memory = start()
    token = register(side, memory).token
    assert len(token) == 16
    request = rotation(layout, with_k)
    expected = client.call("ApplyRotary", request)
    moved, places = in_memory(request, token)
    for name, place in places:
        memory.bytes[place] = getattr(request, name).tensor.data
    for turn in range(2):
        answer = on_device.call("ApplyRotary", moved)
        assert answer.info.device == "fake:0"
        for name, place in places:
            assert memory.bytes[place] == getattr(expected, name).data
            assert getattr(answer, name).data == b"" and getattr(answer, name).region == getattr(moved, name).output
            memory.bytes[place] = getattr(request, name).tensor.data
    assert on_device.info().counters.regions == 1 and on_device.info().counters.region_bytes == 0


def test_to_another_place(start, client):
    on_device, side, memory = start()
    token = register(side, memory).token
    request = rotation(with_k=False)
    moved, [(_, place)] = in_memory(request, token)
    moved.q.output.offset += 4096
    memory.bytes[place] = request.q.tensor.data
    on_device.call("ApplyRotary", moved)
    assert memory.bytes[place] == request.q.tensor.data
    expected = client.call("ApplyRotary", request).q.data
    assert memory.bytes[place.start + 4096:place.stop + 4096] == expected


@pytest.mark.parametrize("layout", [rotary_pb2.LAYOUT_BSHD, rotary_pb2.LAYOUT_BHSD])
def test_pages_of_cached_keys_turn_in_place(start, client, layout):
    on_device, side, memory = start()
    token = register(side, memory).token

    class OnDevice:
        @staticmethod
        def put(data):
            memory.bytes[64:64 + len(data)] = data
            return tensor_pb2.Region(token=token, offset=64, byte_size=len(data))

    request, cache, region, slots = paged(OnDevice, layout, [4, 0, 3], 2, 9)
    assert on_device.call("ApplyRotary", request).info.device == "fake:0"
    after = numpy.frombuffer(memory.bytes[64:64 + region.byte_size], "<u2").reshape(cache.shape)
    expect_only_these_moved(client, layout, cache, slots, after)
    request.k.output.offset += region.byte_size
    refusal = on_device.refusal("ApplyRotary", request)
    assert (refusal.reason, refusal.field) == ("UNSUPPORTED", "cached_keys.pages") and "an output apart" in refusal.message


def test_queries_are_multiplied_only_by_their_table(start, client):
    on_device, side, memory = start()
    token = register(side, memory).token
    request = rotation()
    request.rotary.settings.query_scale.function = rotary_pb2.QUERY_SCALE_FUNCTION_BEAM
    moved, places = in_memory(request, token)
    for name, place in places:
        memory.bytes[place] = getattr(request, name).tensor.data
    expected = client.call("ApplyRotary", request)
    on_device.call("ApplyRotary", moved)
    for name, place in places:
        assert memory.bytes[place] == getattr(expected, name).data
    moved.precision.preset = rotary_pb2.PRECISION_PRESET_HF_EAGER  # q is multiplied after its rotation
    refusal = on_device.refusal("ApplyRotary", moved)
    assert (refusal.reason, refusal.field) == ("UNSUPPORTED", "q.tensor") and "query_scale" in refusal.message
    moved.rotary.settings.ClearField("rope_parameters")  # and not rotated
    moved.rotary.settings.ClearField("rotary_dim")
    moved.rotary.settings.ClearField("input_pairing")
    refusal = on_device.refusal("ApplyRotary", moved)
    assert (refusal.reason, refusal.field) == ("UNSUPPORTED", "q.tensor") and "query_scale" in refusal.message


def test_nothing_changes_before_the_first_factor(start):
    on_device, side, memory = start()
    token = register(side, memory).token
    request = rotation()
    request.rotary.settings.Clear()
    scale = request.rotary.settings.query_scale
    scale.function = rotary_pb2.QUERY_SCALE_FUNCTION_LLAMA4
    scale.attn_scale, scale.floor_scale = 0.1, 8192
    moved, _ = in_memory(request, token)
    refusal = on_device.refusal("ApplyRotary", moved)
    assert (refusal.reason, refusal.field) == ("UNSUPPORTED", "q.tensor")
    assert "must be of a layer that rotates: q stays as it is" in refusal.message


def test_what_does_not_lie_there(start):
    on_device, side, memory = start()
    token, other = (register(side, memory, device=device).token for device in ("fake:0", "fake:1"))
    request = rotation()
    moved, _ = in_memory(request, token)

    def refused(change, reason, field):
        changed = type(moved).FromString(moved.SerializeToString())
        change(changed)
        refusal = on_device.refusal("ApplyRotary", changed)
        assert (refusal.code, refusal.reason, refusal.field) == (grpc.StatusCode.INVALID_ARGUMENT, reason, field)

    refused(lambda r: r.q.ClearField("output"), "CONFLICT", "q.output")
    refused(lambda r: setattr(r.k.output, "token", other), "CONFLICT", "k.output")

    def k_from_the_message(changed):
        changed.k.CopyFrom(request.k)
    refused(k_from_the_message, "CONFLICT", "k.tensor")

    def positions_there(changed):
        ids = changed.positions.ids
        ids.dtype, ids.region.token, ids.region.byte_size = tensor_pb2.DATA_TYPE_INT64, token, 16
        ids.shape[:] = [2]
    refused(positions_there, "UNSUPPORTED", "positions.ids")
    refused(lambda r: setattr(r.q.output, "offset", r.q.output.offset + 4), "CONFLICT", "q.output")
    refused(lambda r: setattr(r.q.tensor.region, "offset", SIZE), "OUT_OF_RANGE", "q.tensor.region")

    refused(lambda r: setattr(r.hints, "device", "fake:1"), "CONFLICT", "hints.device")

    scores = service_pb2.AddBiasRequest(method=samples.bias(heads=2).method)
    scores.scores.dtype, scores.scores.shape[:] = tensor_pb2.DATA_TYPE_FP32, [1, 2, 3, 3]
    scores.scores.region.CopyFrom(tensor_pb2.Region(token=token, byte_size=4 * 18))
    refusal = on_device.refusal("AddBias", scores)
    assert (refusal.reason, refusal.field) == ("UNSUPPORTED", "scores")


def test_what_cannot_be_registered(start):
    _, side, memory = start()
    for settings, code, field in (
            ({"device": "cuda:0"}, grpc.StatusCode.NOT_FOUND, "device"),
            ({"handle": b"short"}, grpc.StatusCode.INVALID_ARGUMENT, "handle"),
            ({"handle": b"/posenc-none".ljust(64, b"\0")}, grpc.StatusCode.INVALID_ARGUMENT, "handle"),
            ({"size": SIZE + 1}, grpc.StatusCode.INVALID_ARGUMENT, "handle"),
            ({"size": 0}, grpc.StatusCode.INVALID_ARGUMENT, "byte_size")):
        answer = register(side, memory, **settings)
        assert answer.error.code == code.value[0], settings
        assert field in answer.error.message


def test_read_only_memory_is_not_written(start):
    on_device, side, memory = start()
    moved, _ = in_memory(rotation(), register(side, memory, read_only=True).token)
    refusal = on_device.refusal("ApplyRotary", moved)
    assert (refusal.reason, refusal.field) == ("CONFLICT", "q.output")


def test_nobody_else_can_when_the_device_cannot(start):
    on_device, side, memory = start("oom_every=1")
    moved, _ = in_memory(rotation(), register(side, memory).token)
    refusal = on_device.refusal("ApplyRotary", moved)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OUT_OF_MEMORY")
    on_device, side, memory = start("lost_after=60,slab_bytes=100000000")
    moved, _ = in_memory(rotation(), register(side, memory).token)
    refusals = []
    for _ in range(100):
        try:
            on_device.call("ApplyRotary", moved)
        except grpc.RpcError as error:
            refusals.append(error)
    assert refusals and refusals[-1].code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "the fake device is lost" in refusals[-1].details()
    assert on_device.call("ApplyRotary", rotation()).info.device == "cpu"
    answer = register(side, memory)
    assert answer.error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]

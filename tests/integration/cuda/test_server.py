"""Tests a server with the plugin for NVIDIA GPUs: the real plugin on a GPU (scripts/test-cuda), or one over a stand-in
for CUDA and the real plugin without a GPU (scripts/test).

POSENC_CUDA_PLUGINS is the directory in which scripts/test-cuda built both. POSENC_CUDA_DEVICE is "gpu" if there is one.
"""

import contextlib
import os
import pathlib
import tempfile

import numpy
import pytest
import samples
from client import Client
from posenc.v1 import bias_pb2, rotary_pb2, service_pb2, shared_memory_pb2, tensor_pb2
from server_process import ServerProcess
from shared_memory import Side
from tensors import BF16, FP16, FP32, FP64, tensor

PLUGINS = pathlib.Path(os.environ["POSENC_CUDA_PLUGINS"])
ON_GPU = os.environ.get("POSENC_CUDA_DEVICE") == "gpu"
PLUGIN = PLUGINS / ("libposenc_cuda.so" if ON_GPU else "cmake/test/libposenc_cuda_on_host.so")


@pytest.fixture(scope="module")
def socket():
    with tempfile.TemporaryDirectory(prefix="posenc-") as directory:  # short enough for a socket
        yield f"{directory}/memory.sock"


@pytest.fixture(scope="module")
def server(server_program, tmp_path_factory, socket):
    flags = ("--device-plugin", PLUGIN, "--shared-memory-socket", socket)
    with ServerProcess(server_program, tmp_path_factory.mktemp("server"), *flags) as server:
        yield server


@pytest.fixture
def on_device(server):
    with Client(server.port) as client:
        yield client


@pytest.mark.skipif(ON_GPU, reason="this machine has a GPU")
def test_the_plugin_without_a_gpu_says_so(start_server):
    server = start_server("--device-plugin", PLUGINS / "libposenc_cuda.so")
    with Client(server.port) as client:
        info = client.info()
        assert [device.name for device in info.devices] == ["cpu"]
        assert "no CUDA device can be used" in info.device_problem
        assert client.call("ApplyRotary", samples.rotary()).info.device == "cpu"


def test_the_device_is_there(on_device):
    device = on_device.info().devices[1]
    assert device.name == "cuda:0" and device.memory_bytes > 0
    assert device.rotation.seconds_a_byte > 0 and device.slabs_computed > 0 and device.slabs_declined == 0


def same(on_device, client, method, request, outputs):
    """Asserts that the device and the CPU answer with the same bytes."""
    before = on_device.info().devices[1]
    expected = client.call(method, request)
    request.hints.device = "cuda"
    answer = on_device.call(method, request)
    after = on_device.info().devices[1]
    assert answer.info.device == "cuda:0"
    assert after.slabs_computed > before.slabs_computed and after.slabs_declined == before.slabs_declined
    for name in outputs:
        assert getattr(answer, name).data == getattr(expected, name).data, name


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
@pytest.mark.parametrize("layout", [rotary_pb2.LAYOUT_BSHD, rotary_pb2.LAYOUT_BHSD])
@pytest.mark.parametrize("preset", ["EXACT", "HF_EAGER", "FLUX"])
def test_rotations(on_device, client, dtype, layout, preset):
    values = numpy.random.default_rng(5).standard_normal((2, 40, 40, 72))
    request = samples.rotary(values, values[:, :, ::-1], dtype=dtype, layout=layout, offset=123456, rotary_dim=64)
    request.precision.preset = getattr(rotary_pb2, f"PRECISION_PRESET_{preset}")
    same(on_device, client, "ApplyRotary", request, ("q", "k"))


def test_a_rotation_over_several_axes_and_parts(on_device, client):
    request = samples.rotary(numpy.random.default_rng(6).standard_normal((1, 300, 3, 32)), rotary_dim=None)
    settings = request.rotary.settings
    settings.ClearField("frequencies")
    settings.ClearField("rotary_dim")
    for _ in range(2):
        settings.axial.axes.add(dim=16, rope_theta=100)
    settings.half_split_parts = 2
    ids = [[n // 20, n % 20] for n in range(300)]
    request.positions.ids.CopyFrom(tensor(ids, tensor_pb2.DATA_TYPE_INT64))
    request.positions.axis_dimension = rotary_pb2.AXIS_DIMENSION_LAST
    same(on_device, client, "ApplyRotary", request, ("q",))


@pytest.mark.parametrize("dtype", [FP64, FP32, FP16, BF16])
@pytest.mark.parametrize("preset", ["EXACT", "F32", "FLUX"])
def test_tables(on_device, client, dtype, preset):
    request = samples.table(count=3000, offset=2**31, dtype=dtype, rotary_dim=96)
    request.precision.preset = getattr(rotary_pb2, f"PRECISION_PRESET_{preset}")
    same(on_device, client, "GenerateTable", request, ("cos", "sin"))


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
def test_biases(on_device, client, dtype):
    request = samples.bias(heads=8, queries=200, keys=200, dtype=dtype, alibi_form=bias_pb2.ALIBI_FORM_SYMMETRIC)
    request.mask.CopyFrom(samples.causal_mask())
    request.mask.window_left = 50
    same(on_device, client, "GenerateBias", request, ("bias",))


def gathered(name):
    """Returns a bias whose cells are looked up: in a window, with a cls token, or by distances of any positions."""
    if name == "swin":
        rows, length = 15 * 13, 8 * 7
        method = bias_pb2.BiasMethod(swin=bias_pb2.SwinBias(window_height=8, window_width=7))
    elif name == "beit":
        rows, length = 13 * 13 + 3, 7 * 7 + 1
        method = bias_pb2.BiasMethod(beit=bias_pb2.BeitBias(window_height=7, window_width=7,
                                                            table=bias_pb2.BEIT_TABLE_PLAIN))
    else:
        rows, length = 32, 90
        method = bias_pb2.BiasMethod(t5=bias_pb2.T5Bias(bidirectional=True))
    method.table.CopyFrom(samples.weights(rows, 6))
    method.table_layout = bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS
    request = service_pb2.GenerateBiasRequest(method=method, dtype=FP32, form=bias_pb2.BIAS_FORM_DENSE, geometry=bias_pb2.BiasGeometry(
        query_length=length, key_length=length))
    if name == "t5":
        places = numpy.random.default_rng(9).integers(0, 300, (2, length))
        request.geometry.query_positions.CopyFrom(tensor(places, tensor_pb2.DATA_TYPE_INT64))
        request.geometry.key_positions.CopyFrom(tensor(places[:, ::-1], tensor_pb2.DATA_TYPE_INT64))
    return request


@pytest.mark.parametrize("name", ["swin", "beit", "t5"])
@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_gathered_biases(on_device, client, name, dtype):
    request = gathered(name)
    request.dtype = dtype
    same(on_device, client, "GenerateBias", request, ("bias",))


@pytest.mark.skipif(not ON_GPU, reason="no GPU")
@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_memory_of_another_process(on_device, client, socket, dtype, monkeypatch):
    """The owner allocates on the GPU and passes a handle; the call carries none of the tensor's bytes."""
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[3] / "cuda" / "test")
    from sharing import SharedByAProcess
    request = samples.rotary(numpy.random.default_rng(7).standard_normal((2, 500, 32, 128)), dtype=dtype, offset=1 << 20)
    expected = client.call("ApplyRotary", request).q.data
    array = numpy.frombuffer(request.q.tensor.data, "u1")
    with SharedByAProcess(PLUGINS / "cmake" / "test" / "libposenc_cuda_test.so", array) as (handle, read), \
            contextlib.closing(Side(socket)) as side:
        registered = side.ask(shared_memory_pb2.SharedMemoryRequest(
            register_device_memory=shared_memory_pb2.RegisterDeviceMemory(
                device="cuda:0", handle=bytes(handle.bytes), byte_size=array.nbytes)))
        region = tensor_pb2.Region(token=registered.token, byte_size=array.nbytes)
        request.q.tensor.data = b""
        request.q.tensor.region.CopyFrom(region)
        request.q.output.CopyFrom(region)
        answer = on_device.call("ApplyRotary", request)
        assert answer.info.device == "cuda:0" and answer.q.data == b""
        assert read() == expected

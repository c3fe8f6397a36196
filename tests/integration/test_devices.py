"""Tests a server with a fake device plugin, which computes with the CPU's kernels and fails on request."""

import grpc_peers_pb2 as peers
import mutations
import numpy
import pytest
import samples
from client import SECONDS, Client, serialize

HEALTH = "/grpc.health.v1.Health/Check"


@pytest.fixture
def start_with_device(start_server, build):
    def start(settings="", plugin="fake_plugin.so", **flags):
        server = start_server("--device-plugin", build / "tests" / plugin, POSENC_FAKE_PLUGIN=settings)
        return server, Client(server.port)

    return start


def rotation(device=""):
    request = samples.rotary(numpy.arange(2 * 300 * 4 * 8).reshape(2, 300, 4, 8) % 17)
    request.hints.device = device
    return request


def health(client, service):
    check = client.channel.unary_unary(HEALTH, serialize, peers.HealthCheckResponse.FromString)
    return check(peers.HealthCheckRequest(service=service), timeout=SECONDS).status


def test_it_computes_what_it_is_asked_for(start_with_device, client):
    _, on_device = start_with_device("devices=2,slab_bytes=8192")
    cpu, first, second = on_device.info().devices
    assert (cpu.name, first.name, second.name) == ("cpu", "fake:0", "fake:1")
    assert first.description == "fake device 0" and first.memory_bytes == 1 << 30
    for device in (cpu, first):
        assert device.rotation.seconds_a_byte > 0 and device.table.seconds_a_byte > 0
    expected = client.call("ApplyRotary", rotation())
    for asked, computed in (("fake", "fake:0"), ("fake:1", "fake:1"), ("cpu", "cpu"), ("fake:2", "cpu")):
        answer = on_device.call("ApplyRotary", rotation(asked))
        assert answer.info.device == computed
        assert answer.q.data == expected.q.data
    after = on_device.info().devices
    assert after[1].slabs_computed > first.slabs_computed
    table = samples.table(count=500)
    same = client.call("GenerateTable", table)
    table.hints.device = "fake"
    answer = on_device.call("GenerateTable", table)
    assert answer.info.device == "fake:0"
    assert (answer.cos.data, answer.sin.data) == (same.cos.data, same.sin.data)
    bias = samples.bias(queries=70, keys=70)
    same = client.call("GenerateBias", bias)
    bias.hints.device = "fake"
    answer = on_device.call("GenerateBias", bias)
    assert answer.info.device == "fake:0" and answer.bias.data == same.bias.data


def test_a_device_that_declines_is_not_measured(start_with_device, client):
    server, on_device = start_with_device("slab_bytes=8192,oom_every=4")
    cpu, device = on_device.info().devices
    assert device.slabs_declined > 0 and cpu.HasField("rotation")
    assert not device.HasField("rotation") and not device.HasField("table")
    assert "rotation=unknown" in server.log_with("fake device 0")
    expected = client.call("ApplyRotary", rotation())
    for asked, computed in (("", "cpu"), ("fake", "fake:0")):
        answer = on_device.call("ApplyRotary", rotation(asked))
        assert answer.info.device == computed and answer.q.data == expected.q.data
    after = on_device.info().devices[1]
    assert after.slabs_computed > device.slabs_computed and after.slabs_declined > device.slabs_declined


def hints_of(request):
    """The hints of a request and their path: they are in it or one level down."""
    for field in request.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.name == "CallHints":
            return getattr(request, field.name), field.name
    for field in request.DESCRIPTOR.fields:
        if field.message_type is not None and request.HasField(field.name):
            hints, path = hints_of(getattr(request, field.name))
            if hints is not None:
                return hints, f"{field.name}.{path}"
    return None, ""


def test_a_word_that_names_no_device(start_with_device, client, configs):
    """Also in requests of methods that always compute on the CPU, and in streams."""
    _, on_device = start_with_device()
    methods = set()
    for method, request in mutations.seeds(configs):
        hints, path = hints_of(request)
        if hints is None or method in methods:
            continue
        methods.add(method)
        for answers, wrong in ((client, "banana"), (on_device, "banana"), (client, "fake"), (client, "cpu:0"),
                               (client, "GPU 0")):
            hints.device = wrong
            refusal = answers.refusal(method, iter([request]) if method == "StreamApplyRotary" else request)
            assert (refusal.code.name, refusal.reason) == ("INVALID_ARGUMENT", "UNKNOWN_VALUE"), (method, wrong)
            assert (refusal.field, refusal.value) == (f"{path}.device", wrong)
    assert methods >= {"ApplyRotary", "GenerateTable", "GenerateBias", "GenerateEmbedding", "Explain", "Compare", "Diagnose",
                       "StreamTable", "StreamBias", "StreamApplyRotary"}
    for answers in (client, on_device):
        assert answers.call("ApplyRotary", rotation("cuda")).info.device == "cpu"


def test_the_command_says_that_a_device_is_lacking(start_with_device, posenc, tmp_path):
    numpy.save(tmp_path / "q.npy", numpy.ones((1, 2, 1, 8), "f4"))
    rotary = ["--rope-type", "default", "--rotary-dim", 8, "--input-pairing", "half-split", "--offset", 0]
    rope = ["rope", *rotary, "--q", "q.npy", "--layout", "bshd", "--q-out", "out.npy"]
    server, _ = start_with_device()
    for where in ([], ["--server", f"127.0.0.1:{server.port}"]):
        said = posenc(*rope, *where, "--device", "cuda", exit_code=3).stderr
        assert "--device: is cuda" in said and "cpu" in said
        assert not (tmp_path / "out.npy").exists()
        assert "--device" in posenc(*rope, *where, "--device", "banana", exit_code=(2, 3)).stderr
        posenc(*rope, *where, "--device", "cpu")
        (tmp_path / "out.npy").unlink()
        table = ["table", *rotary, "--count", 2, *where, "--device", "cuda"]
        assert "--device: is cuda" in posenc(*table, "--json", exit_code=3).stderr
        assert "--device" in posenc(*table, "-o", "table.safetensors", exit_code=2).stderr
    posenc(*rope, *where, "--device", "fake")


def test_a_lost_device_is_withdrawn_and_the_cpu_answers(start_with_device, client):
    # The measurements at startup take fewer slabs, so the device is available at first.
    server, on_device = start_with_device("slab_bytes=100000000,lost_after=60")
    assert health(on_device, "posenc.device.fake:0") == peers.HealthCheckResponse.SERVING
    expected = client.call("ApplyRotary", rotation()).q.data
    devices = []
    for _ in range(100):
        answer = on_device.call("ApplyRotary", rotation("fake"))
        assert answer.q.data == expected
        devices.append(answer.info.device)
    assert devices[0] == "fake:0" and devices[-1] == "cpu"
    assert on_device.info().devices[1].withdrawn == "the fake device is lost"
    assert health(on_device, "posenc.device.fake:0") == peers.HealthCheckResponse.NOT_SERVING
    assert health(on_device, "") == peers.HealthCheckResponse.SERVING
    server.log_with("withdrawn")


@pytest.mark.parametrize("plugin, settings, why", [
    ("fake_plugin.so", "devices=0", "there is no driver"),
    ("other_abi_plugin.so", "", "has version 99"),
    ("no_plugin.so", "", "is not a posenc plugin"),
    ("not_there.so", "", "No such file"),
])
def test_without_a_device_the_cpu_serves(start_with_device, plugin, settings, why):
    server, client = start_with_device(settings, plugin)
    info = client.info()
    assert [device.name for device in info.devices] == ["cpu"]
    assert why in info.device_problem and why in server.log_with(why)
    assert client.call("ApplyRotary", rotation()).info.device == "cpu"

"""The Open Inference Protocol over HTTP: the same bytes as over gRPC, in JSON and binary, and the bodies that the clients
of Triton and KServe read."""

import json
import os
import signal
import time

import numpy
import pytest
import samples
from google.protobuf import json_format
from inference_client import InferenceClient, infer
from rest_client import BINARY, Rest, binary, given, http_port
from server_process import ServerProcess
from tensors import BF16, FP32, INT64
from test_oip_shared_memory import Memory

SETTINGS = json_format.MessageToJson(samples.rope_settings())
Q = numpy.random.default_rng(1).standard_normal((1, 5, 2, 8)).astype("f4")
MODELS = ("llama-3.1-8b", "bloom-560m")
PARAMETERS = {"layout": "BSHD", "offset": 3, "settings": SETTINGS}


@pytest.fixture(scope="module")
def server(server_program, tmp_path_factory, configs):
    repository = tmp_path_factory.mktemp("models")
    for name in MODELS:
        (repository / name).mkdir()
        (repository / name / "config.json").write_bytes((configs / f"{name}.json").read_bytes())
    (repository / "broken").mkdir()
    (repository / "broken" / "config.json").write_text("{")
    with ServerProcess(server_program, tmp_path_factory.mktemp("server"), "--model-repository", repository, "--http-listen",
                       "127.0.0.1:0", "--model-control", "on", "--inference-memory-prefix", "/posenc-rest") as server:
        yield server


@pytest.fixture
def rest(server):
    with Rest(http_port(server)) as rest:
        yield rest


@pytest.fixture(scope="module")
def grpc_client(server):
    with InferenceClient(server.port) as client:
        yield client


def test_health(rest):
    assert rest.json("GET", "/v2/health/live") == {"live": True}
    assert rest.json("GET", "/v2/health/ready") == {"ready": True}
    assert rest.json("GET", "/v2/models/bloom-560m/ready") == {"name": "bloom-560m", "ready": True}
    assert rest.json("GET", "/v2/models/bloom-560m/versions/1/ready")["ready"]
    assert "config_json" in rest.json("GET", "/v2/models/broken/ready", status=503)["error"]
    assert rest.json("GET", "/v2/models/unknown/ready", status=404)["field"] == "model_name"


def test_server_and_models_are_described_as_over_grpc(rest, grpc_client):
    assert rest.json("GET", "/v2")["name"] == "posenc"
    assert rest.json("GET", "/v2?verbose=1")["extensions"][0] == "model_configuration"
    ready = rest.json("GET", "/v2/models")["models"]
    assert "bloom-560m.bias" in ready and "broken" not in ready
    metadata = rest.json("GET", "/v2/models/llama-3.1-8b")
    said = grpc_client.call("ModelMetadata", name="llama-3.1-8b")
    assert [one["name"] for one in metadata["inputs"]] == [one.name for one in said.inputs]
    assert metadata["inputs"][0]["shape"] == list(said.inputs[0].shape)
    assert all(isinstance(size, int) for one in metadata["inputs"] + metadata["outputs"] for size in one["shape"])
    config = rest.json("GET", "/v2/models/llama-3.1-8b/config")
    assert config["name"] == "llama-3.1-8b" and config["max_batch_size"] == 0 and config["input"][0]["data_type"] == "TYPE_FP32"
    index = rest.json("POST", "/v2/repository/index")
    assert {one["name"]: one["state"] for one in index}["broken"] == "UNAVAILABLE"
    assert all(one["state"] == "READY" for one in rest.json("POST", "/v2/repository/index", {"ready": True}))


def test_statistics_count_both_doors(rest, grpc_client):
    def count():
        [stats] = rest.json("GET", "/v2/models/llama-3.1-8b/stats")["model_stats"]
        return stats["inference_stats"]["success"]["count"]
    before = count()
    q = numpy.ones((1, 1, 32, 128), "f4")
    grpc_client.infer(infer("llama-3.1-8b", [("q", q, FP32)], layout="BSHD", offset=0))
    rest.infer("llama-3.1-8b", {"inputs": [given("q", q)], "parameters": {"layout": "BSHD", "offset": 0}})
    assert count() == before + 2
    assert len(rest.json("GET", "/v2/models/stats")["model_stats"]) > len(MODELS)


@pytest.mark.parametrize("by", ["json", "nested", "binary"])
@pytest.mark.parametrize("answer", ["json", "binary", "chosen"])
def test_the_bytes_are_those_of_grpc(rest, grpc_client, by, answer):
    request = {"id": "7", "parameters": {**PARAMETERS, **(BINARY if answer == "binary" else {})}, "outputs": []}
    if answer == "chosen":
        request["outputs"] = [{"name": "k", "parameters": {"binary_data": True}}, {"name": "q"}]
    pieces = []
    for name, values in (("q", Q), ("k", Q[::, ::-1])):
        if by == "binary":
            one, data = binary(name, values)
            pieces.append(data)
        else:
            one = given(name, values)
            one["data"] = values.tolist() if by == "nested" else one["data"]
        request.setdefault("inputs", []).append(one)
    said, arrays = rest.infer("posenc.rotary", request, pieces)
    expected = grpc_client.infer(infer("posenc.rotary", [("q", Q, FP32), ("k", Q[::, ::-1], FP32)], **PARAMETERS))
    for name, values in expected.items():
        assert (arrays[name].view("u4") == values.view("u4")).all(), name
    assert said["model_name"] == "posenc.rotary" and said["model_version"] == "1" and said["id"] == "7"
    assert [output["name"] for output in said["outputs"]] == (["k", "q"] if answer == "chosen" else ["q", "k"])
    assert said["parameters"]["device"] == "cpu" and len(said["parameters"]["plan_fingerprint"]) > 8
    for output in said["outputs"]:
        is_binary = answer == "binary" or (answer == "chosen" and output["name"] == "k")
        assert ("data" in output) != is_binary and ("parameters" in output) == is_binary


def test_numbers_are_rounded_once(rest):
    """The text of a float32 is rounded to float32, not first to float64."""
    text = ('{"inputs": [{"name": "q", "shape": [1, 1, 1, 8], "datatype": "FP32", "data": [1.00000017881393432617187499,'
            ' 1e-46, -1.5E0, 0, 7.1e-46, 1e38, -0.0, 3]}], "parameters": {"layout": "BSHD", "offset": 0, "settings": %s}}')
    answer = rest.send("POST", "/v2/models/posenc.rotary/infer", text % json.dumps(SETTINGS))
    values = numpy.array(json.loads(answer.body)["outputs"][0]["data"], "f4")
    expected = numpy.array([0x3f800001, 0, 0xbfc00000, 0, 1, 0x7e967699, 0x80000000, 0x40400000], "u4")
    assert (values.view("u4")[:6] == expected[:6]).all() and values[7] == 3, values


def test_types_in_binary(rest, grpc_client):
    one, data = binary("q", numpy.arange(16).reshape(1, 2, 1, 8) + 0x3f80, "BF16")
    said, arrays = rest.infer("posenc.rotary", {"inputs": [one], "parameters": {**PARAMETERS, **BINARY}}, [data])
    expected = grpc_client.call("ModelInfer", _bf16_request(data))
    assert arrays["q"].tobytes() == expected.raw_output_contents[0] and said["outputs"][0]["datatype"] == "BF16"
    refused = rest.infer("posenc.rotary", {"inputs": [one], "parameters": PARAMETERS}, [data], status=400)
    assert "binary" in refused["error"] and refused["field"] == "outputs"
    refused = rest.infer("posenc.rotary", {"inputs": [given("q", Q, "BF16")], "parameters": PARAMETERS}, status=400)
    assert refused["field"] == "inputs[0].data" and "binary" in refused["error"]


def _bf16_request(data):
    request = infer("posenc.rotary", [("q", numpy.zeros((1, 2, 1, 8)), BF16)], **PARAMETERS)
    del request.raw_input_contents[:]
    request.raw_input_contents.append(data)
    return request


def test_integers_and_json_beside_binary(rest, grpc_client):
    positions = numpy.array([[5, 2**53, 0, -7, 1]])
    q, data = binary("q", Q)
    parameters = {name: value for name, value in PARAMETERS.items() if name != "offset"}
    request = {"inputs": [given("position_ids", positions, "INT64"), q], "parameters": parameters}
    _, arrays = rest.infer("posenc.rotary", request, [data])
    expected = grpc_client.infer(infer("posenc.rotary", [("q", Q, FP32), ("position_ids", positions, INT64)], **parameters))
    assert (arrays["q"].view("u4") == expected["q"].view("u4")).all()


def test_what_clients_add_changes_nothing(rest):
    """tritonclient's sequence, priority and timeout; KServe's model_name, and null for what is absent."""
    request = {"model_name": "posenc.rotary", "id": "", "inputs": [{**given("q", Q), "parameters": None}], "outputs": None,
               "parameters": {**PARAMETERS, "sequence_id": 5, "sequence_start": True, "priority": 1, "timeout": 1000}}
    said, _ = rest.infer("posenc.rotary", request, Content_Type="application/json", Accept_Encoding="gzip, deflate, br")
    assert "id" not in said
    said, _ = rest.infer("posenc.rotary/versions/1", request)
    assert rest.infer("posenc.rotary/versions/2", request, status=404)["field"] == "model_version"
    request["model_name"] = "another"
    assert rest.infer("posenc.rotary", request, status=400)["field"] == "model_name"


def test_a_large_tensor_both_ways(rest, grpc_client):
    """16 MiB in many pieces, and JSON that a thread of the pool parses."""
    q = numpy.random.default_rng(2).standard_normal((1, 1024, 32, 128)).astype("f4")
    one, data = binary("q", q)
    _, arrays = rest.infer("llama-3.1-8b", {"inputs": [one], "parameters": {"layout": "BSHD", "offset": 0, **BINARY}}, [data])
    expected = grpc_client.infer(infer("llama-3.1-8b", [("q", q, FP32)], layout="BSHD", offset=0))
    assert arrays["q"].tobytes() == expected["q"].tobytes()
    q = q[:, :8]
    _, arrays = rest.infer("llama-3.1-8b", {"inputs": [given("q", q)], "parameters": {"layout": "BSHD", "offset": 0}})
    expected = grpc_client.infer(infer("llama-3.1-8b", [("q", q, FP32)], layout="BSHD", offset=0))
    assert arrays["q"].tobytes() == expected["q"].tobytes()


def test_a_body_in_chunks(rest):
    text = json.dumps({"inputs": [given("q", Q)], "parameters": PARAMETERS}).encode()
    expected = rest.send("POST", "/v2/models/posenc.rotary/infer", text).body
    pieces = [text[at:at + 100] for at in range(0, len(text), 100)]
    assert rest.send("POST", "/v2/models/posenc.rotary/infer", iter(pieces)).body == expected


def test_models_come_and_go(rest):
    assert rest.json("POST", "/v2/repository/models/bloom-560m/unload", {"parameters": {"unload_dependents": False}}) is None
    assert "unloaded" in rest.json("GET", "/v2/models/bloom-560m/ready", status=503)["error"]
    assert rest.json("POST", "/v2/repository/models/bloom-560m/load", {}) is None
    assert rest.json("GET", "/v2/models/bloom-560m/ready")["ready"]
    assert "parameters" in rest.json("POST", "/v2/repository/models/bloom-560m/load", {"parameters": {"config": "{}"}},
                                     status=400)["error"]
    assert rest.json("POST", "/v2/repository/models/unknown/load", {}, status=500)["error"]


def test_shared_memory(rest, grpc_client):
    one = Memory(f"posenc-rest-{os.getpid()}", 4096)
    try:
        path = "/v2/systemsharedmemory/region/a%20b/"
        assert rest.json("POST", path + "register", {"key": one.key, "offset": 0, "byte_size": 4096}) is None
        assert rest.json("GET", path + "status") == [{"name": "a b", "key": one.key, "offset": 0, "byte_size": 4096}]
        assert rest.json("GET", "/v2/systemsharedmemory/status")[0]["byte_size"] == 4096
        assert list(grpc_client.call("SystemSharedMemoryStatus").regions) == ["a b"]
        where = {"shared_memory_region": "a b", "shared_memory_byte_size": Q.nbytes}
        request = {"inputs": [{"name": "q", "shape": list(Q.shape), "datatype": "FP32", "parameters": where}],
                   "outputs": [{"name": "q", "parameters": {**where, "shared_memory_offset": 2048, "binary_data": False}}],
                   "parameters": PARAMETERS}
        with open(one.path, "r+b") as file:
            file.write(Q.tobytes())
        said, _ = rest.infer("posenc.rotary", request)
        assert "data" not in said["outputs"][0]
        expected = grpc_client.infer(infer("posenc.rotary", [("q", Q, FP32)], **PARAMETERS))
        assert one.path.read_bytes()[2048:2048 + Q.nbytes] == expected["q"].tobytes()
        assert rest.json("POST", path + "register", {"key": one.key, "byte_size": 8}, status=409)["error"]
        assert rest.json("POST", path + "unregister") is None
        assert rest.json("GET", path + "status", status=404)["error"]
        assert rest.json("POST", "/v2/systemsharedmemory/unregister") is None
    finally:
        one.path.unlink()
    assert rest.json("GET", "/v2/cudasharedmemory/status") == []
    assert rest.json("POST", "/v2/cudasharedmemory/unregister") is None
    body = {"raw_handle": {"b64": "AA=="}, "device_id": 0, "byte_size": 4}
    assert "GPU" in rest.json("POST", "/v2/cudasharedmemory/region/g/register", body, status=400)["error"]


def test_a_trace_and_the_servers_times_come_back(rest):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = rest.send("POST", "/v2/models/posenc.rotary/infer", json.dumps({"inputs": [given("q", Q)], "parameters": PARAMETERS}),
                       traceparent=trace)
    assert answer.headers["traceparent"] == trace and "compute;dur=" in answer.headers["server-timing"]


def test_a_drain_answers_what_has_begun(start_server):
    server = start_server("--http-listen", "127.0.0.1:0", "--drain-notice", "1")
    with Rest(http_port(server)) as rest:
        assert rest.json("GET", "/v2/health/ready")["ready"]
        server.signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        while (answer := rest.send("GET", "/v2/health/ready")).status == 200 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert answer.status == 503 and json.loads(answer.body) == {"ready": False}
        assert answer.headers["connection"] == "close"
    assert server.wait() == 0

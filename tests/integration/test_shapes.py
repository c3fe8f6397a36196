"""A call ends whatever its sizes are: 0, 1, 2^31, 2^60 and 2^63 - 1 in each field that has one, beside zeros in others.

The fields are found by reflection (every_field.py), in every message of every RPC, in process and, fewer of them, by gRPC. A
watchdog tells a call that does not end; afterwards the server answers, and drains.
"""

import concurrent.futures
import itertools
import json
import shutil
import signal
import struct
import subprocess

import c_interface
import every_field
import grpc
import mutations
import numpy
import pytest
import samples
import test_oip_limits
from client import SERVICE, Client, Refusal
from inference_client import SERVICE as INFERENCE, InferenceClient, infer
from posenc.v1 import rotary_pb2, service_pb2, tensor_pb2
from rich_requests import llama_gguf, rich_requests
from tensors import FP32, INT32

WATCHDOG = 10  # seconds
THREADS, BATCH = 4, 400
MOST_ANSWERS = 2  # of a stream, which may be endless
CALLS_ONE_IN = 8  # by gRPC: all in process
OK, INVALID = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT
REFUSED = (INVALID, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.NOT_FOUND)
MODELS = ("llama-3.1-8b", "bloom-560m")


def posenc_requests():
    return [*rich_requests(), *(("StreamApplyRotary", message) for message in mutations.rotary_stream())]


def rotary_messages(message):
    """The messages of a StreamApplyRotary one of which is this one."""
    header, *chunks = mutations.rotary_stream()
    return [message, *chunks] if message.HasField("header") else [header, message]


def code_of(call, sent):
    """Makes a call, and returns its code. A stream ends after some answers."""
    try:
        answer = call(sent, timeout=WATCHDOG)
        if hasattr(answer, "cancel"):
            for _ in itertools.islice(answer, MOST_ANSWERS):
                pass
            answer.cancel()
    except grpc.RpcError as error:
        if error.code() in REFUSED:
            Refusal.of(error)
        return error.code()
    return OK


def sweep(calls, code, idle):
    """Makes the calls, (method, what, request). Returns how often each method had each code."""
    counts = {}
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        for batch in iter(lambda: list(itertools.islice(calls, BATCH)), []):
            codes = list(threads.map(lambda one: code(one[0], one[2]), batch))
            lost = [(*one[:2], found.name) for one, found in zip(batch, codes) if found not in (OK, *REFUSED)]
            assert not lost, f"one of these calls did not end: {lost}"
            for (method, *_), found in zip(batch, codes):
                counts[method, found] = counts.get((method, found), 0) + 1
            idle()
    print(sum(counts.values()), "calls", {f"{method} {found.name}": count for (method, found), count in counts.items()})
    return counts


def test_every_field_of_posenc(start_server):
    server = start_server()
    with Client(server.port) as client:
        def code(method, request):
            sent = iter(rotary_messages(request)) if method == "StreamApplyRotary" else request
            return code_of(client.method(method), sent)
        calls = itertools.islice(every_field.all_sizes(posenc_requests()), 0, None, CALLS_ONE_IN)
        counts = sweep(calls, code, client.when_idle)
        for method, request in posenc_requests():  # the server still answers
            assert method == "StreamApplyRotary" or code(method, request) == OK
    # Every RPC refused something, if it has a field.
    for method in SERVICE.methods:
        assert method.name == "GetServerInfo" or counts.get((method.name, INVALID))
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


def inference_requests():
    """Legal requests of ModelInfer and ModelStreamInfer, and the empty request of every other method."""
    settings = test_oip_limits.SETTINGS
    by_axis = infer("posenc.rotary", [("q", numpy.ones((1, 2, 1, 128)), FP32), ("position_ids", [[3], [4]], INT32)],
                    layout="BSHD", axis_dimension="LAST", settings=settings)
    for request in (*test_oip_limits.seeds(MODELS), by_axis):
        yield "ModelInfer", request
        yield "ModelStreamInfer", request
    for method in INFERENCE.methods:
        if method.name not in ("ModelInfer", "ModelStreamInfer"):
            yield method.name, method.input_type._concrete_class()


def test_every_field_of_the_inference_protocol(start_server, configs, tmp_path):
    for name in MODELS:
        (tmp_path / "models" / name).mkdir(parents=True)
        shutil.copy(configs / f"{name}.json", tmp_path / "models" / name / "config.json")
    server = start_server("--model-repository", tmp_path / "models", "--model-control", "on",
                          "--inference-memory-prefix", "/posenc-shapes-")
    with InferenceClient(server.port) as client, Client(server.port) as typed:
        methods = {method.name: client.method(method.name) for method in INFERENCE.methods}

        def code(method, request):
            return code_of(methods[method], iter([request]) if method == "ModelStreamInfer" else request)
        requests = list(inference_requests())
        counts = sweep(every_field.all_sizes(requests), code, typed.when_idle)
        assert counts["ModelInfer", OK] and counts["ModelInfer", INVALID] and client.call("ServerReady").ready
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


@pytest.fixture
def library(build):
    with c_interface.Library(build / "lib" / "libposenc.so") as library:
        yield library


def check_all_end(library, calls):
    for name, what, request in calls:
        assert library.code(name, request, WATCHDOG) is not None, f"did not end: {name} {what}"
    assert library.ended(WATCHDOG) == 0


def test_every_field_in_process(library):
    check_all_end(library, ((method, what, request.SerializeToString())
                            for method, what, request in every_field.all_sizes(posenc_requests())))


def patched(file):
    """Yields (what, file) with a size in place of 4 or 8 bytes of a GGUF, at every place of its header."""
    for at in range(len(file) - 8):
        for size in every_field.SIZES:
            yield f"{size} at {at}", file[:at] + struct.pack("<Q", size) + file[at + 8:]
        yield f"2^31 in 4 bytes at {at}", file[:at] + struct.pack("<I", 2**31) + file[at + 4:]


def test_every_size_of_a_gguf(library, tmp_path):
    path = tmp_path / "model.gguf"

    def calls():
        for what, file in patched(llama_gguf().gguf):
            yield "Explain", what, service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(gguf=file)).SerializeToString()
            path.write_bytes(file)
            yield c_interface.READ_MODEL, what, str(path).encode()
    check_all_end(library, calls())


def tensor_files(shape):
    """Returns (name, file) of an empty tensor in each format."""
    header = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}).encode().ljust(118) + b"\n"
    yield "sizes.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header
    text = json.dumps({"q": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    yield "sizes.safetensors", struct.pack("<Q", len(text)) + text


def test_every_size_of_a_tensor_file(command_program, tmp_path):
    numpy.save(tmp_path / "q.npy", numpy.ones((1, 2, 1, 8), "f4"))
    settings = ("--rope-type", "default", "--rotary-dim", "8", "--input-pairing", "half-split", "--layout", "bshd")
    commands = [("rope", *settings, "--offset", "0", "--q", "FILE", "--q-out", "out.npy"),
                ("rope", *settings, "--positions", "FILE", "--axis-dimension", "last", "--q", "q.npy", "--q-out", "out.npy")]

    def run(call):
        shape, command, name = call
        ended = subprocess.run([*command_program, *(name if word == "FILE" else word for word in command)],
                               capture_output=True, cwd=tmp_path, timeout=WATCHDOG)
        assert ended.returncode in (0, 2, 3), (call, ended)
        return ended.returncode

    shapes = [list(change["shape"]) for change in every_field.resized_part(tensor_pb2.Tensor(shape=[1, 0, 1, 8]))
              if change.get("shape")]
    calls = []
    for n, shape in enumerate(shape for shape in shapes if 0 in shape):
        for name, file in tensor_files(shape):
            (tmp_path / f"{n}-{name}").write_bytes(file)
            calls += [(shape, command, f"{n}-{name}") for command in commands]
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        assert set(threads.map(run, calls)) >= {0, 3}, "some are legal, most are not"


def empty_rotation(*shape):
    request = samples.rotary()
    request.q.tensor.CopyFrom(tensor_pb2.Tensor(dtype=FP32, shape=shape))
    return request


def test_a_size_beyond_its_limit_is_named(client):
    limits = client.info().limits
    axes = empty_rotation(1, 0, 1, 8)
    axes.positions.ids.CopyFrom(tensor_pb2.Tensor(dtype=INT32, shape=[0, 65]))
    axes.positions.axis_dimension = rotary_pb2.AXIS_DIMENSION_LAST
    line = empty_rotation(1, 0, 1, 8)
    line.positions.segments.segment.add().line.count = 2**60
    heads = samples.relative(samples.relative_methods()[0])
    heads.q.CopyFrom(tensor_pb2.Tensor(dtype=FP32, shape=[1, limits.max_heads + 1, 0, 4]))
    queries = samples.bias()
    queries.geometry.query_length = 2**31
    to_dimension = f"must be 0 .. {limits.max_dimension} (max_dimension)"
    for method, request, field, value, limit in (
            ("ApplyRotary", empty_rotation(0, 2**60, 1, 8), "q.tensor.shape[1]", str(2**60), to_dimension),
            ("ApplyRotary", empty_rotation(0, 2**30, 1, 8), "q.tensor.shape", f"[0, {2**30}, 1, 8]",
             f"must be at most {limits.max_request_bytes} bytes (max_request_bytes) with 1 in place of each 0"),
            ("ApplyRotary", axes, "positions.ids.shape[1]", "65", "must be at most 64 axes"),
            ("ApplyRotary", line, "positions.segments.segment[0].line.count", str(2**60), to_dimension),
            ("GenerateTable", samples.table(count=2**31), "count", str(2**31), to_dimension),
            ("GenerateEmbedding", samples.embedding(count=-1), "count", "-1", to_dimension),
            ("GenerateBias", queries, "geometry.query_length", str(2**31), to_dimension),
            ("RelativeScores", heads, "q.shape[1]", str(limits.max_heads + 1),
             f"must be at most {limits.max_heads} heads (max_heads)")):
        refusal = client.refusal(method, request)
        assert (refusal.code, refusal.reason, refusal.field, refusal.value, refusal.limit) == (
            INVALID, "OUT_OF_RANGE", field, value, limit), refusal

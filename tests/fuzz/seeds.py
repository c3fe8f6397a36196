"""Writes seeds of the fuzzers to DIRECTORY/TARGET, and dictionaries to DIRECTORY/TARGET.dict.

The seeds are the requests, config.json files and flags that other tests and the documentation use, so a new method or
model type is fuzzed from its first sample on. scripts/fuzz runs this file: seeds.py DIRECTORY
"""

import hashlib
import io
import json
import pathlib
import re
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

import conftest  # noqa: E402, F401: makes the messages importable
import gguf_file  # noqa: E402
import mutations  # noqa: E402
import numpy  # noqa: E402
import onnx_file  # noqa: E402
import samples  # noqa: E402
import shared_memory  # noqa: E402
import test_oip_limits  # noqa: E402
import test_shared_memory  # noqa: E402
from inference import service_pb2 as inference_service  # noqa: E402
from posenc.v1 import rotary_pb2, service_pb2, shared_memory_pb2, tensor_pb2  # noqa: E402
from rich_requests import rich_requests  # noqa: E402

# Fields with which the classes of most model types find what they need.
COMMON = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 128, "d_model": 64,
    "n_head": 4, "n_layer": 2, "head_dim": 16, "image_size": 32, "patch_size": 8, "vocab_size": 32}


def sequence(messages):
    """The wire format of a message whose field 1 is repeated (tests/fuzz/sequence.h)."""
    def varint(value):
        return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + varint(value // 128)
    return b"".join(b"\x0a" + varint(len(text)) + text for text in (one.SerializeToString() for one in messages))


# Bytes of each region that calls_fuzzer.cc registers: "w" can be written to, "r" cannot. They hold floats.
REGION_BYTES = 1024
FLOATS = (tensor_pb2.DATA_TYPE_FP32, tensor_pb2.DATA_TYPE_FP16, tensor_pb2.DATA_TYPE_BF16)


def region(letter, offset, size):
    return tensor_pb2.Region(token=letter * 16, offset=offset, byte_size=size)


def in_regions(requests):
    """Yields the requests with their operands in regions, and with answers there."""
    for method, request in requests:
        changed = type(request)()
        changed.CopyFrom(request)
        outputs = {operand: place for place, operand in test_shared_memory.OPERANDS.get(method, {}).items()}
        used = {b"r": 0, b"w": 0}
        for path, operand in shared_memory.tensors(changed):
            letter, size = b"w" if ".".join(path) in outputs else b"r", len(operand.data)
            if operand.dtype not in FLOATS or used[letter] + size > REGION_BYTES:
                continue
            operand.ClearField("data")
            operand.region.CopyFrom(region(letter, used[letter], size))
            used[letter] += size
            if letter == b"w":
                test_shared_memory.set_region(changed, outputs[".".join(path)], operand.region)
        if changed != request:
            yield method, changed
    other = samples.rotary()
    size = len(other.q.tensor.data)
    other.q.tensor.ClearField("data")
    other.q.tensor.region.CopyFrom(region(b"r", 64, size))
    other.q.output.CopyFrom(region(b"w", 0, size))
    table = samples.table(count=4, rotary_dim=8)
    table.cos_output.CopyFrom(region(b"w", 0, 64))
    table.sin_output.CopyFrom(region(b"w", 64, 64))
    bias = samples.bias(heads=4, queries=3, keys=3)
    bias.output.CopyFrom(region(b"w", 0, 4 * 3 * 3 * 4))
    embedding = samples.embedding(dim=8, count=4)
    embedding.output.CopyFrom(region(b"w", 0, 4 * 8 * 4))
    yield from (("ApplyRotary", other), ("GenerateTable", table), ("GenerateBias", bias), ("GenerateEmbedding", embedding))


def calls(configs):
    """(number of the RPC, bytes of the request)"""
    names = [method.name for method in service_pb2.DESCRIPTOR.services_by_name["PositionalEncodingService"].methods]
    requests = mutations.seeds(configs)
    for name, request in [*requests, *mutations.without_a_size(requests), *in_regions(rich_requests())]:
        if name != "StreamApplyRotary":
            yield names.index(name), request.SerializeToString()
    yield names.index("StreamApplyRotary"), sequence(mutations.rotary_stream())


def inference_calls():
    """(number of the RPC, bytes of the request) of the Open Inference Protocol"""
    methods = inference_service.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
    names = [method.name for method in methods]
    inferences = test_oip_limits.seeds(("rope", "alibi"))
    for request in inferences:
        yield bytes([names.index("ModelInfer")]) + request.SerializeToString()
    yield bytes([names.index("ModelStreamInfer")]) + sequence(inferences)
    for number, method in enumerate(methods):
        if "Infer" not in method.name:
            for name in ("", "rope", "alibi.table", "a"):
                request = inference_service.__dict__[method.input_type.name]()
                for field in ("name", "model_name"):
                    if field in method.input_type.fields_by_name:
                        setattr(request, field, name)
                yield bytes([number]) + request.SerializeToString()
    yield bytes([names.index("SystemSharedMemoryRegister")]) + inference_service.SystemSharedMemoryRegisterRequest(
        name="b", key="/posenc-inference-fuzz-b", byte_size=16).SerializeToString()


def rest_requests():
    """The same inferences over HTTP, in JSON and binary, and a request of each other path."""
    def parameters(given):
        return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in given.items()}

    def lines(verb, target, body=b"", length="-"):
        return f"{verb} {target} {length}\n".encode() + body
    for request in test_oip_limits.seeds(("rope", "alibi")):
        raw, inputs, behind = list(request.raw_input_contents), [], b""
        for one in request.inputs:
            said = {"name": one.name, "shape": list(one.shape), "datatype": one.datatype, "parameters": parameters(one.parameters)}
            if one.HasField("contents"):
                [[_, elements]] = one.contents.ListFields()
                said["data"] = list(elements) if one.datatype != "BYTES" else ["a"]
            elif "shared_memory_region" not in said["parameters"] and raw:
                said["parameters"]["binary_data_size"] = len(raw[0])
                behind += raw.pop(0)
            inputs.append(said)
        outputs = [{"name": one.name, "parameters": parameters(one.parameters)} for one in request.outputs]
        for binary in (True, False):
            text = json.dumps({"id": request.id, "inputs": inputs, "outputs": outputs,
                               "parameters": {**parameters(request.parameters), "binary_data_output": binary}}).encode()
            yield lines("POST", f"/v2/models/{request.model_name}/infer", text + behind, len(text) if behind else "-")
    for path in ("health/live", "health/ready", "models", "models/stats", "models/rope", "models/rope/ready", "models/alibi/config",
                 "models/rope/versions/1/stats", "systemsharedmemory/status", "systemsharedmemory/region/a/status",
                 "cudasharedmemory/status", "nothing", "models/%61libi"):
        yield lines("GET", f"/v2/{path}")
    for path, body in (("repository/index", {"ready": True}), ("repository/models/rope/load", {}),
                       ("repository/models/alibi/unload", {"parameters": {"unload_dependents": True}}),
                       ("systemsharedmemory/unregister", {}), ("cudasharedmemory/region/g/register", {"byte_size": 4}),
                       ("systemsharedmemory/region/b/register", {"key": "/posenc-inference-fuzz-b", "offset": 0, "byte_size": 16})):
        yield lines("POST", f"/v2/{path}", json.dumps(body).encode())


def model_configs(configs):
    for path in sorted(configs.glob("*.json")):
        yield path.read_bytes()
    for record in json.loads((configs.parent / "recorded" / "model_files.json").read_text())["records"]:
        yield json.dumps(record["config"]).encode()
    page = (ROOT / "docs" / "model-types.md").read_text()
    for name in sorted(set(re.findall(r"`(\w+)`", page))):
        yield json.dumps({"model_type": name, **COMMON}).encode()
        yield json.dumps({"_class_name": name, **COMMON}).encode()


def tensor_files():
    for dtype in (numpy.float16, numpy.float32, numpy.float64, numpy.int32, numpy.int64, numpy.bool_):
        file = io.BytesIO()
        numpy.save(file, numpy.ones((2, 3), dtype))
        yield file.getvalue()
    header = json.dumps({"__metadata__": {"a": "b"}, "x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
                         "y": {"dtype": "I8", "shape": [1], "data_offsets": [4, 5]}}).encode()
    yield struct.pack("<Q", len(header)) + header + b"12345"
    header = header.replace(b"[4, 5]", b"[4, 4]").replace(b"I8", b"F64").replace(b"[1]", b"[0]")
    yield struct.pack("<Q", len(header)) + header + b"1234"


def packets():
    request = shared_memory_pb2.SharedMemoryRequest
    memfd = request(register_memfd=shared_memory_pb2.RegisterMemfd(byte_size=5000))
    posix = request(register_posix=shared_memory_pb2.RegisterPosix(name="/posenc-fuzz-a", byte_size=1))
    device = request(register_device_memory=shared_memory_pb2.RegisterDeviceMemory(device="cuda:0", byte_size=1))
    release = request(unregister=shared_memory_pb2.UnregisterMemory())
    yield sequence([memfd, memfd, release, release])
    yield sequence([posix, device, memfd, memfd])


def gguf_files():
    """A file of each architecture that can be read or has a reason, with keys of all kinds."""
    source = (ROOT / "posenc" / "gguf" / "gguf_types.cc").read_text()
    for architecture in sorted(set(re.findall(r'"([a-z0-9_.-]+)"', source))):
        yield gguf_file.model(architecture, {"rope_freqs.weight": gguf_file.llama3_factors()}, rope__freq_base=5e5,
                              rope__scaling__type="yarn", rope__scaling__factor=8.0, attention__sliding_window=16,
                              attention__sliding_window_pattern=[0, 1], rope__dimension_sections=[24, 20, 20, 0],
                              rope__scaling__finetuned=True, attention__max_alibi_bias=8.0)


def onnx_graphs():
    """Each operator, kind of tensor and way of a table, with small tables. The fuzzer has a file weights.bin."""
    node, graph, model, tensor = onnx_file.node, onnx_file.Graph, onnx_file.model, onnx_file.tensor
    cos, sin = onnx_file.tables(onnx_file.inv_freq(8), 4)
    for kind in ("standard", "microsoft", "gqa"):
        yield onnx_file.rotating(kind, cos, sin, interleaved=1)
    for convert in (onnx_file.bfloat16, lambda x: x.astype("<f2"), lambda x: x.astype("<f4"), lambda x: x.astype("<f8")):
        for typed in (False, True):
            yield onnx_file.rotating("standard", convert(cos), convert(sin), typed=typed)
    place = {"location": "weights.bin", "offset": 16, "length": cos.nbytes}
    yield onnx_file.rotating("microsoft", cos, sin, external=[place, place], rotary_embedding_dim=8, num_heads=4, scale=0.5)
    constants = [node("Constant", [], [name], value=tensor("", table)) for name, table in (("c", cos), ("s", sin))]
    branch = graph([], [tensor("b0", cos), tensor("b1", sin)], (), ["b0", "b1"])
    choice = node("If", ["long"], ["c", "s"], then_branch=branch, else_branch=branch)
    inside = onnx_file.function("local", "Rotate", ["q0", "k0", "t0", "t1"], ["q0_rotated"], onnx_file.rotary(
        "standard", onnx_file.Reference("pairing"), layers=1, cos="t0", sin="t1"), pairing=1)
    call = node("Rotate", ["q", "k", "c", "s"], ["a"], "local", pairing=0)
    for tables in (constants, [choice]):
        yield model(graph([*tables, node("Loop", ["n"], ["o"], body=graph([call]))]), [inside])
    way = [node("Identity", ["cos_cache"], ["c1"]), node("Cast", ["c1"], ["c2"], to=10), node("Gather", ["c2", "ids"], ["c3"], axis=0)]
    yield model(graph([*way, *onnx_file.rotary("standard", cos="c3")], [tensor("cos_cache", cos), tensor("sin_cache", sin)]))
    for operator in ("SparseAttention", "PagedAttention", "MRotaryEmbedding"):
        yield model(graph([node(operator, list("abcdefghijk"), ["o"], onnx_file.MICROSOFT, do_rotary=1)]))


def flags():
    yield b"--help"
    yield b"--version"
    for flag in re.findall(r'visit\(group, "(--[a-z-]+)"', (ROOT / "server" / "core" / "config.cc").read_text()):
        yield f"{flag}=1".encode()
    yield b"--listen\nunix:/run/a,127.0.0.1:0\n--max-request-bytes=8MiB\n--log-format\njson\n--log-level=debug"


def words(paths):
    """A dictionary of the names in the sources."""
    text = "".join(path.read_text() for path in paths)
    return "".join(f'"{word}"\n' for word in sorted(set(re.findall(r'"([\w.:+-]{2,40})"', text))))


def main(directory):
    configs = ROOT / "tests" / "golden" / "configs"
    numbered = list(calls(configs))
    seeds = {
        "calls": [bytes([number]) + text for number, text in numbered],
        "wire": [bytes([2 * number]) + text for number, text in numbered],
        "model_config": [rotary_pb2.ModelConfig(**file).SerializeToString() for file in
                         [{"config_json": text} for text in model_configs(configs)] + [{"gguf": data} for data in gguf_files()]],
        "inference": list(inference_calls()), "rest": rest_requests(), "onnx": onnx_graphs(), "tensor_file": tensor_files(), "side_socket": packets(), "flags": flags()}
    for target, texts in seeds.items():
        (directory / target).mkdir(parents=True, exist_ok=True)
        for text in texts:
            (directory / target / hashlib.sha1(text).hexdigest()).write_bytes(text)
    model = words([*sorted((ROOT / "posenc" / "model").glob("*.cc")), *sorted((ROOT / "posenc" / "mapping").glob("*.cc"))])
    dictionaries = {"calls": model, "model_config": model, "flags": words([ROOT / "server" / "core" / "config.cc"])}
    for target, text in dictionaries.items():
        (directory / f"{target}.dict").write_text(text)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

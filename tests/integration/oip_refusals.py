"""Wrong requests of ModelInfer for every encoding: legal ones with one thing changed, or two."""

import json

import numpy
import samples
from google.protobuf import json_format
from inference_client import infer, parameter
from posenc.v1 import service_pb2
from tensors import BOOL, FP32, INT64

DATATYPES = ["BOOL", "INT8", "INT32", "INT64", "UINT8", "UINT64", "FP16", "FP32", "FP64", "BF16", "BYTES", "FP8", ""]
DIMENSIONS = [-1, 0, 1, 2, 3, 4096, 2**31, 2**60, 2**63 - 1]
NUMBERS = [-2**63, -1, 0, 1, 2, 63, 4096, 2**31, 2**53, 2**63 - 1]
ROTARY = json_format.MessageToJson(samples.rope_settings())
BIAS = json_format.MessageToJson(samples.bias().method)
SINUSOIDAL = '{"sinusoidal": {"convention": "SINUSOIDAL_CONVENTION_HALVES", "dim": 6}}'
# Files of encodings that tests/golden/configs does not have.
CONFIGS = {"marian": {"model_type": "marian", "d_model": 8, "max_position_embeddings": 16},
           "gpt2": {"model_type": "gpt2", "n_embd": 4, "n_positions": 16, "n_head": 1},
           "vit_mae": {"model_type": "vit_mae", "hidden_size": 8, "image_size": 8, "patch_size": 4}}
GOLDEN = ("llama-3.1-8b", "bloom-560m", "t5-small", "gemma-3-1b-it", "phi-3-mini-128k-instruct", "llama-2-7b-dynamic")


def make_repository(folder, configs):
    for name in GOLDEN:
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_bytes((configs / f"{name}.json").read_bytes())
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))


def seeds():
    """Returns legal requests, at least one for each encoding."""
    q, ids, mask = numpy.ones((1, 2, 1, 128)), [[3, 4]], ("key_valid", [[True, False]], BOOL)
    scores = ("scores", numpy.ones((1, 16, 2, 2)), FP32)
    fill = {"fill_value": -1.0, "fully_masked_row": "FILL"}
    lengths = {"query_length": 2, "key_length": 2}
    dense, half = {**lengths, "form": "DENSE", "dtype": "FP32"}, {"dtype": "FP32", "form": "HALF_WIDTH"}
    return [
        infer("llama-3.1-8b", [("q", q, FP32), ("k", q, FP32), ("position_ids", ids, INT64)], layout="BSHD"),
        infer("llama-3.1-8b.rotary", [("q", q, FP32)], layout="BSHD", offset=3),
        infer("gemma-3-1b-it", [("q", numpy.ones((1, 2, 1, 256)), FP32)], layout="BSHD", offset=3, layer_index=0),
        infer("phi-3-mini-128k-instruct", [("q", q[..., :96], FP32), ("position_ids", ids, INT64)], layout="BSHD",
              scaling_length_rule="WHOLE_BATCH"),
        infer("posenc.rotary", [("q", q[..., :8], FP32), ("position_ids", ids, INT64)], layout="BSHD", settings=ROTARY),
        infer("llama-3.1-8b.table", [("position_ids", [1, 2], INT64)], **half),
        infer("llama-2-7b-dynamic.table", offset=0, count=3, scaling_length_rule="GIVEN", seq_len=5000, **half),
        infer("posenc.table", offset=0, count=3, settings=ROTARY, **half),
        infer("bloom-560m.bias", [mask], **fill, **dense),
        infer("bloom-560m.add_bias", [scores, mask], **fill),
        infer("t5-small.bias", [("table", numpy.ones((32, 8)), FP32)], component="encoder",
              table_layout="BUCKETS_BY_HEADS", **dense),
        infer("posenc.bias", [mask], settings=BIAS, **fill, **dense),
        infer("posenc.add_bias", [("scores", numpy.ones((1, 4, 2, 2)), FP32)], settings=BIAS),
        infer("posenc.embedding", offset=1, count=2, dtype="FP32", settings=SINUSOIDAL),
        infer("marian.embedding", [("position_ids", [1, 2], INT64)], dtype="FP32"),
        infer("gpt2.embedding", [("table", numpy.ones((16, 4)), FP32)], offset=0, count=2, dtype="FP32"),
        infer("vit_mae.embedding", height=2, width=2, dtype="FP32")]


def texts():
    """The second value of each enum of posenc.v1, legal for one parameter and wrong for the others, and other texts."""
    found = {"", "cpu", "cuda:1", "banana", "full_attention", "INT32", "FP64", "THD", "GIVEN", "PER_SEQUENCE", "FIRST"}
    for file in (service_pb2.DESCRIPTOR, *service_pb2.DESCRIPTOR.dependencies):
        for enum in file.enum_types_by_name.values():
            found.add(enum.values[1].name.removeprefix(enum.values[0].name.removesuffix("UNSPECIFIED")))
    return sorted(found)


def parameters_of(client, seed, place=lambda request: request):
    """The names that the refusal of an unknown parameter of the request, or of its input, lists."""
    request = clone(seed)
    place(request).parameters["nothing"].string_param = ""
    refusal = client.refusal("ModelInfer", request)
    assert refusal.value == "nothing", refusal
    return refusal.limit.removeprefix("must be one of ").split(", ") if "one of" in refusal.limit else []


def clone(request):
    copied = type(request)()
    copied.CopyFrom(request)
    return copied


def resized(request, n):
    """Gives an input as many bytes as its shape and datatype want, if these are few."""
    given, count = request.inputs[n], 1
    for dimension in given.shape:
        count *= dimension
    width = {"BOOL": 1, "FP16": 2, "BF16": 2, "FP64": 8, "INT64": 8}.get(given.datatype, 4)
    if 0 <= count * width <= 1 << 16:
        request.raw_input_contents[n] = bytes(count * width)


def changes_of_input(seed, n):
    """Functions that change the input of this number."""
    def of_shape(change):
        def apply(request):
            change(request.inputs[n].shape)
            resized(request, n)
        return apply

    def of_datatype(datatype):
        def apply(request):
            request.inputs[n].datatype = datatype
            resized(request, n)
        return apply

    def remove(request):
        del request.inputs[n], request.raw_input_contents[n]

    def memory(name, value):
        return lambda request: request.inputs[n].parameters[name].CopyFrom(parameter(value))

    yield remove
    yield lambda request: request.raw_input_contents.__setitem__(n, b"1")
    yield lambda request: request.raw_input_contents.__setitem__(n, b"\xff" * len(request.raw_input_contents[n]))
    yield lambda request: request.raw_input_contents.__delitem__(n)
    yield lambda request: setattr(request.inputs[n], "name", "nothing")
    yield lambda request: request.inputs[n].contents.fp32_contents.append(1)
    yield lambda request: request.inputs[n].MergeFromString(b"\xf2\x07\x01x")
    for name in ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size", "nothing"):
        yield from (memory(name, value) for value in ("a", -1, True))
    for datatype in DATATYPES:
        yield of_datatype(datatype)
    for dimension in DIMENSIONS:
        yield of_shape(lambda shape, dimension=dimension: shape.insert(0, dimension))
        yield of_shape(lambda shape, dimension=dimension: shape.append(dimension))
        for axis in range(len(seed.inputs[n].shape)):
            yield of_shape(lambda shape, axis=axis, dimension=dimension: shape.__setitem__(axis, dimension))
    for axis in range(len(seed.inputs[n].shape)):
        yield of_shape(lambda shape, axis=axis: shape.__delitem__(axis))
    yield of_shape(lambda shape: shape.__delitem__(slice(None)))
    yield of_shape(lambda shape: shape.extend([1] * 16))


def additions(client, seed):
    """Functions that add an input which the request does not have, with few elements."""
    names = {one.name for one in client.call("ModelMetadata", name=seed.model_name).inputs}
    for name in sorted(names - {one.name for one in seed.inputs}):
        for datatype in ("FP32", "INT64", "BOOL"):
            for shape in ([], [1], [2], [2, 2], [1, 2], [3, 2], [1, 2, 2], [1, 2, 1, 8]):
                def add(request, name=name, datatype=datatype, shape=shape):
                    request.inputs.add(name=name, datatype=datatype, shape=shape)
                    request.raw_input_contents.append(b"")
                    resized(request, len(request.inputs) - 1)
                yield add


def changes_of_parameters(names, place=lambda request: request):
    """Functions that set or remove a parameter of the request, or of its input."""
    for name in names:
        yield lambda request, name=name: place(request).parameters.pop(name, None)
        for value in (*texts(), *NUMBERS, True, False, -1.5, float("nan")):
            yield lambda request, name=name, value=value: place(request).parameters[name].CopyFrom(parameter(value))

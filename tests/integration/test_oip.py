"""The Open Inference Protocol: the same answers as posenc.v1, and Triton's codes for what is wrong."""

import json

import grpc
import numpy
import pytest
import samples
from google.protobuf import json_format
from inference import service_pb2 as oip
from inference_client import InferenceClient, infer, set_parameters
from posenc.v1 import bias_pb2, embedding_pb2, rotary_pb2, service_pb2
from tensors import BF16, BOOL, FP16, FP32, FP64, INT32, INT64, array, tensor

INVALID = grpc.StatusCode.INVALID_ARGUMENT
SETTINGS = json_format.MessageToJson(samples.rope_settings())
Q = numpy.arange(16, dtype="f4").reshape(1, 2, 1, 8)
LLAMA = "llama-3.1-8b"
MODELS = (LLAMA, "bloom-560m", "gemma-3-1b-it", "deepseek-v3", "phi-3-mini-128k-instruct", "llama-2-7b-dynamic",
          "falcon-rw-1b", "mpt-7b", "glm-4-9b-chat-hf", "gpt-oss-20b")


@pytest.fixture(scope="module")
def server(server_program, tmp_path_factory, configs):
    from server_process import ServerProcess
    repository = tmp_path_factory.mktemp("models")
    for name in MODELS:
        (repository / name).mkdir()
        (repository / name / "config.json").write_bytes((configs / f"{name}.json").read_bytes())
    with ServerProcess(server_program, tmp_path_factory.mktemp("server"), "--model-repository", repository) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with InferenceClient(server.port) as client:
        yield client


@pytest.fixture(scope="module")
def typed(server):
    from client import Client
    with Client(server.port) as client:
        yield client


def rotate(*tensors, model="posenc.rotary", **parameters):
    """A request to rotate Q, or the tensors given."""
    given = {"layout": "BSHD", **({"settings": SETTINGS} if model == "posenc.rotary" else {}), **parameters}
    return infer(model, tensors or [("q", Q, FP32)], **given)


def test_server_and_models(client):
    assert client.call("ServerLive").live
    assert client.call("ServerReady").ready
    metadata = client.call("ServerMetadata")
    assert metadata.name == "posenc" and metadata.version
    assert list(metadata.extensions) == ["model_configuration", "statistics", "model_repository"]
    assert client.call("ModelReady", name=LLAMA).ready
    assert client.call("ModelReady", name=LLAMA, version="1").ready
    assert not client.call("ModelReady", name=LLAMA, version="2").ready
    assert not client.call("ModelReady", name="nothing").ready
    assert client.refusal("ModelReady", name=LLAMA, version="one").code == INVALID


def test_the_log_names_the_models(server):
    assert f"models=\"{','.join(sorted(MODELS))}\"" in server.log_with("serving")


def test_metadata_and_configuration_agree(client):
    for model in client.call("RepositoryIndex").models:
        metadata = client.call("ModelMetadata", name=model.name)
        config = client.call("ModelConfig", name=model.name).config
        assert metadata.name == config.name == model.name and list(metadata.versions) == ["1"]
        assert config.max_batch_size == 0
        for described, configured in ((metadata.inputs, config.input), (metadata.outputs, config.output)):
            assert [(one.name, list(one.shape)) for one in described] == [(one.name, list(one.dims)) for one in configured]
        assert all(one.data_type for one in (*config.input, *config.output))
    optional = {one.name: one.optional for one in client.call("ModelConfig", name=LLAMA).config.input}
    assert optional == {"q": False, "k": True, "position_ids": True}


def test_encodings_follow_from_the_file(client):
    names = {model.name for model in client.call("RepositoryIndex").models if model.state == "READY"}
    assert {LLAMA, f"{LLAMA}.rotary", f"{LLAMA}.table"} <= names
    assert {"bloom-560m", "bloom-560m.bias", "bloom-560m.add_bias"} <= names
    assert f"{LLAMA}.bias" not in names and "bloom-560m.rotary" not in names
    assert [one.name for one in client.call("ModelMetadata", name="bloom-560m").outputs] == ["bias"]


def test_response_says_what_it_answers(client):
    request = rotate(offset=3)
    request.id = "step 7"
    response = client.call("ModelInfer", request)
    assert (response.model_name, response.model_version, response.id) == ("posenc.rotary", "1", "step 7")
    [output] = response.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("q", "FP32", [1, 2, 1, 8])
    assert response.parameters["device"].string_param == "cpu"
    assert len(response.parameters["plan_fingerprint"].string_param) == 32
    assert response.parameters["numerics_version"].int64_param > 0


def test_outputs_come_as_they_are_asked_for(client):
    tensors = [("k", 2 * Q, FP32), ("q", Q, FP32)]
    both = client.infer(rotate(*tensors, offset=3))
    in_order = client.infer(rotate(*tensors[::-1], offset=3))
    assert list(both) == ["q", "k"] and all(numpy.array_equal(both[name], in_order[name]) for name in "qk")
    turned = rotate(*tensors, offset=3)
    for name in ("k", "q"):
        turned.outputs.add(name=name)
    assert list(client.infer(turned)) == ["k", "q"]
    one = rotate(*tensors, offset=3)
    one.outputs.add(name="k")
    answer = client.infer(one)
    assert list(answer) == ["k"] and numpy.array_equal(answer["k"], both["k"])
    # perf_analyzer asks for all outputs of a model.
    lacks_k = rotate(offset=3)
    for name in ("q", "k"):
        lacks_k.outputs.add(name=name)
    assert list(client.infer(lacks_k)) == ["q"]


def contents(request):
    """The same request with typed contents instead of raw bytes."""
    changed = oip.ModelInferRequest()
    changed.CopyFrom(request)
    del changed.raw_input_contents[:]
    field = {"FP32": ("fp32_contents", "<f4"), "FP64": ("fp64_contents", "<f8"), "INT32": ("int_contents", "<i4"),
             "INT64": ("int64_contents", "<i8"), "BOOL": ("bool_contents", "?")}
    for given, raw in zip(changed.inputs, request.raw_input_contents):
        name, kind = field[given.datatype]
        getattr(given.contents, name).extend(numpy.frombuffer(raw, kind).tolist())
    return changed


@pytest.mark.parametrize("dtype", [INT32, INT64, FP32, FP64])
def test_contents_are_raw_bytes(client, dtype):
    request = rotate(("q", Q, FP32), ("k", 3 * Q, FP32), ("position_ids", [4, 9], dtype))
    raw, typed_fields = client.call("ModelInfer", request), client.call("ModelInfer", contents(request))
    assert raw == typed_fields


def test_contents_of_flags(client):
    request = infer("posenc.bias", [("key_valid", [[True, False]], BOOL)], query_length=2, key_length=2, form="DENSE",
                    dtype="FP32", fill_value=-5.0, fully_masked_row="FILL",
                    settings=json_format.MessageToJson(samples.bias().method))
    answer = client.infer(request)["bias"]
    assert (answer[..., 1] == -5).all() and numpy.array_equal(answer, client.infer(contents(request))["bias"])


@pytest.mark.parametrize("shape", [(1, 2, 0, 8), (0, 2, 1, 8), (1, 0, 1, 8)])
def test_empty_tensors(client, shape):
    for request in (rotate(("q", numpy.zeros(shape), FP32), offset=0),
                    contents(rotate(("q", numpy.zeros(shape), FP32), offset=0))):
        assert client.infer(request)["q"].shape == shape


def spoilt(change, **parameters):
    request = rotate(("q", Q, FP32), ("k", Q, FP32), **{"offset": 0, **parameters})
    change(request)
    return request


def second_name(name):
    def change(request):
        request.inputs[1].name = name
    return change


def contents_beside_raw(request):
    request.inputs[0].contents.fp32_contents.append(1)


def other_field(request):
    del request.raw_input_contents[:]
    request.inputs[0].contents.int64_contents.extend(range(16))


def half_contents(request):
    del request.raw_input_contents[:]
    for given in request.inputs:
        given.datatype = "FP16"
        given.contents.fp32_contents.extend(range(16))


WRONG = {
    "unknown input": (second_name("v"), "UNKNOWN_VALUE", "inputs[1].name", "v"),
    "doubled input": (second_name("q"), "CONFLICT", "inputs[1].name", "q"),
    "missing input": (lambda r: (r.inputs.pop(0), r.raw_input_contents.pop(0)), "MISSING", "q", "absent"),
    "unknown type": (lambda r: setattr(r.inputs[0], "datatype", "FP8"), "UNKNOWN_VALUE", "q.datatype", "FP8"),
    "no type": (lambda r: setattr(r.inputs[0], "datatype", ""), "MISSING", "q.datatype", "absent"),
    "type that cannot rotate": (lambda r: setattr(r.inputs[0], "datatype", "INT32"), "UNSUPPORTED", "q.datatype", "INT32"),
    "types differ": (lambda r: setattr(r.inputs[1], "datatype", "FP16"), "MISMATCH", "k", "64 bytes"),
    "too few bytes": (lambda r: r.raw_input_contents.__setitem__(0, b"1234"), "MISMATCH", "q", "4 bytes"),
    "too few entries": (lambda r: r.raw_input_contents.pop(), "MISMATCH", "raw_input_contents", "1 entries"),
    "too many entries": (lambda r: r.raw_input_contents.append(b""), "MISMATCH", "raw_input_contents", "3 entries"),
    "no entries": (lambda r: r.ClearField("raw_input_contents"), "MISMATCH", "q", "0 bytes"),
    "negative dimension": (lambda r: r.inputs[0].shape.__setitem__(0, -1), "OUT_OF_RANGE", "q.shape[0]", "-1"),
    "overflowing shape": (
        lambda r: r.inputs[0].shape.__setitem__(slice(None), [2**62, 2**62, 1, 8]), "OUT_OF_RANGE", "q.shape[0]", str(2**62)),
    "too many dimensions": (lambda r: r.inputs[0].shape.extend([1] * 30), "OUT_OF_RANGE", "q.shape", None),
    "contents beside raw": (contents_beside_raw, "CONFLICT", "q.contents", "present"),
    "contents of another type": (other_field, "MISMATCH", "q.contents.int64_contents", "present"),
    "contents of FP16": (half_contents, "UNSUPPORTED", "q.contents", "present"),
    "unknown output": (lambda r: r.outputs.add(name="v"), "UNKNOWN_VALUE", "outputs[0].name", "v"),
    "doubled output": (lambda r: (r.outputs.add(name="q"), r.outputs.add(name="q")), "CONFLICT", "outputs[1].name", "q"),
    "unknown parameter": (lambda r: set_parameters(r, {"offsets": 1}), "UNKNOWN_VALUE", "parameters", "offsets"),
    "unknown parameter of an input": (
        lambda r: set_parameters(r.inputs[0], {"layout": "BSHD"}), "UNKNOWN_VALUE", "q.parameters", "layout"),
    "classification": (lambda r: set_parameters(r.outputs.add(name="q"), {"classification": 1}), "UNKNOWN_VALUE",
                       "q.parameters", "classification"),
    "layout of another name": (lambda r: set_parameters(r, {"layout": "HBSD"}), "UNKNOWN_VALUE", "layout", "HBSD"),
    "layout by number": (lambda r: set_parameters(r, {"layout": 1}), "MISMATCH", "layout", "present"),
    "no layout": (lambda r: r.parameters.pop("layout"), "MISSING", "layout", "absent"),
    "offset as text": (lambda r: set_parameters(r, {"offset": "0"}), "MISMATCH", "offset", "present"),
    "parameter without a value": (lambda r: r.parameters["offset"].Clear(), "MISMATCH", "offset", "present"),
    "no settings": (lambda r: r.parameters.pop("settings"), "MISSING", "settings", "absent"),
    "settings that are not JSON": (lambda r: set_parameters(r, {"settings": "{"}), "MALFORMED", "settings", "present"),
    "unknown setting": (lambda r: set_parameters(r, {"settings": '{"theta": 1}'}), "MALFORMED", "settings", "present"),
    "settings with a value that no enum has": (
        lambda r: set_parameters(r, {"settings": '{"inputPairing": 7}'}), "UNKNOWN_VALUE", "settings.input_pairing", "7"),
    "no positions": (lambda r: r.parameters.pop("offset"), "MISSING", "offset", "absent"),
    "offset in memory without a region": (
        lambda r: set_parameters(r.inputs[0], {"shared_memory_offset": 0}), "CONFLICT", "q.shared_memory_offset", "present"),
    "bytes of memory without a region": (lambda r: set_parameters(r.outputs.add(name="k"), {
        "shared_memory_byte_size": "64"}), "CONFLICT", "k.shared_memory_byte_size", "present"),
    "shared memory that is off": (lambda r: set_parameters(r.inputs[0], {
        "shared_memory_region": "r", "shared_memory_byte_size": 64}), "MISMATCH", "raw_input_contents", "2 entries"),
}


@pytest.mark.parametrize("change, reason, field, value", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(client, change, reason, field, value):
    refusal = client.refusal("ModelInfer", spoilt(change))
    assert (refusal.code, refusal.reason, refusal.field) == (INVALID, reason, field), refusal
    assert value is None or refusal.value == value
    assert refusal.started == "false"


def test_unknown_fields_are_refused(client):
    for place, spoil in {"": lambda r: r, "inputs[0].": lambda r: r.inputs[0], "outputs[0].": lambda r: r.outputs.add(name="q"),
                         "inputs[0].contents.": lambda r: r.inputs[0].contents}.items():
        request = rotate(offset=0)
        spoil(request).MergeFromString(b"\xf2\x07\x01x")  # field 126
        refusal = client.refusal("ModelInfer", request)
        assert (refusal.code, refusal.reason, refusal.field) == (INVALID, "UNKNOWN_FIELD", f"{place}126")
    assert client.refusal("ModelMetadata", b"\xf2\x07\x01x").reason == "UNKNOWN_FIELD"


def test_models_that_there_are_not(client):
    for name, version, code in (("nothing", "", "NOT_FOUND"), (LLAMA, "2", "NOT_FOUND"), (LLAMA, "x", "INVALID_ARGUMENT")):
        request = rotate(model=name, offset=0)
        request.model_version = version
        assert client.refusal("ModelInfer", request).code.name == code
        for method in ("ModelMetadata", "ModelConfig", "ModelStatistics"):
            assert client.refusal(method, name=name, version=version).code.name == code


def test_parameters_of_other_servers_change_nothing(client):
    expected = client.infer(rotate(offset=3))["q"]
    ignored = {"sequence_id": 3, "sequence_start": True, "sequence_end": False, "priority": 1, "timeout": 1000,
               "triton_enable_empty_final_response": True, "binary_data_output": True}
    assert numpy.array_equal(client.infer(rotate(offset=3, **ignored))["q"], expected)


IGNORED = {  # with the types that Triton accepts
    "sequence_id": {"int64_param": -3, "string_param": "a"},
    "sequence_start": {"bool_param": True},
    "sequence_end": {"bool_param": False},
    "priority": {"int64_param": 1, "uint64_param": 2**64 - 1},
    "timeout": {"int64_param": 1000},
    "triton_enable_empty_final_response": {"bool_param": True},
    "binary_data": {"bool_param": True},
    "binary_data_size": {"int64_param": 64, "uint64_param": 64},
    "binary_data_output": {"bool_param": True},
}
KINDS = {"bool_param": True, "int64_param": 1, "uint64_param": 1, "string_param": "1", "double_param": 1.0, None: None}


@pytest.mark.parametrize("name, kinds", IGNORED.items(), ids=IGNORED)
def test_parameters_of_other_servers_have_their_types(client, name, kinds):
    places = {"": lambda r: r, "q.": lambda r: r.inputs[0]}
    for prefix, place in places.items():
        for kind, value in {**KINDS, **kinds}.items():
            request = rotate(offset=3)
            given = place(request).parameters[name]
            if kind is not None:
                setattr(given, kind, value)
            if kind in kinds:
                client.infer(request)
                continue
            refusal = client.refusal("ModelInfer", request)
            assert (refusal.code, refusal.reason, refusal.field) == (INVALID, "MISMATCH", prefix + name), kind
    if name == "priority":
        refusal = client.refusal("ModelInfer", rotate(offset=3, priority=-1))
        assert (refusal.code, refusal.field, refusal.value) == (INVALID, "priority", "-1")


def typed_rotation(model_config=None, q=Q, dtype=FP32, **fields):
    request = service_pb2.ApplyRotaryRequest(layout=rotary_pb2.LAYOUT_BSHD, **fields)
    if model_config is None:
        request.rotary.settings.CopyFrom(samples.rope_settings())
    else:
        request.rotary.model.CopyFrom(model_config)
    request.q.tensor.CopyFrom(tensor(q, dtype))
    return request


def test_tables(client, typed, configs):
    config = rotary_pb2.ModelConfig(config_json=(configs / f"{LLAMA}.json").read_bytes())
    for dtype in ("FP32", "BF16", "FP64"):
        request = service_pb2.GenerateTableRequest(
            rotary=rotary_pb2.RotarySource(model=config), positions=rotary_pb2.Positions(offset=70), count=9,
            dtype=f"DATA_TYPE_{dtype}", form=rotary_pb2.TABLE_FORM_DUPLICATED)
        expected = typed.call("GenerateTable", request)
        response = client.call("ModelInfer", infer(f"{LLAMA}.table", offset=70, count=9, dtype=dtype, form="duplicated"))
        assert list(response.raw_output_contents) == [expected.cos.data, expected.sin.data]
        ids = client.call("ModelInfer", infer(f"{LLAMA}.table", [("position_ids", numpy.arange(70, 79), INT64)],
                                              outputs=["sin"], dtype=dtype, form="DUPLICATED"))
        assert list(ids.raw_output_contents) == [expected.sin.data] and ids.outputs[0].datatype == dtype


def test_biases(client, typed, configs):
    method = bias_pb2.BiasMethod(model=rotary_pb2.ModelConfig(config_json=(configs / "bloom-560m.json").read_bytes()))
    request = service_pb2.GenerateBiasRequest(
        method=method, geometry=bias_pb2.BiasGeometry(query_length=3, key_length=5, query_offset=2),
        mask=bias_pb2.Mask(causal=True, fill_kind=bias_pb2.MASK_FILL_NEGATIVE_INFINITY,
                           fully_masked_row=bias_pb2.FULLY_MASKED_ROW_FILL),
        form=bias_pb2.BIAS_FORM_DENSE, dtype=FP16)
    expected = typed.call("GenerateBias", request).bias
    asked = dict(query_length=3, key_length=5, query_offset=2, causal=True, fill_kind="NEGATIVE_INFINITY",
                 fully_masked_row="FILL", form="DENSE", dtype="FP16")
    response = client.call("ModelInfer", infer("bloom-560m", **asked))
    assert response.raw_output_contents[0] == expected.data and list(response.outputs[0].shape) == list(expected.shape)
    scores = numpy.zeros((1, 16, 3, 5), "f4")
    added = client.infer(infer("bloom-560m.add_bias", [("scores", scores, FP32)], query_offset=2))["scores"]
    request = service_pb2.AddBiasRequest(method=method, geometry=bias_pb2.BiasGeometry(query_offset=2),
                                         scores=tensor(scores, FP32))
    assert numpy.array_equal(added, array(typed.call("AddBias", request).scores))


def test_settings_with_tensors(client, typed):
    """Tensors of settings come in JSON as base64."""
    alibi = bias_pb2.Alibi(num_heads=2, form=bias_pb2.ALIBI_FORM_CAUSAL, given=tensor([0.5, 0.25], FP32))
    method = bias_pb2.BiasMethod(alibi=alibi)
    request = service_pb2.GenerateBiasRequest(
        method=method, geometry=bias_pb2.BiasGeometry(query_length=4, key_length=4), form=bias_pb2.BIAS_FORM_DENSE, dtype=FP32)
    asked = infer("posenc.bias", query_length=4, key_length=4, form="DENSE", dtype="FP32",
                  settings=json_format.MessageToJson(method))
    assert client.call("ModelInfer", asked).raw_output_contents[0] == typed.call("GenerateBias", request).bias.data
    method.alibi.given.data = b"\x01"  # fewer bytes than a float has
    asked = infer("posenc.bias", query_length=4, key_length=4, form="DENSE", dtype="FP32",
                  settings=json_format.MessageToJson(method))
    assert client.refusal("ModelInfer", asked).reason == "MISMATCH"
    method.alibi.given.ClearField("data")
    method.alibi.given.region.token = b"0123456789abcdef"
    asked.parameters["settings"].string_param = json_format.MessageToJson(method)
    assert client.refusal("ModelInfer", asked).reason == "UNSUPPORTED"


def test_embeddings(client, typed):
    sinusoidal = embedding_pb2.Sinusoidal(convention=embedding_pb2.SINUSOIDAL_CONVENTION_HALVES, dim=6)
    request = service_pb2.GenerateEmbeddingRequest(sinusoidal=sinusoidal, positions=rotary_pb2.Positions(offset=2), count=3,
                                                   dtype=FP32)
    expected = typed.call("GenerateEmbedding", request).embedding
    settings = json_format.MessageToJson(service_pb2.GenerateEmbeddingRequest(sinusoidal=sinusoidal))
    response = client.call("ModelInfer", infer("posenc.embedding", settings=settings, offset=2, count=3, dtype="FP32"))
    assert response.raw_output_contents[0] == expected.data and list(response.outputs[0].shape) == [3, 6]


def test_rotation_of_part_of_the_heads(client, typed):
    q = numpy.arange(24, dtype="f4").reshape(1, 2, 1, 12)
    request = typed_rotation(q=q, positions=rotary_pb2.Positions(offset=3))
    request.q.rotary_offset = 4
    asked = rotate(("q", q, FP32), offset=3)
    set_parameters(asked.inputs[0], {"rotary_offset": 4})
    assert client.call("ModelInfer", asked).raw_output_contents[0] == typed.call("ApplyRotary", request).q.data


def test_the_index_in_the_cache(client, typed):
    settings = rotary_pb2.RotarySettings(query_scale=rotary_pb2.QueryScale(
        function=rotary_pb2.QUERY_SCALE_FUNCTION_LLAMA4, attn_scale=0.1, floor_scale=4,
        position_source=rotary_pb2.POSITION_SOURCE_CACHE_INDEX))
    q = numpy.arange(1, 17, dtype="f4").reshape(1, 2, 1, 8)
    positions = rotary_pb2.Positions(ids=tensor([0, 1], INT64), cache_index=7)
    request = typed_rotation(q=q, positions=positions)
    request.rotary.settings.CopyFrom(settings)
    asked = infer("posenc.rotary", [("q", tensor(q, FP32)), ("position_ids", positions.ids)], layout="BSHD", cache_index=7,
                  settings=json_format.MessageToJson(settings))
    answer = client.call("ModelInfer", asked).raw_output_contents[0]
    assert answer == typed.call("ApplyRotary", request).q.data != q.tobytes()


class Cases:
    """Random rotations, as a request of each API."""

    def __init__(self, configs, seed):
        self.random = numpy.random.default_rng(seed)
        self.configs = {name: (configs / f"{name}.json").read_bytes() for name in MODELS if name not in
                        ("bloom-560m", "falcon-rw-1b", "mpt-7b")}

    def one(self):
        choose = self.random.choice
        name = str(choose([*self.configs, "posenc.rotary"]))
        batch, tokens, dtype = int(choose([1, 2])), int(choose([1, 3, 17])), int(choose([FP32, FP16, BF16]))
        layout = str(choose(["BSHD", "BHSD"]))
        parameters, source = {"layout": layout}, rotary_pb2.RotarySource()
        positions = rotary_pb2.Positions()
        if name == "posenc.rotary":
            width = 16
            source.settings.CopyFrom(samples.rope_settings(rotary_dim=width, theta=float(choose([100.0, 10000.0]))))
            parameters["settings"] = json_format.MessageToJson(source.settings)
        else:
            config = json.loads(self.configs[name])
            width = config.get("qk_rope_head_dim") or config.get("head_dim") or (
                config["hidden_size"] // config["num_attention_heads"])
            source.model.config_json = self.configs[name]
            if name in ("gemma-3-1b-it", "gpt-oss-20b"):
                source.model.layer_index = parameters["layer_index"] = int(choose([0, 5]))
        if name in ("llama-2-7b-dynamic", "phi-3-mini-128k-instruct"):
            rule = str(choose(["PER_SEQUENCE", "WHOLE_BATCH"]))
            positions.scaling_length_rule = rotary_pb2.ScalingLengthRule.Value(f"SCALING_LENGTH_RULE_{rule}")
            parameters["scaling_length_rule"] = rule
        request = service_pb2.ApplyRotaryRequest(rotary=source, layout=f"LAYOUT_{layout}")
        tensors = []
        for operand in ("q", "k")[: int(choose([1, 2]))]:
            heads = int(choose([1, 2]))
            shape = (batch, tokens, heads, width) if layout == "BSHD" else (batch, heads, tokens, width)
            values = tensor(self.random.standard_normal(shape).astype("f4"), dtype)
            getattr(request, operand).tensor.CopyFrom(values)
            tensors.append((operand, values))
        kind = str(choose(["offset", "ids", "batched ids"]))
        if kind == "offset":
            positions.offset = parameters["offset"] = int(self.random.integers(0, 9000))
        else:
            shape = (tokens,) if kind == "ids" else (batch, tokens)
            ids = tensor(self.random.integers(0, 9000, shape), int(choose([INT32, INT64])))
            positions.ids.CopyFrom(ids)
            tensors.insert(int(choose([0, 1])), ("position_ids", ids))
        request.positions.CopyFrom(positions)
        if choose([0, 1]):
            direction = str(choose(["FORWARD", "TRANSPOSE", "INVERSE"]))
            request.direction = rotary_pb2.Direction.Value(f"DIRECTION_{direction}")
            parameters["direction"] = direction.lower()
        if choose([0, 1]):
            preset = str(choose(["EXACT", "F32", "HF_EAGER", "VLLM"] + ["MODEL"] * (name != "posenc.rotary")))
            request.precision.preset = rotary_pb2.PrecisionPreset.Value(f"PRECISION_PRESET_{preset}")
            parameters["precision"] = preset
        return request, infer(name, tensors, **parameters)


def test_the_same_bytes_as_posenc_v1(client, typed, configs):
    cases = Cases(configs, seed=20261124)
    for number in range(200):
        request, asked = cases.one()
        expected = typed.call("ApplyRotary", request)
        response = client.call("ModelInfer", asked)
        data = [expected.q.data] + ([expected.k.data] if request.HasField("k") else [])
        assert list(response.raw_output_contents) == data, (number, asked)
        assert response.parameters["plan_fingerprint"].string_param == expected.info.plan_fingerprint.hex()


def test_positions_of_three_axes(client, typed):
    """Qwen2-VL's position_ids are [3, B, S]."""
    settings = samples.rope_settings()
    settings.rope_parameters.mrope_section.extend([2, 1, 1])
    settings.rope_parameters.mrope_order = rotary_pb2.MROPE_ORDER_CONTIGUOUS
    ids = numpy.arange(6).reshape(3, 1, 2)
    request = typed_rotation(positions=rotary_pb2.Positions(ids=tensor(ids, INT64),
                                                            axis_dimension=rotary_pb2.AXIS_DIMENSION_FIRST))
    request.rotary.settings.CopyFrom(settings)
    asked = rotate(("position_ids", ids, INT64), ("q", Q, FP32), settings=json_format.MessageToJson(settings))
    assert client.call("ModelInfer", asked).raw_output_contents[0] == typed.call("ApplyRotary", request).q.data
    last = rotate(("position_ids", numpy.moveaxis(ids, 0, 2), INT64), ("q", Q, FP32), axis_dimension="LAST",
                  settings=json_format.MessageToJson(settings))
    assert client.call("ModelInfer", last) == client.call("ModelInfer", asked)


def test_statistics(client):
    def counts():
        [stats] = client.call("ModelStatistics", name=f"{LLAMA}.rotary").model_stats
        return stats
    before = counts()
    q = numpy.ones((1, 1, 1, 128))
    for offset in range(3):
        client.infer(rotate(("q", q, FP32), model=f"{LLAMA}.rotary", offset=offset))
    assert client.refusal("ModelInfer", rotate(model=f"{LLAMA}.rotary")).code == INVALID
    after = counts()
    assert after.inference_count - before.inference_count == 3
    assert after.inference_stats.fail.count - before.inference_stats.fail.count == 1
    stats = after.inference_stats
    assert {duration.count for duration in (stats.success, stats.queue, stats.compute_input, stats.compute_infer,
                                            stats.compute_output)} == {after.inference_count}
    assert stats.success.ns == stats.queue.ns + stats.compute_infer.ns > before.inference_stats.success.ns
    assert after.last_inference > 1.7e12
    names = {one.name for one in client.call("ModelStatistics").model_stats}
    assert {LLAMA, "posenc.bias"} <= names


def test_a_stream_answers_each_request(client):
    def requests():
        for number in range(40):
            request = rotate(offset=number, model="nothing" if number == 7 else "posenc.rotary",
                             triton_enable_empty_final_response=number % 2 == 0)
            request.id = str(number)
            yield request
    responses = list(client.method("ModelStreamInfer")(requests(), timeout=60))
    assert [response.infer_response.id for response in responses] == [str(n) for n in range(40)]
    assert "nothing" in responses[7].error_message
    for number, response in enumerate(responses):
        if number == 7:
            continue
        assert not response.error_message
        unary = client.call("ModelInfer", rotate(offset=number))
        assert response.infer_response.raw_output_contents == unary.raw_output_contents
        final = response.infer_response.parameters
        assert ("triton_final_response" in final) == (number % 2 == 0)
        assert number % 2 or final["triton_final_response"].bool_param


def test_a_stream_of_nothing(client):
    assert list(client.method("ModelStreamInfer")(iter([]), timeout=60)) == []


def test_malformed_messages(client):
    assert client.refusal("ModelInfer", b"\xff").reason == "MALFORMED"
    assert client.refusal("ModelInfer", b"\x0a\x01\xff").reason == "MALFORMED"  # model_name is not UTF-8
    [response] = client.method("ModelStreamInfer")(iter([b"\xff"]), timeout=60)
    assert response.error_message and not response.infer_response.outputs

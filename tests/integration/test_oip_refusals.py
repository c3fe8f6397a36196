"""Refusals of ModelInfer name what the Open Inference Protocol has: inputs, outputs and parameters, no fields of posenc.v1."""

import random
import re

import grpc
import oip_refusals
import pytest
from client import Refusal
from inference_client import InferenceClient, infer
from posenc.v1 import service_pb2
from server_process import ServerProcess

# Fields of the protocol's own messages, and what is said of a message as a whole.
MESSAGES = {"model_name", "model_version", "id", "inputs", "outputs", "parameters", "raw_input_contents", "request", "answer"}
PART = re.compile(r"(\[\d+\])?|\.(datatype|shape(\[\d+\])?|parameters|contents(\.\w+)?|shared_memory_(region|offset|byte_size))")
PAIRS = 100  # of changes, for each legal request
WORDS = {"ids", "offsets", "segments", "preset", "dtype", "tensor.dtype"}  # fields whose names are not told by a '_' or a '.'


@pytest.fixture(scope="module")
def client(server_program, tmp_path_factory, configs):
    repository = tmp_path_factory.mktemp("models")
    oip_refusals.make_repository(repository, configs)
    with ServerProcess(server_program, tmp_path_factory.mktemp("server"), "--model-repository", repository) as server, \
            InferenceClient(server.port) as client:
        yield client


def fields_of(message, found):
    """Adds the names of the fields and oneofs of a message of posenc.v1 and of all within it."""
    for field in message.fields:
        new = field.name not in found
        found.update([field.name, *([field.containing_oneof.name] if field.containing_oneof else [])])
        if field.message_type is not None and new:
            fields_of(field.message_type, found)
    return found


TYPED = fields_of(service_pb2.ApplyRotaryRequest.DESCRIPTOR, set())
for other in (service_pb2.GenerateTableRequest, service_pb2.AddBiasRequest, service_pb2.GenerateBiasRequest,
              service_pb2.GenerateEmbeddingRequest):
    fields_of(other.DESCRIPTOR, TYPED)


class Names:
    """The names that a model has."""

    def __init__(self, client, seed):
        metadata = client.call("ModelMetadata", name=seed.model_name)
        self.tensors = {one.name for one in (*metadata.inputs, *metadata.outputs)}
        self.parameters = set(oip_refusals.parameters_of(client, seed))
        self.of_inputs = {name for n in range(len(seed.inputs))
                          for name in oip_refusals.parameters_of(client, seed, lambda request: request.inputs[n])}
        self.settings = {"settings"} if seed.model_name.startswith("posenc.") else set()

    def has(self, field):
        """True if a field of an error is one of the protocol's."""
        first = re.match(r"\w*", field)[0]
        if first in MESSAGES | self.settings:
            return True
        if first in self.tensors:
            rest = field.removeprefix(first)
            return bool(PART.fullmatch(rest)) or rest.removeprefix(".") in {
                *self.of_inputs, *(f"{name}" for name in ("sequence_id", "priority"))}
        return field in self.parameters

    def foreign_words(self, text):
        """The names of fields of posenc.v1 in a text that are no names of the protocol."""
        words = set(re.findall(r"(?<![\w.])[a-z]\w*(?:\.[a-z]\w*)*", text))
        suspects = {word for word in words if "_" in word or "." in word or word in WORDS}
        own = MESSAGES | self.tensors | self.parameters | self.of_inputs | self.settings
        typed = {word for word in suspects if set(word.split(".")) <= TYPED}
        return {word for word in typed if word not in own and not self.has(word)}


@pytest.mark.parametrize("seed", oip_refusals.seeds(), ids=lambda seed: f"{seed.model_name}-{len(seed.inputs)}")
def test_refusals_name_what_the_protocol_has(client, seed):
    client.call("ModelInfer", seed)
    names = Names(client, seed)
    changes = [*oip_refusals.changes_of_parameters(sorted(names.parameters | names.settings)),
               *oip_refusals.additions(client, seed)]
    for n in range(len(seed.inputs)):
        def place(request, n=n):
            return request.inputs[n]
        changes += oip_refusals.changes_of_input(seed, n)
        changes += oip_refusals.changes_of_parameters(oip_refusals.parameters_of(client, seed, place), place)
    chance = random.Random(7)
    wrong, refused = set(), 0
    for chosen in [*([change] for change in changes), *(chance.sample(changes, 2) for _ in range(PAIRS))]:
        request = oip_refusals.clone(seed)
        try:
            for change in chosen:
                change(request)
        except IndexError:  # the other change has removed the input
            continue
        try:
            client.call("ModelInfer", request)
        except grpc.RpcError as error:
            refusal = Refusal.of(error)
            refused += 1
            foreign = [field for field in (refusal.field, refusal.other_field) if field and not names.has(field)]
            if not refusal.field.startswith("settings"):
                foreign += names.foreign_words(refusal.limit)
            if foreign:
                wrong.add((*foreign, refusal.message))
    assert refused > 100 and not wrong, sorted(wrong)[:20]


def test_what_is_lacking_is_named_as_the_protocol_has_it(client):
    seeds = {seed.model_name: seed for seed in oip_refusals.seeds()}

    def refusal_without(model, parameter):
        request = oip_refusals.clone(seeds[model])
        del request.parameters[parameter]
        return client.refusal("ModelInfer", request)
    refusal = refusal_without("llama-3.1-8b.rotary", "offset")
    assert refusal.message == "offset: must be given: offset or position_ids"
    refusal = refusal_without("posenc.table", "dtype")
    assert (refusal.field, refusal.reason) == ("dtype", "MISSING")
    assert re.findall(r"[A-Z]+\d+", refusal.limit) == ["FP32", "FP16", "BF16", "FP64"]
    refusal = refusal_without("posenc.bias", "fill_value")
    assert refusal.message == "fill_kind: must be given: fill_kind or fill_value"
    refusal = client.refusal("ModelInfer", infer("posenc.bias", settings=oip_refusals.BIAS, form="DENSE", dtype="FP32",
                                                 query_length=2, key_length=3))
    assert refusal.field == "query_offset" and refusal.limit.endswith("query_offset or query_positions")
    # Only what is accepted is offered.
    for model, name, offered in (("posenc.table", "dtype", "FP32, FP16, BF16, FP64"),
                                 ("posenc.bias", "dtype", "FP32, FP16, BF16, INT32")):
        request = oip_refusals.clone(seeds[model])
        request.parameters[name].string_param = "FP8"
        assert client.refusal("ModelInfer", request).limit == f"must be one of {offered}"
    request = oip_refusals.clone(seeds["llama-3.1-8b.rotary"])
    for datatype, reason in (("INT32", "UNSUPPORTED"), ("FP8", "UNKNOWN_VALUE"), ("", "MISSING")):
        request.inputs[0].datatype = datatype
        refusal = client.refusal("ModelInfer", request)
        assert (refusal.field, refusal.reason, refusal.limit) == ("q.datatype", reason, "must be one of FP32, FP16, BF16")

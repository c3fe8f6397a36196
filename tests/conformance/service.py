"""Calls a posenc-server and returns numpy arrays. Requests are dictionaries like the API's JSON, tensors are arrays."""

import numpy
from google.protobuf.descriptor import FieldDescriptor
from posenc.v1 import rotary_pb2, service_pb2, tensor_pb2
from tensors import FP32, NUMPY, array, tensor

DTYPES = {numpy.dtype(name): dtype for dtype, name in NUMPY.items() if name != "<u2"}


def fill(message, values):
    """Sets a message's fields from a dictionary."""
    for name, value in values.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.message_type is tensor_pb2.Tensor.DESCRIPTOR:
            getattr(message, name).CopyFrom(as_tensor(value))
        elif field.message_type is not None and isinstance(value, (list, tuple)):
            for item in value:
                fill(getattr(message, name).add(), item)
        elif field.message_type is not None:
            getattr(message, name).SetInParent()
            fill(getattr(message, name), value)
        elif isinstance(value, (list, tuple)):
            getattr(message, name).extend(value)
        else:
            by_name = field.type == FieldDescriptor.TYPE_ENUM and isinstance(value, str)
            setattr(message, name, field.enum_type.values_by_name[value].number if by_name else value)
    return message


def as_tensor(value):
    """Makes a Tensor of an array's own type; lists become FP32."""
    if isinstance(value, tensor_pb2.Tensor):
        return value
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    value = numpy.asarray(value) if hasattr(value, "dtype") else numpy.asarray(value, "f4")
    return tensor(value, DTYPES[value.dtype])


class Service:
    def __init__(self, client):
        self.client = client

    def bias(self, method, geometry=None, preset="F32", **more):
        request = {"form": "BIAS_FORM_DENSE", "dtype": FP32, "method": method, "geometry": geometry or {}} | more
        return self.ask("GenerateBias", service_pb2.GenerateBiasRequest(), request, preset).bias

    def embedding(self, preset="F32", dtype=FP32, **request):
        return array(self.ask("GenerateEmbedding", service_pb2.GenerateEmbeddingRequest(), request | {"dtype": dtype},
                               preset).embedding)

    def table(self, settings, positions, form, preset, dtype=FP32):
        """Returns (cos, sin) for positions [tokens][axes]."""
        ids = numpy.asarray(positions, "f8")
        request = {"rotary": {"settings": settings}, "form": f"TABLE_FORM_{form}", "dtype": dtype,
                   "positions": {"ids": ids, "axis_dimension": rotary_pb2.AXIS_DIMENSION_LAST}}
        answer = self.ask("GenerateTable", service_pb2.GenerateTableRequest(), request, preset)
        return array(answer.cos), array(answer.sin)

    def positions(self, config, tokens, **fields):
        described = {} if tokens is None else {"tokens": tokens}
        request = {"model": {"config_json": config}, **described, **fields}
        return self.client.call("Positions", fill(service_pb2.PositionsRequest(), request))

    def scores(self, preset="F32", dtype=FP32, **request):
        return array(self.ask("RelativeScores", service_pb2.RelativeScoresRequest(), request | {"dtype": dtype},
                               preset).scores)

    def ask(self, name, message, request, preset):
        precision = {"precision": {"preset": f"PRECISION_PRESET_{preset}"}}
        return self.client.call(name, fill(message, request | precision))

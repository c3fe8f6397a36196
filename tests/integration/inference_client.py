"""A client of the Open Inference Protocol, made only from its proto files and gRPC, and requests for it."""

import grpc
import numpy
from client import SECONDS, UNLIMITED, Refusal
from inference import service_pb2
from tensors import BF16, BOOL, FP16, FP32, FP64, INT32, INT64, NUMPY, from_bf16, to_bf16

SERVICE = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
NAMES = {FP32: "FP32", FP16: "FP16", BF16: "BF16", FP64: "FP64", INT32: "INT32", INT64: "INT64", BOOL: "BOOL"}
TYPES = {name: dtype for dtype, name in NAMES.items()}


class InferenceClient:
    def __init__(self, port):
        """Connects to a port of this machine, or to the address that is given instead."""
        address = f"127.0.0.1:{port}" if isinstance(port, int) else port
        self.channel = grpc.insecure_channel(address, options=UNLIMITED)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def method(self, name):
        """Returns gRPC's own callable, which takes a message or its bytes."""
        method = SERVICE.methods_by_name[name]
        response = getattr(service_pb2, method.output_type.name)
        make = self.channel.stream_stream if name == "ModelStreamInfer" else self.channel.unary_unary
        return make(f"/{SERVICE.full_name}/{name}",
                    lambda request: request if isinstance(request, bytes) else request.SerializeToString(),
                    response.FromString)

    def call(self, method, request=None, /, timeout=SECONDS, **fields):
        """Calls with a request, or one of these fields."""
        if request is None:
            request = getattr(service_pb2, SERVICE.methods_by_name[method].input_type.name)(**fields)
        return self.method(method)(request, timeout=timeout)

    def refusal(self, method, request=None, /, **fields):
        """Returns the error of a call that must fail."""
        try:
            answer = self.call(method, request, **fields)
        except grpc.RpcError as error:
            return Refusal.of(error)
        raise AssertionError(f"{method} was not refused: {answer}")

    def infer(self, request):
        return arrays(self.call("ModelInfer", request))


def parameter(value):
    kind = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
    return service_pb2.InferParameter(**{kind: value})


def set_parameters(message, values):
    for name, value in values.items():
        message.parameters[name].CopyFrom(parameter(value))


def infer(model, tensors=(), outputs=(), **parameters):
    """Makes a request. `tensors`: (name, array, dtype), with float32 values for BF16, or a Tensor in place of both."""
    request = service_pb2.ModelInferRequest(model_name=model)
    set_parameters(request, parameters)
    for name, values, *dtype in tensors:
        if dtype:
            shape, [dtype] = numpy.shape(values), dtype
            stored = to_bf16(values) if dtype == BF16 else numpy.asarray(values).astype(NUMPY[dtype])
            data = stored.tobytes()
        else:
            shape, dtype, data = values.shape, values.dtype, values.data
        request.inputs.add(name=name, datatype=NAMES[dtype], shape=shape)
        request.raw_input_contents.append(data)
    for name in outputs:
        request.outputs.add(name=name)
    return request


def arrays(response):
    """Returns the outputs by name, in the response's order; BF16 as float32."""
    found = {}
    for output, data in zip(response.outputs, response.raw_output_contents, strict=True):
        dtype = TYPES[output.datatype]
        values = numpy.frombuffer(data, NUMPY[dtype]).reshape(tuple(output.shape))
        found[output.name] = from_bf16(values) if dtype == BF16 else values
    return found

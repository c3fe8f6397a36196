"""Rotates a query by the RoPE of a model, on a posenc-server, by stubs of the protos: rotate_stubs.py ADDRESS CONFIG_JSON"""

import sys

import grpc
import numpy
from posenc.v1 import rotary_pb2, service_pb2, service_pb2_grpc, tensor_pb2

address, config = sys.argv[1:]
q = numpy.ones((1, 3, 32, 128), "<f4")  # one sequence, three tokens, 32 heads of 128 elements

# gRPC's default allows 4 MiB a message; the server's own limits are in GetServerInfo.
channel = grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)])
stub = service_pb2_grpc.PositionalEncodingServiceStub(channel)

answer = stub.ApplyRotary(service_pb2.ApplyRotaryRequest(
    rotary=rotary_pb2.RotarySource(model=rotary_pb2.ModelConfig(config_json=open(config, "rb").read())),
    positions=rotary_pb2.Positions(offset=100_000),
    layout=rotary_pb2.LAYOUT_BSHD,
    q=rotary_pb2.RotaryOperand(tensor=tensor_pb2.Tensor(
        dtype=tensor_pb2.DATA_TYPE_FP32, shape=q.shape, data=q.tobytes()))))

rotated = numpy.frombuffer(answer.q.data, "<f4").reshape(answer.q.shape)
print(rotated[0, 0, 0, :4])

"""Rotates a query where it lies, in memory shared with a posenc-server on this host: share.py ADDRESS SIDE_SOCKET"""

import fcntl, mmap, os, socket, sys

import grpc
import numpy
from posenc.v1 import rotary_pb2, service_pb2, service_pb2_grpc, shared_memory_pb2, tensor_pb2

address, side_socket = sys.argv[1:]
shape = (1, 3, 32, 128)
size = 4 * 3 * 32 * 128

file = os.memfd_create("posenc", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
os.ftruncate(file, size)
fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
q = numpy.frombuffer(mmap.mmap(file, size), "<f4").reshape(shape)
q[:] = 1

side = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
side.connect(side_socket)
register = shared_memory_pb2.SharedMemoryRequest(register_memfd=shared_memory_pb2.RegisterMemfd(byte_size=size))
socket.send_fds(side, [register.SerializeToString()], [file])
answer = shared_memory_pb2.SharedMemoryResponse.FromString(side.recv(8192))
if answer.HasField("error"):
    sys.exit(answer.error.message)

part = tensor_pb2.Region(token=answer.token, offset=0, byte_size=size)
stub = service_pb2_grpc.PositionalEncodingServiceStub(grpc.insecure_channel(address))
stub.ApplyRotary(service_pb2.ApplyRotaryRequest(
    rotary=rotary_pb2.RotarySource(settings=rotary_pb2.RotarySettings(
        rope_parameters=rotary_pb2.RopeParameters(rope_type="default"), rotary_dim=128,
        input_pairing=rotary_pb2.PAIRING_HALF_SPLIT)),
    positions=rotary_pb2.Positions(offset=100_000),
    layout=rotary_pb2.LAYOUT_BSHD,
    q=rotary_pb2.RotaryOperand(
        tensor=tensor_pb2.Tensor(dtype=tensor_pb2.DATA_TYPE_FP32, shape=shape, region=part),
        output=part)))  # in place; another part: there; none: into the answer
print(q[0, 0, 0, :4])
side.close()  # ends the registration

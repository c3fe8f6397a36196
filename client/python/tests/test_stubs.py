"""posenc.v1: the names of protoc's stubs, made from the package's descriptors."""

import importlib
import json
import pathlib

import grpc
import numpy
import pytest

pytest.importorskip("google.protobuf", reason="posenc.v1 needs protobuf: pip install 'posenc[stubs]'")

from posenc.v1 import error_pb2, rotary_pb2, service_pb2, service_pb2_grpc, tensor_pb2  # noqa: E402

from conftest import LLAMA  # noqa: E402

PROTOS = sorted((pathlib.Path(__file__).resolve().parents[3] / "proto/posenc/v1").glob("*.proto"))


@pytest.fixture
def stub(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield service_pb2_grpc.PositionalEncodingServiceStub(channel)


def request(q, **fields):
    return service_pb2.ApplyRotaryRequest(
        rotary=rotary_pb2.RotarySource(model=rotary_pb2.ModelConfig(config_json=json.dumps(LLAMA).encode())),
        positions=rotary_pb2.Positions(offset=7), layout=rotary_pb2.LAYOUT_BSHD,
        q=rotary_pb2.RotaryOperand(tensor=tensor_pb2.Tensor(dtype=tensor_pb2.DATA_TYPE_FP32, shape=q.shape, data=q.tobytes())),
        **fields)


def test_a_rotation_by_stubs_has_the_bytes_of_the_client(stub, remote):
    q = numpy.arange(2 * 4 * 128, dtype="f4").reshape(1, 2, 4, 128)
    answer = stub.ApplyRotary(request(q))
    rotated = numpy.frombuffer(answer.q.data, "f4").reshape(answer.q.shape)
    assert rotated.tobytes() == remote.rope(q, model=LLAMA, positions=7, layout="BSHD").q.tobytes()


def test_streams_and_errors(stub):
    tiles = stub.StreamTable(service_pb2.StreamTableRequest(table=service_pb2.GenerateTableRequest(), rows_per_tile=1))
    with pytest.raises(grpc.RpcError) as caught:
        list(tiles)
    trailers = dict(caught.value.trailing_metadata())
    status = error_pb2.RichStatus.FromString(trailers["grpc-status-details-bin"])
    assert error_pb2.ErrorInfo.FromString(status.details[0].value).reason


@pytest.mark.parametrize("proto", PROTOS, ids=lambda path: path.stem)
def test_every_message_and_enum_has_its_name(proto):
    """Each module has what its file declares, and knows its types."""
    module = importlib.import_module(f"posenc.v1.{proto.stem}_pb2")
    for name, message in module.DESCRIPTOR.message_types_by_name.items():
        assert getattr(module, name).DESCRIPTOR is message
        assert getattr(module, name)().SerializeToString() == b""
    for name, enum in module.DESCRIPTOR.enum_types_by_name.items():
        assert getattr(module, name).Name(0) == enum.values_by_number[0].name
    assert pathlib.Path(module.__file__).with_suffix(".pyi").exists()

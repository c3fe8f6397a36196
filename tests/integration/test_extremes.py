"""Legal requests at the ends of their ranges are answered, and long ones end with their caller."""

import grpc
import numpy
import pytest
import samples
from mutations import rotary_stream, seeds
from posenc.v1 import bias_pb2, rotary_pb2, service_pb2
from tensors import FP32, FP64, array, tensor

XPOS_METHODS = ("Explain", "Analyze", "ApplyRotary", "StreamApplyRotary", "GenerateTable", "StreamTable", "Diagnose")


def xpos_settings(request):
    """The RotarySettings of a request of any RPC."""
    for path in ("rotary.settings", "table.rotary.settings", "header.rotary.settings", "expected.settings", "rotary"):
        message = request
        for name in path.split("."):
            if name not in message.DESCRIPTOR.fields_by_name:
                break
            message = getattr(message, name)
        else:
            if message.DESCRIPTOR.name == "RotarySettings":
                return message
    raise AssertionError(request)


@pytest.mark.parametrize("scale_base", [1.0, 256.0, 5e-324, 1.7e308])
@pytest.mark.parametrize("centre", [1e12, -1e12, 1e300, -1e300, 2.0])
@pytest.mark.parametrize("method", XPOS_METHODS)
def test_xpos_beyond_every_range(client, configs, method, centre, scale_base):
    request = next(request for name, request in seeds(configs)
                   if name == method and "xpos" in str(request) and "config_json" not in str(request))
    settings = xpos_settings(request)
    settings.xpos.centre, settings.xpos.scale_base = centre, scale_base
    if method != "StreamApplyRotary":
        client.call(method, request)
        return
    info, chunk = client.call(method, iter([request, rotary_stream()[1]]))
    assert info.HasField("info") and chunk.HasField("chunk")


@pytest.mark.parametrize("dtype", [FP32, FP64])
@pytest.mark.parametrize("operand", [rotary_pb2.OPERAND_QUERY, rotary_pb2.OPERAND_KEY])
@pytest.mark.parametrize("centre", [1e12, -1e12])
def test_xpos_tables_under_and_overflow_with_their_sign(client, dtype, operand, centre):
    request = samples.table(dtype=dtype, count=4)
    request.rotary.settings.xpos.CopyFrom(rotary_pb2.Xpos(scale_base=1, centre=centre))
    request.operand = operand
    answer = client.call("GenerateTable", request)
    angles = numpy.arange(4)[:, None] * 10000.0 ** (-numpy.arange(4) / 4)
    # zeta = (2i + 0.4 d) / (1.4 d): the last pair's is above 1, the others' are below.
    grows = (numpy.arange(4) * 2 + 3.2 > 11.2) == (centre < 0)
    if operand == rotary_pb2.OPERAND_KEY:
        grows = ~grows
    for found, plain in ((answer.cos, numpy.cos(angles)), (answer.sin, numpy.sin(angles))):
        found = array(found)
        nonzero = plain != 0
        assert numpy.array_equal(numpy.isinf(found), grows & nonzero)
        assert numpy.array_equal(found == 0, ~(grows & nonzero))
        assert numpy.array_equal(numpy.signbit(found), plain < 0)


@pytest.mark.parametrize("offset", [-2**53, 2**53 - 3])
@pytest.mark.parametrize("method", samples.relative_methods(), ids=lambda method: method.WhichOneof("method"))
def test_relative_terms_far_away(client, method, offset):
    request = samples.relative(method)
    request.geometry.query_offset = offset
    try:
        client.call("RelativeScores", request)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error


def long_requests():
    """Requests that take seconds, each in code of its own: exact powers, exact sines, networks, sums, plans."""
    xpos = samples.table(count=2**20, dtype=FP64)
    xpos.rotary.settings.xpos.CopyFrom(rotary_pb2.Xpos(scale_base=1e-3, centre=5))
    xpos.operand = rotary_pb2.OPERAND_KEY
    yield "GenerateTable", xpos
    yield "StreamTable", service_pb2.StreamTableRequest(table=xpos)
    huge = samples.table(count=2**20, dtype=FP64, offset=2**52)
    huge.rotary.settings.given_frequencies.CopyFrom(rotary_pb2.GivenFrequencies(inv_freq=[1e300] * 4))
    yield "GenerateTable", huge
    yield "GenerateEmbedding", samples.fourier(numpy.full((4096, 2), 1e300), numpy.full((512, 2), 1e300))
    yield "GenerateEmbedding", samples.grid(dim=1024, height=1000, width=60)
    units = numpy.ones(1024)
    fire = bias_pb2.Fire(c=0.1, threshold=512, hidden_weight=tensor(units, FP32), hidden_bias=tensor(units, FP32),
                         output_weight=tensor(units[None], FP32), output_bias=tensor([1], FP32))
    swin = bias_pb2.SwinV2Bias(window_height=64, window_width=64, hidden_weight=tensor(numpy.ones((512, 2)), FP32),
                               hidden_bias=tensor(numpy.ones(512), FP32),
                               output_weight=tensor(numpy.ones((4, 512)), FP32))
    for method, queries, keys in ((bias_pb2.BiasMethod(fire=fire), 64, 500_000),
                                  (bias_pb2.BiasMethod(swin_v2=swin), 4096, 4096)):
        request = service_pb2.GenerateBiasRequest(
            method=method, form=bias_pb2.BIAS_FORM_DENSE, dtype=FP32,
            geometry=bias_pb2.BiasGeometry(query_length=queries, key_length=keys))
        if queries != keys:
            request.geometry.query_offset = keys - queries
        yield "GenerateBias", request


@pytest.mark.parametrize("method, request_", long_requests())
def test_long_work_ends_with_its_caller(client, method, request_):
    try:
        client.call(method, request_, timeout=0.2)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    client.when_idle()

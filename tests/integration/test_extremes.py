"""Legal requests at the ends of their ranges are answered, and long ones end with their caller."""

import json

import grpc
import numpy
import pytest
import samples
from client import Client
from mutations import rotary_stream, seeds
from posenc.v1 import bias_pb2, rotary_pb2, service_pb2
from tensors import FP16, FP32, FP64, INT32, array, tensor

XPOS_METHODS = ("Explain", "Analyze", "ApplyRotary", "StreamApplyRotary", "GenerateTable", "StreamTable", "Diagnose",
                "Compare")


def xpos_settings(request):
    """The RotarySettings of a request of any RPC."""
    for path in ("rotary.settings", "table.rotary.settings", "header.rotary.settings", "expected.settings", "rotary", "a.rotary"):
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
    # zeta = (2i + 0.4 d) / (1.4 d) is below 1 for each pair.
    grows = numpy.full(4, centre > 0)
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
    """Yields requests that take seconds, each in different code: exact powers, exact sines, networks, sums, plans."""
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
    sorted_positions = service_pb2.GenerateBiasRequest(
        method=bias_pb2.BiasMethod(fire=fire), form=bias_pb2.BIAS_FORM_DENSE, dtype=FP16,
        geometry=bias_pb2.BiasGeometry(query_length=500_000, key_length=1, query_offsets=rotary_pb2.PositionOffsets(
            offset=[n * 7919 % 20_000 for n in range(55)])))
    sorted_positions.method.fire.threshold = 1e-3
    sorted_positions.precision.preset = rotary_pb2.PRECISION_PRESET_F32
    yield "GenerateBias", sorted_positions


def crafted_requests():
    """Yields small requests whose sizes multiply: axes, sequences, layer types, blocks, undecided ties, wide rows.

    Each takes seconds to hours if a loop over such a product is neither bounded nor interruptible.
    """
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
              "rope_parameters": {f"a{n}": {} for n in range(50_000)}, "layer_types": [""] * 100_000}
    blocks = samples.rotary()
    blocks.rotary.Clear()
    blocks.rotary.model.config_json = json.dumps(config).encode()
    yield "ApplyRotary", blocks

    def wide(axes, pairs=32_768):
        request = samples.rotary(numpy.zeros((1, 1, 2 * pairs)), dtype=FP16, layout=rotary_pb2.LAYOUT_THD)
        request.rotary.settings.given_frequencies.CopyFrom(
            rotary_pb2.GivenFrequencies(inv_freq=[1.0] * pairs, axis=[n % axes for n in range(pairs)]))
        request.rotary.settings.rotary_dim = 2 * pairs
        return request

    for axes in (64, 32_768):
        packed = wide(axes)
        packed.positions.cu_seqlens.CopyFrom(tensor([0] * 65_536 + [1], INT32))
        yield "ApplyRotary", packed
        gridded = wide(axes)
        gridded.positions.segments.segment.add().grid.CopyFrom(rotary_pb2.PositionGrid(size=[1] * axes))
        yield "ApplyRotary", gridded

    sections = samples.rotary()
    sections.rotary.settings.rope_parameters.mrope_section.extend([0] * 1_000_000 + [4])
    sections.rotary.settings.rope_parameters.mrope_order = rotary_pb2.MROPE_ORDER_CONTIGUOUS
    yield "ApplyRotary", sections

    noise = numpy.random.default_rng(1).standard_normal((1, 16, 1, 65_536))
    diagnosis = samples.diagnosis(noise, noise[..., ::-1], rotary_dim=65_536)
    diagnosis.expected.settings.given_frequencies.CopyFrom(
        rotary_pb2.GivenFrequencies(inv_freq=[1.0] * 32_768, axis=[n % 64 for n in range(32_768)]))
    yield "Diagnose", diagnosis

    heads = 8192
    tie = bias_pb2.Kerple(kernel=bias_pb2.KERPLE_KERNEL_POWER, a=[8388609 * 2.0**-20, 1.0] * (heads // 2),
                          p=[0.5, 0.3333] * (heads // 2))
    yield "GenerateBias", service_pb2.GenerateBiasRequest(
        method=bias_pb2.BiasMethod(kerple=tie), form=bias_pb2.BIAS_FORM_COMPACT, dtype=FP32,
        geometry=bias_pb2.BiasGeometry(query_length=40, key_length=40))

    many = 1 << 20
    fire = bias_pb2.Fire(c=0.1, threshold=512, hidden_weight=tensor([1], FP32), hidden_bias=tensor([1], FP32),
                         output_weight=tensor([[1]], FP32), output_bias=tensor([1], FP32))
    yield "GenerateBias", service_pb2.GenerateBiasRequest(
        method=bias_pb2.BiasMethod(fire=fire), form=bias_pb2.BIAS_FORM_DENSE, dtype=FP32,
        geometry=bias_pb2.BiasGeometry(query_length=many, key_length=1,
                                       query_positions=tensor(numpy.arange(many) % 1000, INT32)))


@pytest.mark.parametrize("method, request_", crafted_requests())
def test_crafted_requests_do_not_keep_the_server(start_server, method, request_):
    server = start_server()
    with Client(server.port) as client:
        try:
            client.call(method, request_, timeout=2)
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DEADLINE_EXCEEDED), error
        client.when_idle()
    assert server.peak_memory() < 1 << 30


@pytest.mark.parametrize("method, request_", long_requests())
def test_long_work_ends_with_its_caller(client, method, request_):
    try:
        client.call(method, request_, timeout=0.2)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    client.when_idle()

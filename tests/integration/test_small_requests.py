"""Small requests that ended the server, held a thread of it for good, or took a multiple of their limits in memory.

Each is answered or refused now, and the server goes on. tests/model/model_limits_test.cc has such config.json files.
"""

import grpc
import numpy
import pytest
import samples
from client import APART, Client
from posenc.v1 import bias_pb2, diagnose_pb2, embedding_pb2, rotary_pb2, service_pb2, tensor_pb2
from server_process import SANITIZER_BYTES, ServerProcess
from tensors import BF16, FP16, FP32, FP64, INT32, INT64, tensor

INVALID = grpc.StatusCode.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
MEBIBYTE = 1 << 20
HALF_SPLIT = rotary_pb2.PAIRING_HALF_SPLIT


@pytest.fixture(scope="module")
def server(server_program, tmp_path_factory):
    with ServerProcess(server_program, tmp_path_factory.mktemp("server"), "--max-in-flight-bytes", "64MiB",
                       "--max-request-bytes", "16MiB", "--max-output-bytes", "16MiB") as server:
        yield server


@pytest.fixture
def client(server):
    with Client(server.port) as client:
        yield client
        assert client.info().counters.in_flight_requests == 0


def empty(dtype, *shape):
    """A tensor without elements."""
    return tensor_pb2.Tensor(dtype=dtype, shape=shape)


def dynamic(rotary_dim=8):
    return rotary_pb2.RotarySource(settings=rotary_pb2.RotarySettings(
        rope_parameters=rotary_pb2.RopeParameters(rope_type="dynamic", factor=2), rotary_dim=rotary_dim,
        max_position_embeddings=16, input_pairing=HALF_SPLIT))


def given_lengths(**positions):
    return rotary_pb2.Positions(scaling_length_rule=rotary_pb2.SCALING_LENGTH_RULE_GIVEN, **positions)


@pytest.mark.parametrize("layout, positions, shape", [
    (rotary_pb2.LAYOUT_BSHD, given_lengths(offset=0), [0, 4, 2, 8]),
    (rotary_pb2.LAYOUT_BHSD, given_lengths(offsets=rotary_pb2.PositionOffsets()), [0, 2, 4, 8]),
    (rotary_pb2.LAYOUT_THD, given_lengths(offset=0, cu_seqlens=tensor([0], INT32)), [0, 2, 8])])
def test_lengths_of_no_sequences(client, layout, positions, shape):
    request = service_pb2.ApplyRotaryRequest(rotary=dynamic(), positions=positions, layout=layout,
                                             q=rotary_pb2.RotaryOperand(tensor=empty(FP32, *shape)))
    assert list(client.call("ApplyRotary", request).q.shape) == shape


@pytest.mark.parametrize("form", [rotary_pb2.TABLE_FORM_DUPLICATED, rotary_pb2.TABLE_FORM_REPEAT_INTERLEAVED])
def test_rows_without_columns(client, form):
    table = empty(FP16, 2**60, 0)
    source = rotary_pb2.RotarySource(settings=rotary_pb2.RotarySettings(
        given_table=rotary_pb2.GivenTable(cos=table, sin=table, form=form), input_pairing=HALF_SPLIT))
    request = samples.rotary()
    request.rotary.CopyFrom(source)
    refusal = client.refusal("ApplyRotary", request)
    assert (refusal.code, refusal.field) == (INVALID, "rotary.settings.given_table.cos.shape[0]")


def test_heads_without_buckets(client):
    request = samples.bias()
    request.method.CopyFrom(bias_pb2.BiasMethod(
        t5=bias_pb2.T5Bias(bidirectional=True), table=empty(FP32, 2**59, 0),
        table_layout=bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS))
    assert client.refusal("GenerateBias", request).code == INVALID


def long_batch(sequences, rotary_dim):
    """Sequences that share frequencies, without heads."""
    return service_pb2.ApplyRotaryRequest(
        rotary=dynamic(rotary_dim), layout=rotary_pb2.LAYOUT_BSHD,
        positions=rotary_pb2.Positions(offsets=rotary_pb2.PositionOffsets(offset=[0] * sequences),
                                       scaling_length_rule=rotary_pb2.SCALING_LENGTH_RULE_PER_SEQUENCE),
        q=rotary_pb2.RotaryOperand(tensor=empty(FP16, sequences, 1, 0, rotary_dim)))


def test_many_sequences_of_few_plans(server, client):
    before = server.resident_memory()
    answer = client.call("ApplyRotary", long_batch(2000, 4096))  # a copy of the plan for each would take 32 MB
    assert len(answer.info.sequences) == 2000
    assert server.peak_memory() - before < 24 * MEBIBYTE + SANITIZER_BYTES
    request = long_batch(300, 1024)
    request.hints.return_plan = True
    refusal = client.refusal("ApplyRotary", request)
    assert (refusal.code, refusal.field) == (EXHAUSTED, "hints.return_plan")


def test_the_fingerprint_of_equal_lengths_does_not_depend_on_the_cache(client, start_server):
    request = service_pb2.ExplainRequest(rotary=dynamic().settings, seq_len=[50, 50, 60])
    with Client(start_server("--plan-cache-bytes", "0").port) as without_cache:
        assert client.call("Explain", request) == without_cache.call("Explain", request)


def test_explain_returns_the_frequencies_of_as_many_lengths_as_it_may(client):
    request = service_pb2.ExplainRequest(rotary=dynamic(rotary_dim=128).settings, seq_len=range(1, 1025))
    request.rotary.rope_parameters.mrope_section.extend([16, 24, 24])
    request.rotary.rope_parameters.mrope_order = rotary_pb2.MROPE_ORDER_CONTIGUOUS
    [layer] = client.call("Explain", request).layers
    assert len(layer.info.plan.frequencies) == 1024


def test_slow_values_leave_the_receiving_thread(server_program, tmp_path):
    """Cosines near the middle between two numbers take a thousand times longer than others."""
    values = numpy.ones((1, 2048, 1, 128))
    request = samples.rotary(values, dtype=FP16, offset=1)
    request.rotary.settings.ClearField("rotary_dim")
    request.rotary.settings.given_frequencies.CopyFrom(
        rotary_pb2.GivenFrequencies(inv_freq=[2.0**-390] * 64, attention_scaling=1 + 2.0**-24))
    with ServerProcess(server_program, tmp_path, "--io-threads", "1", "--threads", "2") as server, \
            Client(server.port, APART) as busy, Client(server.port, APART) as other:
        slow = busy.method("ApplyRotary").future(request, timeout=60)
        while other.info().counters.in_flight_requests == 0:
            assert not slow.done(), "the receiving thread computed it, and answered nobody meanwhile"
        slow.cancel()


def test_more_lengths_than_sequences_may_be(client):
    request = long_batch(70000, 8)
    request.positions.scaling_length_rule = rotary_pb2.SCALING_LENGTH_RULE_GIVEN
    request.positions.seq_len.extend([16] * 70000)
    refusal = client.refusal("ApplyRotary", request)
    assert (refusal.code, refusal.field) == (EXHAUSTED, "positions.seq_len")


def test_wide_fourier_features_without_coordinates(client):
    request = service_pb2.GenerateEmbeddingRequest(
        fourier=embedding_pb2.Fourier(frequencies=empty(FP64, 3 * MEBIBYTE, 0), points=empty(FP64, 1, 0)), dtype=FP16)
    refusal = client.refusal("GenerateEmbedding", request)
    assert (refusal.code, refusal.field) == (INVALID, "fourier.frequencies.shape")


def rotated(x, angles):
    """Half-split pairs of the last axis, rotated."""
    first, second = numpy.split(x.astype("f8"), 2, axis=-1)
    return numpy.concatenate([first * numpy.cos(angles) - second * numpy.sin(angles),
                              second * numpy.cos(angles) + first * numpy.sin(angles)], axis=-1)


@pytest.mark.parametrize("offset", [0, -8, -9, -2**53])
def test_tokens_that_fit_no_position(client, offset):
    chance = numpy.random.default_rng(1)
    x = chance.standard_normal((1, 8, 1, 8))
    request = samples.diagnosis(x, rotated(x, chance.uniform(0, 6, (1, 8, 1, 4))), offset=offset)
    assert client.call("Diagnose", request).verdict.kind


@pytest.mark.parametrize("shape, dimension", [([0, 4], rotary_pb2.AXIS_DIMENSION_FIRST),
                                              ([4, 0], rotary_pb2.AXIS_DIMENSION_LAST)])
def test_positions_without_axes(client, shape, dimension):
    x = numpy.random.default_rng(1).standard_normal((1, 4, 1, 4))
    request = samples.diagnosis(x, x[..., ::-1], rotary_dim=4)
    request.ClearField("expected")
    request.positions.CopyFrom(rotary_pb2.Positions(ids=empty(FP64, *shape), axis_dimension=dimension))
    refusal = client.refusal("Diagnose", request)
    assert (refusal.code, refusal.field) == (INVALID, "positions.ids.shape")


def test_a_precision_that_only_the_sample_has(client):
    """A long_factor that is 0 in float32 belongs to one token, which is not among those that are tried first."""
    tokens, long_one = 6000, 1003
    x = numpy.random.default_rng(1).standard_normal((tokens, 1, 4))
    ids = numpy.arange(tokens) % 3000 + 1000.0
    ids[long_one] = 5000
    request = samples.diagnosis(x, rotated(x, ids[:, None, None] * [1, 10000.0**-0.5]), rotary_dim=4)
    request.layout = rotary_pb2.LAYOUT_THD
    request.expected.settings.rope_parameters.CopyFrom(rotary_pb2.RopeParameters(
        rope_type="longrope", rope_theta=10000, factor=1, original_max_position_embeddings=4096, short_factor=[1, 1],
        long_factor=[1e-60, 1e-60]))
    request.precision.preset = rotary_pb2.PRECISION_PRESET_HF_EAGER
    request.positions.CopyFrom(rotary_pb2.Positions(
        ids=tensor(ids, FP64), cu_seqlens=tensor([0, long_one, long_one + 1, tokens], INT64),
        scaling_length_rule=rotary_pb2.SCALING_LENGTH_RULE_PER_SEQUENCE))
    assert client.call("Diagnose", request).verdict.kind


def test_empty_sequences_of_many_heads(client):
    heads, sequences = 16384, 65536
    chance = numpy.random.default_rng(1)
    request = samples.diagnosis(chance.standard_normal((1, heads, 2)), chance.standard_normal((1, heads, 2)), offset=1,
                                dtype=BF16, rotary_dim=2)
    request.layout = rotary_pb2.LAYOUT_THD
    request.positions.cu_seqlens.CopyFrom(tensor([0] * sequences + [1], INT32))
    assert client.call("Diagnose", request).verdict.kind


def test_buckets_of_many_heads(server, client):
    before = server.resident_memory()
    request = service_pb2.DiagnoseBiasRequest(
        bias=tensor(numpy.linspace(-1, 1, 16384).reshape(16384, 1, 1), FP16),
        expected=bias_pb2.BiasMethod(t5=bias_pb2.T5Bias(num_buckets=8192, max_distance=100000, bidirectional=True)))
    refusal = client.refusal("DiagnoseBias", request)
    assert (refusal.code, refusal.field) == (EXHAUSTED, "expected.t5.num_buckets")
    assert server.peak_memory() - before < 96 * MEBIBYTE


def test_lengths_beyond_every_integer(client):
    x = numpy.random.default_rng(1).standard_normal((1, 4, 1, 8))
    request = samples.diagnosis(x, x[..., ::-1])
    request.expected.CopyFrom(dynamic())
    request.expected.settings.max_position_embeddings = 1e300
    request.positions.scaling_length_rule = rotary_pb2.SCALING_LENGTH_RULE_WHOLE_BATCH
    assert client.call("Diagnose", request).verdict.kind
    table = samples.table()
    table.rotary.settings.rope_parameters.MergeFrom(rotary_pb2.RopeParameters(
        rope_type="proportional", frequency_dim=1e300, rope_theta=10000))
    answer = client.call("GenerateTable", table)
    cosines = numpy.frombuffer(answer.cos.data, "<f4").reshape(answer.cos.shape)
    # theta^0 for every pair: the exponents are 0 in so wide a head.
    numpy.testing.assert_allclose(cosines, numpy.cos(numpy.arange(4))[:, None] * numpy.ones(4), rtol=1e-6)


def test_a_table_without_rows(client):
    request = service_pb2.DiagnoseRequest(
        table=diagnose_pb2.TableEvidence(cos=empty(FP32, 0, 4), sin=empty(FP32, 0, 4)),
        positions=rotary_pb2.Positions(offset=0))
    assert client.refusal("Diagnose", request).code == INVALID

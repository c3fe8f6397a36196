"""The server under test answers with the same bytes as another one, whose kernels use Highway's portable target.

By default both are the same program; with POSENC_SERVER_COMMAND the one under test may be for another processor.
"""

import numpy
import pytest
import samples
from client import Client
from posenc.v1 import bias_pb2, embedding_pb2, rotary_pb2, service_pb2
from rich_requests import rich_requests
from server_process import ServerProcess
from tensors import BF16, BOOL, FP16, FP32, FP64, tensor

FLOATS = (FP32, FP16, BF16)


@pytest.fixture(scope="module")
def portable(build, client, tmp_path_factory):
    """A client of this machine's own build with Highway's portable target, which is the last one on every processor."""
    target = client.info().cpu_targets[-1]
    directory = tmp_path_factory.mktemp("portable")
    with ServerProcess([build / "bin" / "posenc-server"], directory, POSENC_TARGET=target) as server:
        with Client(server.port) as portable:
            assert portable.info().cpu_target == target
            yield portable


def random_values(shape):
    return numpy.random.default_rng(20240608).standard_normal(shape)


def wide_requests():
    """Yields requests with odd sizes beyond every vector's length, for each method and type."""
    for dtype in (*FLOATS, FP64):
        yield "GenerateTable", samples.table(count=33, offset=99_999, dtype=dtype, rotary_dim=134)
        yield "StreamTable", samples.stream(7, count=33, offset=2**31, dtype=dtype, rotary_dim=66)
        yield "GenerateEmbedding", samples.embedding(134, 33, dtype, embedding_pb2.SINUSOIDAL_CONVENTION_HALVES)
    yield "Analyze", samples.analysis([*range(99_999, 100_032), -3.5, 0.25], rotary_dim=134)
    for dtype in FLOATS:
        for pairing in (rotary_pb2.PAIRING_INTERLEAVED, rotary_pb2.PAIRING_HALF_SPLIT):
            for preset in (rotary_pb2.PRECISION_PRESET_EXACT, rotary_pb2.PRECISION_PRESET_HF_EAGER,
                           rotary_pb2.PRECISION_PRESET_FLUX):
                request = samples.rotary(random_values((1, 9, 3, 146)), random_values((1, 9, 1, 146)), dtype, 100_001,
                                         rotary_dim=134, pairing=pairing)
                request.precision.preset = preset
                yield "ApplyRotary", request
        masked = samples.bias(3, 7, 67, dtype, alibi_form=bias_pb2.ALIBI_FORM_SYMMETRIC)
        masked.geometry.query_offset = 60
        masked.mask.CopyFrom(samples.causal_mask())
        yield "GenerateBias", masked
        added = service_pb2.AddBiasRequest(method=bias_pb2.BiasMethod(alibi=samples.alibi(12)),
                                           scores=tensor(random_values((2, 12, 5, 67)), dtype))
        added.geometry.query_offset = 30
        added.mask.CopyFrom(samples.causal_mask())
        added.mask.key_valid.CopyFrom(tensor(random_values((2, 67)) > 0, BOOL))
        yield "AddBias", added
        for method in samples.relative_methods(heads=4, dim=22, width=26, positions=150):
            yield "RelativeScores", samples.relative(method, heads=4, queries=150, dim=22, dtype=dtype)
        yield "RelativeValues", service_pb2.RelativeValuesRequest(
            shaw=samples.shaw(33, 22), layout=rotary_pb2.LAYOUT_BHSD, dtype=dtype,
            probabilities=samples.weights(1, 3, 70, 70, dtype=dtype))


REQUESTS = [*rich_requests(), *wide_requests()]


@pytest.mark.parametrize("n", range(len(REQUESTS)), ids=lambda n: f"{n}-{REQUESTS[n][0]}")
def test_answers_are_the_same(client, portable, n):
    method, request = REQUESTS[n]
    answers = [each.call(method, request) for each in (client, portable)]
    if method == "GetServerInfo":  # processor, threads and counters differ between servers
        answers = [(answer.version, answer.numerics_version, answer.methods, answer.limits) for answer in answers]
    assert answers[0] == answers[1]


def test_every_instruction_set_gives_the_same_answers(client, portable, start_server):
    some = [("ApplyRotary", samples.rotary(numpy.ones((1, 9, 3, 24)), rotary_dim=24, offset=100_001)),
            ("GenerateTable", samples.table(count=33, offset=99_999, rotary_dim=66)),
            ("GenerateBias", samples.bias(heads=3, queries=7, keys=7)),
            *(("RelativeScores", samples.relative(method)) for method in samples.relative_methods())]
    expected = [portable.call(*request) for request in some]
    for target in client.info().cpu_targets:
        with Client(start_server(POSENC_TARGET=target).port) as other:
            assert other.info().cpu_target == target
            assert [other.call(*request) for request in some] == expected

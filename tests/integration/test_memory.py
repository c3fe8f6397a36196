"""Tests clients that try to exhaust a server's memory: it stays within its quota, and legal load is never killed."""

import contextlib
import time

import grpc
import numpy
import pytest
import samples
from bare_http2 import ShutWindow, Uploader, framed, pump_all
from client import APART, NEWER_GRPC, SECONDS, WAITING_CALL, Client, Refusal
from h2.events import ResponseReceived
from posenc.v1 import bias_pb2, rotary_pb2, service_pb2
from server_process import SANITIZER_BYTES
from tensors import BF16, BOOL, FP32, FP64, INT32, INT64, tensor

MEBIBYTE = 1 << 20
# A server whose gRPC may buffer 96 MiB.
SMALL = ("--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB", "--max-in-flight-bytes", "32MiB",
         "--table-cache-bytes", "8MiB", "--max-connections-per-peer", "1024", "--max-concurrent-streams", "128")
QUOTA = 3 * 32 * MEBIBYTE
# Bytes that may be sent at once without gRPC ending a call: all of them can arrive before the first message is
# complete. The rest of the quota is for gRPC's own data.
LEGAL = QUOTA - 16 * MEBIBYTE
# Memory kept between calls: answer buffer pool (a quarter of the bytes in flight), plan cache (16 MiB), table cache.
KEPT = 8 * MEBIBYTE + 16 * MEBIBYTE + 8 * MEBIBYTE
SLACK = 96 * MEBIBYTE
BOUND = QUOTA + KEPT + SLACK + SANITIZER_BYTES


def serve(client):
    """Makes a legal call and checks the size of its answer."""
    answer = client.call("ApplyRotary", samples.rotary())
    assert len(answer.q.data) == 64


def test_a_request_far_above_the_limit_is_not_kept(start_server):
    # gRPC checks its own limit when a message is complete; until then, only the quota bounds what it buffers.
    server = start_server(*SMALL)
    with Client(server.port) as client:
        serve(client)
        before = server.peak_memory()
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as error:
                client.call("ApplyRotary", bytes(768 * MEBIBYTE))
            assert error.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
        with Client(server.port) as another:
            serve(another)
            another.when_idle()
    assert server.peak_memory() - before < QUOTA + 64 * MEBIBYTE + SANITIZER_BYTES


def wait_for_bytes_in_flight(client, count):
    deadline = time.monotonic() + SECONDS
    while client.info().counters.in_flight_bytes < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def at_once(clients, count, method, request, started=("false",)):
    """Makes `count` calls at once. Returns the answers and the number of refusals, which must allow a retry."""
    data = request.SerializeToString()
    calls = [clients[n % len(clients)].method(method).future(data, timeout=SECONDS) for n in range(count)]
    errors = [call.exception() for call in calls]
    for error in filter(None, errors):
        refusal = Refusal.of(error)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "OVERLOADED"), refusal
        assert refusal.started in started
        assert refusal.trailers["grpc-retry-pushback-ms"] == "20"
    return [call.result() for call, error in zip(calls, errors) if error is None], count - errors.count(None)


def test_legal_load_is_refused_at_times_and_never_killed(start_server):
    # Eight requests of 4 MiB fit into the bytes in flight, but only four with their answers. At first none fits,
    # because of unread answers.
    server = start_server(*SMALL, "--retry-pushback", "20")
    base = server.peak_memory()
    request = samples.rotary(numpy.ones((1, 2048, 4, 128)), rotary_dim=128, offset=5)
    count = LEGAL // (4 * MEBIBYTE)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port, APART)) for _ in range(8)]
        with ShutWindow(server.port) as unread:
            for _ in range(4):
                unread.call("GenerateTable", samples.table(count=7 * MEBIBYTE // 32))
            wait_for_bytes_in_flight(clients[0], 28 * MEBIBYTE)
            answers, refused = at_once(clients, count, "ApplyRotary", request)
            assert (answers, refused) == ([], count)
        clients[0].when_idle()
        expected = clients[0].call("ApplyRotary", request).q.data
        left = 160
        while left > 0:
            answers, more = at_once(clients, count, "ApplyRotary", request)
            assert all(answer.q.data == expected for answer in answers)
            left -= len(answers)
            refused += more
        counters = clients[0].when_idle()
        assert counters.requests_refused == refused and counters.requests_failed == 0
    assert server.peak_memory() < base + BOUND


@pytest.mark.parametrize("uploads", (16, 128))
def test_messages_that_do_not_come_to_an_end(start_server, uploads):
    # Legal requests of 4 MiB without their last byte: gRPC may buffer 64 MiB, but not 512 MiB. It then ends some calls,
    # of which the server has not heard yet, and still serves others.
    server = start_server(*SMALL)
    base = server.peak_memory()
    request = samples.rotary(numpy.ones((1, 2048, 4, 128)), rotary_dim=128)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(server.port))
        serve(client)
        slow = [stack.enter_context(Uploader(server.port, "ApplyRotary", request)) for _ in range(uploads)]
        pump_all(slow, held_back=1)
        if not NEWER_GRPC:
            serve(client)
        ended = [upload.end for upload in slow if upload.end is not None]
        assert (len(ended) > 0) == (uploads * 4 * MEBIBYTE > QUOTA) and set(ended) <= {"reset", "closed"}
        pump_all(slow)
        rest = {upload.end for upload in slow} - {"reset", "closed"}
        assert rest <= {grpc.StatusCode.OK.value[0], grpc.StatusCode.UNAVAILABLE.value[0]} and len(rest) > 0
        client.when_idle()
        serve(client)
    assert server.peak_memory() < base + BOUND


@pytest.mark.parametrize("method", ("GenerateTable", "StreamApplyRotary", "/inference.GRPCInferenceService/ModelStreamInfer"))
def test_a_message_in_frames_of_one_byte_is_refused_before_they_are_listed_again(start_server, method):
    # gRPC 1.51 lists the frames in 32 to 48 bytes each.
    size = MEBIBYTE
    request = service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(config_json=bytes(size)))
    expected = grpc.StatusCode.OK if "Infer" in method else grpc.StatusCode.RESOURCE_EXHAUSTED  # in the stream's message
    server = start_server(*SMALL)
    with Client(server.port) as client, contextlib.ExitStack() as stack:
        serve(client)
        before = server.peak_memory()
        for _ in range(2):
            upload = stack.enter_context(Uploader(server.port, method, request, frame=1))
            deadline = time.monotonic() + SECONDS
            while upload.end is None:
                assert time.monotonic() < deadline
                upload.pump(len(upload.bytes))
            assert upload.end == expected.value[0]
        client.when_idle()
        serve(client)
    assert server.peak_memory() - before < 64 * size + SANITIZER_BYTES


def positions_by_id():
    # A million whole numbers, which the server keeps as float64.
    request = samples.table(rotary_dim=2, dtype=samples.BF16)
    request.ClearField("count")
    request.positions.CopyFrom(rotary_pb2.Positions(ids=tensor(numpy.arange(1 << 20) % 1000, INT32)))
    return request


def test_all_at_once_stays_within_what_the_flags_say(start_server):
    server = start_server(*SMALL)
    base = server.peak_memory()
    rotation = samples.rotary(numpy.ones((1, 2048, 4, 128)), rotary_dim=128)
    unary = [("ApplyRotary", rotation), ("ApplyRotary", bytes(64 * MEBIBYTE)), ("GenerateTable", positions_by_id()),
             ("GenerateBias", samples.bias(heads=8, queries=500, keys=500)),
             ("GenerateBias", samples.bias(heads=100, queries=500, keys=500))]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port)) for _ in range(4)]
        unread = [client.method("StreamTable")(samples.stream(count=1 << 20, rotary_dim=128), timeout=SECONDS)
                  for client in clients]
        answered = set()
        for _ in range(4):
            calls = [(name, client.method(name).future(request, timeout=SECONDS)) for client in clients
                     for name, request in unary]
            for name, call in calls:
                error = call.exception()
                if error is None:
                    answered.add(name)
                else:
                    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED), error
        assert answered == {name for name, _ in unary}
        for stream in unread:
            stream.cancel()
        clients[0].when_idle()
        serve(clients[0])
    assert server.peak_memory() < base + BOUND


def single_key():
    """Returns a request for a bias in which each value has a different distance."""
    return service_pb2.GenerateBiasRequest(
        method=bias_pb2.BiasMethod(kerple=bias_pb2.Kerple(kernel=bias_pb2.KERPLE_KERNEL_LOG, a=[1], p=[1])),
        geometry=bias_pb2.BiasGeometry(query_length=MEBIBYTE, key_length=1, query_offset=0),
        form=bias_pb2.BIAS_FORM_DENSE, dtype=FP32)


@pytest.mark.parametrize("form", (bias_pb2.BIAS_FORM_DENSE, bias_pb2.BIAS_FORM_INDEX))
def test_long_rows_take_no_memory_of_each_thread(start_server, form):
    # Each thread computes a row, whose cells are looked up by their positions.
    queries, keys = 16, MEBIBYTE
    index = form == bias_pb2.BIAS_FORM_INDEX
    request = service_pb2.GenerateBiasRequest(
        method=bias_pb2.BiasMethod(t5=bias_pb2.T5Bias(num_buckets=32, max_distance=128, bidirectional=True)),
        geometry=bias_pb2.BiasGeometry(query_length=queries, key_length=keys,
                                       query_positions=tensor(2 * numpy.arange(queries), INT64)),
        form=form, dtype=INT32 if index else samples.BF16)
    if not index:
        request.method.table.CopyFrom(samples.weights(32, 1))
        request.method.table_layout = bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS
    server = start_server("--threads", str(queries))
    with Client(server.port) as client:
        serve(client)
        before = server.peak_memory()
        answer = client.call("GenerateBias", request)
    positions = 8 * (keys + queries) * 2
    bound = len(answer.bias.data) + positions + 16 * MEBIBYTE + SANITIZER_BYTES
    assert server.peak_memory() - before < bound


def worst_shapes():
    """Yields requests that take most memory for their size: long rows, tables made for the call, many candidates."""
    yield "GenerateBias", single_key()
    _, transformer_xl, _, deberta, wpr, cope = samples.relative_methods(heads=2, dim=256, width=64)
    for method in (transformer_xl, deberta, wpr, cope):
        yield "RelativeScores", samples.scores(method, 2, 1000, 1000, 256, query_offset=0)
    yield "RelativeScores", samples.scores(samples.relative_methods(heads=1, dim=4)[-1], 1, 1, 400_000, 4, query_offset=399_999)
    values = numpy.random.default_rng(1).standard_normal((1, 1500, 4, 128))  # a call takes four times its request
    yield "Diagnose", samples.diagnosis(values, values[..., ::-1], rotary_dim=128)
    for shape in ((1, 1400, 1400), (1, MEBIBYTE // 2, 1)):
        yield "DiagnoseBias", service_pb2.DiagnoseBiasRequest(bias=samples.weights(*shape), max_explanations=2)


def given_table(rows, width):
    """Settings with a table of two tensors of rows * width float32."""
    return rotary_pb2.RotarySettings(
        given_table=rotary_pb2.GivenTable(cos=samples.weights(rows, width), sin=samples.weights(rows, width),
                                          form=rotary_pb2.TABLE_FORM_HALF_WIDTH),
        rotary_dim=2 * width, input_pairing=rotary_pb2.PAIRING_HALF_SPLIT)


def worst_shapes_with_plans():
    """Requests whose tables also come back in the answer's plan, and other large tensors of each remaining RPC."""
    table = samples.table(count=12_000)
    table.rotary.settings.CopyFrom(given_table(12_000, 32))
    table.hints.return_plan = True
    yield "GenerateTable", table
    rotation = samples.rotary(numpy.ones((1, 4, 1, 64)))
    rotation.rotary.settings.CopyFrom(given_table(12_000, 32))
    rotation.hints.return_plan = True
    yield "ApplyRotary", rotation
    yield "Explain", service_pb2.ExplainRequest(rotary=given_table(12_000, 32))
    yield "Compare", samples.comparison(given_table(15_000, 32), given_table(15_000, 32))
    yield "Analyze", samples.analysis(numpy.arange(65_536.0))
    learned = samples.learned(numpy.ones((60_000, 32)))
    learned.count = 60_000
    learned.positions.offset = 0
    yield "GenerateEmbedding", learned
    yield "AddBias", service_pb2.AddBiasRequest(method=bias_pb2.BiasMethod(alibi=samples.alibi()),
                                                geometry=bias_pb2.BiasGeometry(query_offset=0),
                                                scores=samples.weights(1, 4, 700, 700))
    yield "RelativeValues", service_pb2.RelativeValuesRequest(
        shaw=samples.shaw(65, 64), layout=rotary_pb2.LAYOUT_BHSD, dtype=FP32,
        geometry=bias_pb2.BiasGeometry(query_offset=0), probabilities=samples.weights(1, 1, 1400, 1400))


@pytest.mark.parametrize("method, request_", [*worst_shapes(), *worst_shapes_with_plans()], ids=lambda value: value if isinstance(value, str) else "")
def test_the_worst_shapes_at_once(start_server, method, request_):
    server = start_server(*SMALL, "--retry-pushback", "20")
    base = server.peak_memory()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port, APART)) for _ in range(4)]
        # Calls that grow at the same time may all be refused. Then fewer come back, as callers that retry do.
        count, answers = min(16, LEGAL // request_.ByteSize()), []
        while not answers and count > 0:
            clients[0].when_idle()  # those that were refused give their bytes back a little later
            answers, _ = at_once(clients, count, method, request_, ("false", "true"))
            count //= 2
        assert len(answers) > 0
        clients[0].when_idle()
        serve(clients[0])
    assert server.peak_memory() < base + BOUND


def requests_that_grow():
    """Requests of at most 8 MiB from which the server makes more than 32 MiB."""
    yield "GenerateTable", samples.repeated_segments(rotary_pb2.PositionSegment(line=rotary_pb2.PositionLine(count=1)))
    yield "GenerateTable", samples.repeated_segments(rotary_pb2.PositionSegment(grid=rotary_pb2.PositionGrid(size=[1])))
    yield "GenerateBias", samples.masked_single_key()
    yield "StreamBias", service_pb2.StreamBiasRequest(bias=samples.masked_single_key(), rows_per_tile=2 * MEBIBYTE - 64)
    # Sums and gates of a row of 400,000 keys.
    yield "RelativeScores", samples.scores(samples.relative_methods(heads=1, dim=4)[-1], 1, 4, 400_000, 4, query_offset=399_996)


@pytest.mark.parametrize("method, request_", requests_that_grow(), ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_made_of_a_request_is_charged_before_it_is_made(start_server, method, request_):
    server = start_server(*SMALL)
    with Client(server.port) as client:
        serve(client)
        before = server.peak_memory()
        refusal = client.refusal(method, request_)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE"), refusal
        assert "must be at most 33554432 bytes" in refusal.message
        # The request itself, what may be in flight, and what is allocated before a large block is refused.
        assert server.peak_memory() - before < 2 * 32 * MEBIBYTE + SANITIZER_BYTES
        client.when_idle()
        serve(client)
    large = start_server("--max-in-flight-bytes", "1GiB")
    with Client(large.port) as client:
        client.call(method, request_)
        client.when_idle()


def requests_of_small_blocks():
    """Yields serialized requests of 7 MiB that are refused, but of which many small blocks could be made first."""
    begin, end = b"\x7b", b"\x7c"  # of a group, a field that no request has
    group = begin + (begin + b"\x7a\0" * 1000 + end) * 64 + end
    for method in ("GenerateTable", "StreamBias"):
        yield method, group * (7 * MEBIBYTE // len(group))
    yield "GenerateTable", begin * (7 * MEBIBYTE)
    grid = rotary_pb2.PositionSegment(grid=rotary_pb2.PositionGrid(size=[1] * 2040))
    yield "GenerateTable", samples.repeated_segments(grid).SerializeToString()
    objects = b'{"model_type": "llama", "v": [' + b",".join([b'{"":{}}'] * 480_000) + b"]}"
    yield "Explain", service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(config_json=objects)).SerializeToString()


@pytest.mark.parametrize("method, request_", requests_of_small_blocks(), ids=("groups", "groups", "deep", "grids", "json"))
def test_small_blocks_are_charged_before_more_are_made(start_server, method, request_):
    server = start_server(*SMALL, "--threads", "2", "--max-config-json-bytes", "4MiB")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port, APART)) for _ in range(4)]
        serve(clients[0])
        before = server.peak_memory()
        start = [client.method(method) for client in clients]
        calls = [call(request_) if method == "StreamBias" else call.future(request_) for call in start]
        for call in calls:
            assert call.exception(SECONDS).code() in (
                grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
        clients[0].when_idle()
        serve(clients[0])
    # The requests, and what may be in flight.
    assert server.peak_memory() - before < 4 * len(request_) + 32 * MEBIBYTE + 16 * MEBIBYTE + SANITIZER_BYTES


# A server whose calls may hold 128 MiB.
MEDIUM = ("--max-request-bytes", "64MiB", "--max-output-bytes", "64MiB", "--max-in-flight-bytes", "128MiB",
          "--table-cache-bytes", "8MiB")
MEDIUM_BOUND = 128 * MEBIBYTE


def large_biases():
    """Biases of 16 to 32 MiB, which a call holds as settings, in the plan and in the answer."""
    heads_and_rows = ((1 << 15, 128), (30_000, 240))  # the second has more slopes than max_bias_values
    for heads, rows in heads_and_rows:
        yield bias_pb2.BiasMethod(alibi=bias_pb2.Alibi(
            num_heads=heads, form=bias_pb2.ALIBI_FORM_CAUSAL, given=tensor(numpy.ones((rows, heads)), FP32)))
    masked = samples.alibi(form=bias_pb2.ALIBI_FORM_BLOOM)
    masked.position_mask.CopyFrom(tensor(numpy.ones((1000, 30_000)), BOOL))
    yield bias_pb2.BiasMethod(alibi=masked)
    yield bias_pb2.BiasMethod(
        t5=bias_pb2.T5Bias(bidirectional=True, num_buckets=8192, max_distance=100_000),
        table=tensor(numpy.ones((8192, 2000)), BF16), table_layout=bias_pb2.BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS)
    yield bias_pb2.BiasMethod(fire=bias_pb2.Fire(
        c=0.1, threshold=512, hidden_weight=samples.weights(1024), hidden_bias=samples.weights(1024),
        output_weight=tensor(numpy.ones((8000, 1024)), FP32), output_bias=samples.weights(8000)))
    yield bias_pb2.BiasMethod(forget_gate=bias_pb2.ForgetGate(log_gates=tensor(numpy.zeros((4, MEBIBYTE)), FP32)))


def calls_of_large_biases():
    for bias in large_biases():
        name = bias.WhichOneof("method")
        yield name, "Explain", service_pb2.ExplainRequest(bias=bias)
        yield name, "Compare", samples.comparison(bias, bias)
        for return_plan in (False, True):
            request = service_pb2.GenerateBiasRequest(
                method=bias, geometry=bias_pb2.BiasGeometry(query_length=1, key_length=1),
                form=bias_pb2.BIAS_FORM_DENSE, dtype=FP32)
            request.hints.return_plan = return_plan
            yield name, "GenerateBias", request
            yield name, "StreamBias", service_pb2.StreamBiasRequest(bias=request)

def memory_of_call(start_server, method, request):
    """Returns by how much a call that may be refused makes a new server's memory grow."""
    server = start_server(*MEDIUM)
    with Client(server.port) as client:
        serve(client)
        before = server.peak_memory()
        try:
            client.call(method, request)
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT), error
        return server.peak_memory() - before


def test_a_large_bias_takes_no_more_than_what_may_be_in_flight(start_server):
    for name, method, request in calls_of_large_biases():
        assert memory_of_call(start_server, method, request) < MEDIUM_BOUND + SANITIZER_BYTES, (name, method)


@pytest.mark.parametrize("shape", ((1, 1, 4 * MEBIBYTE - 64), (60_000, 1, 64)))
def test_a_diagnosis_takes_no_more_than_what_may_be_in_flight(start_server, shape):
    bias = tensor(numpy.random.default_rng(1).standard_normal(shape), FP64)
    request = service_pb2.DiagnoseBiasRequest(bias=bias, return_values=True)
    assert memory_of_call(start_server, "DiagnoseBias", request) < MEDIUM_BOUND + SANITIZER_BYTES


def test_a_stream_whose_header_never_fits_is_not_asked_to_retry(start_server):
    """The header's message fits, and so do its positions, but not both."""
    server = start_server("--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB", "--max-in-flight-bytes", "9MiB")
    count = 900_000
    header = samples.rotary()
    header.q.tensor.ClearField("data")
    header.q.tensor.shape[:] = [1, count, 1, 8]
    header.positions.ids.CopyFrom(tensor(numpy.arange(count)[None], INT64))
    with Client(server.port) as client:
        refusal = client.refusal("StreamApplyRotary", iter([service_pb2.StreamApplyRotaryRequest(header=header)]))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE"), refusal


def test_a_file_of_many_values_is_refused_where_nothing_is_left(start_server):
    # Exceptions pass through the JSON library, whose destructors must not allocate then.
    server = start_server(*SMALL)
    file = b'{"model_type": "llama", "values": [' + b",".join([b"[]"] * 300_000) + b"]}"
    explain = service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(config_json=file))
    with Client(server.port) as client, ShutWindow(server.port, address="127.0.0.2") as greedy:
        for _ in range(4):
            greedy.call("GenerateTable", samples.table(count=7 * MEBIBYTE // 32))
        wait_for_bytes_in_flight(client, 28 * MEBIBYTE)
        for _ in range(3):
            refusal = client.refusal("Explain", explain)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "OVERLOADED"), refusal
        serve(client)


def chunks(count, size):
    """Yields a stream's messages: the header of a tensor and its first `count` chunks."""
    header = service_pb2.StreamApplyRotaryRequest(header=samples.rotary(numpy.ones((1, 2, 1, 128)), rotary_dim=128))
    header.header.q.tensor.ClearField("data")
    header.header.q.tensor.shape[:] = [1, MEBIBYTE, 1, 128]
    yield header
    for n in range(count):
        chunk = service_pb2.RotaryChunk(operand=rotary_pb2.OPERAND_QUERY)
        chunk.rows.byte_offset = n * size
        chunk.rows.data = bytes(size)
        yield service_pb2.StreamApplyRotaryRequest(chunk=chunk)


# The streams offer 64 MiB, of which the server reads as much as it may hold, or 1 GiB, where gRPC ends some streams at
# its quota. The server must then release slices on its own threads as gRPC requires.
@pytest.mark.parametrize("streams, size", ((8, 2 * MEBIBYTE), (256, 64 << 10), (128, 2 * MEBIBYTE)))
def test_chunks_whose_answers_nobody_reads(start_server, streams, size):
    server = start_server(*SMALL)
    base = server.peak_memory()
    messages = list(chunks(4, size))
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(server.port))
        unread = [stack.enter_context(Uploader(server.port, "StreamApplyRotary", *messages, window=0, address="127.0.0.2"))
                  for _ in range(streams)]
        pump_all(unread)
        ends = {stream.end for stream in unread} - {None, grpc.StatusCode.UNAVAILABLE.value[0]}
        assert ends <= ({"reset", "closed"} if 4 * streams * size > QUOTA else set())
        if not (NEWER_GRPC and 4 * streams * size > QUOTA):
            assert client.info().counters.in_flight_bytes > 0
            serve(client)
    assert server.peak_memory() < base + BOUND


def test_chunks_with_gaps_between_them_take_little_memory(start_server):
    # The server remembers which ranges were answered. Here they are one for each operand, or 1,000.
    streams, chunks_, size = 24, 1000, 32
    grown = []
    for step in (1, 2):
        header = service_pb2.StreamApplyRotaryRequest(header=samples.rotary(numpy.ones((1, 2, 1, 8)), numpy.ones((1, 2, 1, 8))))
        for operand in (header.header.q, header.header.k):
            operand.tensor.ClearField("data")
            operand.tensor.shape[:] = [1, 2 * chunks_, 1, 8]
        messages = [header]
        for operand in (rotary_pb2.OPERAND_QUERY, rotary_pb2.OPERAND_KEY):
            for n in range(chunks_):
                chunk = service_pb2.RotaryChunk(operand=operand)
                chunk.rows.byte_offset = step * n * size
                chunk.rows.data = bytes(size)
                messages.append(service_pb2.StreamApplyRotaryRequest(chunk=chunk))
        server = start_server(*SMALL)
        with Client(server.port) as client, contextlib.ExitStack() as stack:
            serve(client)
            base = server.anonymous_memory()
            open_streams = [stack.enter_context(Uploader(server.port, "StreamApplyRotary", *messages)) for _ in range(streams)]
            pump_all(open_streams, held_back=1)
            assert {stream.end for stream in open_streams} == {None}
            grown.append(server.anonymous_memory() - base)
    assert grown[1] - grown[0] < streams * (32 << 10) + SANITIZER_BYTES


def test_streams_are_charged_for_plans_that_other_calls_cached(start_server):
    # Each stream keeps 1.5 MiB of plans, which the cache evicts: about 20 of them fit into the bytes in flight.
    server = start_server(*SMALL)
    base = server.peak_memory()
    request = samples.rotary(numpy.zeros((2, 1, 1, 65536)), rotary_dim=65536, dtype=BF16)
    request.precision.preset = rotary_pb2.PRECISION_PRESET_F32
    request.positions.CopyFrom(rotary_pb2.Positions(offsets=rotary_pb2.PositionOffsets(offset=[100, 200]),
                                                    scaling_length_rule=rotary_pb2.SCALING_LENGTH_RULE_PER_SEQUENCE))
    settings = request.rotary.settings
    settings.max_position_embeddings, settings.xpos.centre = 16, 0
    settings.rope_parameters.rope_type, settings.rope_parameters.factor = "dynamic", 4
    held = 0
    with Client(server.port) as client, ShutWindow(server.port) as idle:
        for n in range(40):
            settings.rope_parameters.rope_theta = 10_000 + n
            header = service_pb2.StreamApplyRotaryRequest(header=request)
            header.header.q.tensor.ClearField("data")
            try:
                client.call("ApplyRotary", request)
            except grpc.RpcError as error:
                assert Refusal.of(error).reason == "OVERLOADED"
                break
            began = idle.wait_for(ResponseReceived, idle.call("StreamApplyRotary", header, end=False))
            held += dict(began.headers).get(b"grpc-status") is None
    assert 10 < held < 22
    assert server.peak_memory() < base + BOUND


def test_many_connections(start_server):
    server = start_server(*SMALL)
    base = server.peak_memory()
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(ShutWindow(server.port)).call("ApplyRotary", samples.rotary())
        with Client(server.port) as client:
            serve(client)
    assert server.peak_memory() < base + SLACK + SANITIZER_BYTES


def waiting_calls():
    """Yields methods, the KiB that docs/run.md allows to a call of theirs without its headers, and numbers of
    headers before and after its message. The latter end a stream, which then no longer waits."""
    for method, most in (("StreamApplyRotary", WAITING_CALL), ("GetServerInfo", WAITING_CALL), ("GenerateTable", 32)):
        for headers, trailers in ((0, 0), (14, 0), (480, 0), (14, 14), (480, 480)):
            if trailers == 0 or method != "StreamApplyRotary":
                yield method, most, headers, trailers


@pytest.mark.parametrize("method, most, headers, trailers", waiting_calls())
def test_a_call_that_waits_holds_little_besides_its_headers(start_server, method, most, headers, trailers):
    connections, calls, metadata = 4, 75, 16 << 10
    messages = {"StreamApplyRotary": b"", "GetServerInfo": bytes(5), "GenerateTable": framed(samples.table())}

    def fields(count, call):
        digits = metadata // max(count, 1) - 34  # of a value: HTTP/2 counts 32 bytes for each header, and its name
        return [("x", f"{call} {n} ".ljust(digits, "-")[:digits]) for n in range(count)]

    server = start_server(*SMALL)
    with Client(server.port) as client, contextlib.ExitStack() as stack:
        serve(client)
        base = server.peak_memory()
        for _ in range(connections):
            unread = stack.enter_context(ShutWindow(server.port))
            for call in range(calls):
                stream = unread.begin(method, *fields(headers, call))
                if messages[method]:
                    unread.http.send_data(stream, messages[method], end_stream=trailers == 0)
                if trailers > 0:
                    unread.http.send_headers(stream, fields(trailers, call), end_stream=True)
                unread.flush()
            last = unread.call("GetServerInfo", service_pb2.GetServerInfoRequest())
            unread.wait_for(ResponseReceived, last)  # so all calls before have come
        grown = server.peak_memory() - base
    times = 8 * (headers > 0) + 2 * (trailers > 0)
    assert grown < connections * calls * ((most << 10) + times * metadata) + SANITIZER_BYTES


def test_an_idle_server_gives_memory_back(start_server):
    # The answer buffer pool is small, so that the resident memory is the C library's.
    server = start_server("--max-request-bytes", "64MiB", "--max-in-flight-bytes", "512MiB", "--answer-pool-bytes", "1MiB")
    request = samples.rotary(numpy.ones((1, 16384, 4, 128)), rotary_dim=128)
    with Client(server.port) as client:
        serve(client)
        for call in [client.method("ApplyRotary").future(request, timeout=SECONDS) for _ in range(6)]:
            call.result()
        client.when_idle()
        assert server.peak_memory() > 100 * MEBIBYTE
    deadline = time.monotonic() + SECONDS
    while server.resident_memory() > 64 * MEBIBYTE + SANITIZER_BYTES:
        assert time.monotonic() < deadline
        time.sleep(0.1)

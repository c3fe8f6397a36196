"""The Open Inference Protocol under load and under random bytes: limits, memory, and mutated requests.

POSENC_MUTATED_CALLS is the number of mutated calls, POSENC_MUTATION_SEED the random seed.
"""

import concurrent.futures
import os
import queue
import random
import signal
import time

import grpc
import h2.events
import numpy
import pytest
import samples
from bare_http2 import ShutWindow, Uploader
from client import SECONDS, Client, Refusal
from google.protobuf import json_format
from inference_client import SERVICE, InferenceClient, infer, set_parameters
from server_process import SANITIZER_BYTES
from tensors import BF16, BOOL, FP16, FP32, INT64

CALLS = int(os.environ.get("POSENC_MUTATED_CALLS", "2000"))
SEED = int(os.environ.get("POSENC_MUTATION_SEED", "20261124"))
MEBIBYTE = 1 << 20
SETTINGS = json_format.MessageToJson(samples.rope_settings(rotary_dim=128))


def large(tokens, operands=("q",)):
    """A rotation of `tokens` * 4 KiB for each operand."""
    q = numpy.ones((1, tokens, 8, 128), "f4")
    return infer("posenc.rotary", [(name, q, FP32) for name in operands], layout="BSHD", offset=0, settings=SETTINGS)


def test_a_large_tensor_takes_the_memory_of_a_typed_call(start_server):
    # One call to each server: a second one may arrive before gRPC has freed the first one's memory, and then the peak
    # depends on time.
    tokens = 64 * MEBIBYTE // 4096
    server = start_server()
    with Client(server.port) as client:
        request = samples.rotary(numpy.ones((1, tokens, 8, 128), "f4"), rotary_dim=128)
        assert len(client.call("ApplyRotary", request).q.data) == 64 * MEBIBYTE
    typed = server.peak_memory()
    server = start_server()
    with InferenceClient(server.port) as client:
        assert len(client.call("ModelInfer", large(tokens)).raw_output_contents[0]) == 64 * MEBIBYTE
    peak = server.peak_memory()
    assert peak < typed + 16 * MEBIBYTE + SANITIZER_BYTES, (typed, peak)


def test_limits_of_a_request(start_server):
    server = start_server("--max-request-bytes", "1MiB", "--max-output-bytes", "256KiB")
    with InferenceClient(server.port) as client:
        refusal = client.refusal("ModelInfer", large(300))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")
        refusal = client.refusal("ModelInfer", large(100))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")
        # An output that the response leaves out is computed, and counts.
        assert client.refusal("ModelInfer", large(40, ("q", "k"))).reason == "TOO_LARGE"
        many = infer("posenc.table", offset=0, count=10**9, dtype="FP32", form="HALF_WIDTH", settings=SETTINGS)
        assert client.refusal("ModelInfer", many).reason == "TOO_LARGE"
        # The stream goes on after an error.
        small = infer("posenc.table", offset=0, count=1, dtype="FP32", form="HALF_WIDTH", settings=SETTINGS)
        first, second = client.method("ModelStreamInfer")(iter([many, small]), timeout=SECONDS)
        assert "max_output_bytes" in first.error_message and not second.error_message


def many_entries():
    """Small entries, each of which takes many times its bytes once it is parsed: method, request, and the field."""
    begin = infer("posenc.rotary").SerializeToString()
    for field, entry in (("inputs", "2a00"), ("outputs", "3200"), ("parameters", "2200"), ("raw_input_contents", "3a00"),
                         ("1001", "c83e00"), ("12", "6364")):
        yield "ModelInfer", begin + bytes.fromhex(entry) * (4 * MEBIBYTE // len(entry)), field
    yield "ModelInfer", begin + b"\x63" + bytes.fromhex("0a00") * (2 * MEBIBYTE) + b"\x64", "12"  # a group of many fields
    strings = bytes.fromhex("4200") * (2 * MEBIBYTE)
    contents = b"\x2a" + varint(len(strings)) + strings
    yield "ModelInfer", begin + b"\x2a" + varint(len(contents)) + contents, "inputs.contents.bytes_contents"
    yield "RepositoryModelLoad", bytes.fromhex("1a00") * MEBIBYTE, "parameters"
    for axes in ("{}," * MEBIBYTE + "{}]}}", "[" * 4 * MEBIBYTE):
        settings = '{"axial": {"axes": [' + axes
        yield "ModelInfer", infer("posenc.rotary", settings=settings).SerializeToString(), "settings"


def varint(value):
    rest = value >> 7
    return bytes([value & 0x7f | 0x80]) + varint(rest) if rest else bytes([value])


def test_many_small_entries_take_no_memory(start_server):
    server = start_server("--model-control", "on")
    with InferenceClient(server.port) as client:
        client.call("ModelInfer", large(1))
        for method, request, field in many_entries():
            before = server.peak_memory()
            refusal = client.refusal(method, request)
            assert (refusal.reason, refusal.field) == ("UNKNOWN_FIELD" if field.isdigit() else "TOO_LARGE", field), refusal
            assert server.peak_memory() < before + 48 * MEBIBYTE + SANITIZER_BYTES, (field, before, server.peak_memory())


def test_the_length_of_an_id(start_server):
    server = start_server()
    with InferenceClient(server.port) as client:
        request = large(1)
        for id in ("x" * 256, "é" * 128):
            request.id = id
            assert client.call("ModelInfer", request).id == id
        for id in ("x" * 257, "é" * 129, "x" * 7 * MEBIBYTE):
            request.id = id
            refusal = client.refusal("ModelInfer", request)
            assert (refusal.code, refusal.reason, refusal.field) == (
                grpc.StatusCode.INVALID_ARGUMENT, "OUT_OF_RANGE", "id"), refusal
        # An error of a stream repeats an id that is short enough, whatever is wrong.
        short = infer("no such model")
        short.id = "x" * 256
        first, second = client.method("ModelStreamInfer")(iter([request, short]), timeout=SECONDS)
        assert first.error_message.startswith("id: ") and first.ByteSize() < 1024
        assert second.infer_response.id == short.id


def test_errors_of_a_stream_that_nobody_reads_take_no_memory(start_server):
    # With few bytes in flight the C library keeps little of the freed memory.
    server = start_server("--send-timeout", "3600", "--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB",
                          "--max-in-flight-bytes", "32MiB")
    request = infer("no such model")
    request.id = "x" * (7 * MEBIBYTE)
    messages = 15  # one less than a stream reads before its first answer is taken
    with Client(server.port) as client, Uploader(server.port, f"/{SERVICE.full_name}/ModelStreamInfer",
                                                 *[request] * messages, window=0) as unread:
        before = server.anonymous_memory()
        deadline = time.monotonic() + SECONDS
        while (counters := client.info().counters).requests_failed + counters.requests_refused < messages:
            assert time.monotonic() < deadline
            unread.pump(len(unread.bytes))
        # gRPC and the C library keep the requests' memory for a while.
        while server.anonymous_memory() > before + 64 * MEBIBYTE + SANITIZER_BYTES:
            assert time.monotonic() < deadline, server.anonymous_memory()
            time.sleep(0.05)


@pytest.mark.parametrize("messages", (0, 1))
def test_a_stream_that_sends_nothing_more_ends(start_server, messages):
    server = start_server("--receive-timeout", "1")
    with Client(server.port) as client, ShutWindow(server.port) as idle:
        path = f"/{SERVICE.full_name}/ModelStreamInfer"
        stream = idle.call(path, *[infer("no such model")] * messages, end=False)
        if messages:
            idle.wait_for(h2.events.ResponseReceived, stream)
            time.sleep(2)  # an answer that waits to be taken does not make the stream idle
            client.call("ApplyRotary", samples.rotary())
            idle.http.increment_flow_control_window(65536, stream)
            idle.flush()
            idle.wait_for(h2.events.DataReceived, stream)
        trailers = idle.wait_for((h2.events.TrailersReceived, h2.events.ResponseReceived), stream)
        assert dict(trailers.headers)[b"grpc-status"] == b"4"  # DEADLINE_EXCEEDED
        client.when_idle()


def test_overload(start_server):
    server = start_server("--max-in-flight-requests", "2")
    with InferenceClient(server.port) as client, concurrent.futures.ThreadPoolExecutor(16) as threads:
        # Its settings are too large for the receiving thread, so the calls meet in the pool.
        request = large(16)
        request.parameters["settings"].string_param += " " * 20000

        def code(_):
            try:
                client.call("ModelInfer", request)
            except grpc.RpcError as error:
                refusal = Refusal.of(error)
                assert (error.code(), refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "OVERLOADED"), refusal
                assert "grpc-retry-pushback-ms" in refusal.trailers
                return refusal.reason
            return "OK"
        codes = list(threads.map(code, range(64)))
        assert "OK" in codes
        # Each message of a stream is admitted by itself.
        answers = list(client.method("ModelStreamInfer")(iter([request] * 20), timeout=SECONDS))
        assert len(answers) == 20 and any(not answer.error_message for answer in answers)
    with Client(server.port) as client:
        counters = client.when_idle()
        assert counters.in_flight_bytes == 0


def test_a_drain_answers_a_stream(start_server):
    server = start_server()
    with InferenceClient(server.port) as client:
        next_one = queue.SimpleQueue()

        def requests():
            while next_one.get(timeout=SECONDS):
                yield large(1)
        answers = client.method("ModelStreamInfer")(requests(), timeout=SECONDS)
        next_one.put(True)
        assert not next(answers).error_message
        server.signal(signal.SIGTERM)
        error = ""
        try:
            # The server still answers for a moment after it has received the signal.
            while not error:
                next_one.put(True)
                error = next(answers).error_message
            assert "shutting down" in error
        except grpc.RpcError as refusal:
            assert refusal.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        except StopIteration:
            pass
        next_one.put(False)
        assert server.wait() == 0


def seeds(names):
    """Legal requests of ModelInfer."""
    q = numpy.ones((1, 2, 1, 128))
    rotation = infer(names[0], [("q", q, FP32), ("position_ids", [3, 4], INT64), ("k", q, FP16)], ["k", "q"], layout="BSHD",
                     direction="FORWARD", precision="EXACT", layer_index=0)
    rotation.id = "seed"
    contents = infer("posenc.rotary", layout="BHSD", offset=2, settings=SETTINGS)
    contents.inputs.add(name="q", datatype="FP32", shape=[1, 1, 1, 128]).contents.fp32_contents.extend([1.0] * 128)
    table = infer(f"{names[0]}.table", offset=0, count=3, dtype="BF16", form="DUPLICATED")
    bias = infer(names[1], [("key_valid", [[True, False, True]], BOOL)], query_length=2, key_length=3, query_offset=1,
                 causal=True, fill_value=-1.0, fully_masked_row="FILL", form="DENSE", dtype="FP32")
    added = infer(f"{names[1]}.add_bias", [("scores", numpy.zeros((1, 16, 2, 2)), BF16)])
    settings = json_format.MessageToJson(samples.bias().method)
    own = infer("posenc.bias", query_length=2, key_length=2, form="DENSE", dtype="FP32", settings=settings)
    embedding = infer("posenc.embedding", offset=1, count=2, dtype="FP32",
                      settings='{"sinusoidal": {"convention": "SINUSOIDAL_CONVENTION_HALVES", "dim": 6}}')
    memory = infer("posenc.rotary", layout="BSHD", offset=0, settings=SETTINGS)
    set_parameters(memory.inputs.add(name="q", datatype="FP32", shape=[1, 1, 1, 128]), {
        "shared_memory_region": "a", "shared_memory_byte_size": 512, "shared_memory_offset": 0})
    return [rotation, contents, table, bias, added, own, embedding, memory]


def mutated(chance, requests):
    """A request's bytes with some of them changed, or parts of two requests."""
    text = bytearray(chance.choice(requests))
    for _ in range(chance.choice([1, 1, 2, 4, 16])):
        at = chance.randrange(len(text))
        match chance.randrange(6):
            case 0: text[at] = chance.randrange(256)
            case 1: text[at] ^= 1 << chance.randrange(8)
            case 2: del text[at:at + chance.choice([1, 4, 64])]
            case 3: text[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice([1, 2, 8])))
            case 4: text[at:at + 1] = chance.choice([b"\xff" * 4 + b"\x0f", b"\x80" * 9 + b"\x01", b"\0"])
            case 5:
                other = chance.choice(requests)
                begin = chance.randrange(len(other))
                text[at:at] = other[begin:begin + chance.randrange(64)]
        if not text:
            return b""
    return bytes(text)


def test_mutated_requests(start_server, configs, tmp_path):
    print(f"{CALLS} calls, seed {SEED}")
    repository = tmp_path / "models"
    names = ("llama-3.1-8b", "bloom-560m")
    for name in names:
        (repository / name).mkdir(parents=True)
        (repository / name / "config.json").write_bytes((configs / f"{name}.json").read_bytes())
    shared = f"posenc-oip-mutated-{os.getpid()}"
    with open(f"/dev/shm/{shared}", "wb") as file:
        file.write(bytes(4096))
    try:
        server = start_server("--model-repository", repository, "--inference-memory-prefix", "/posenc-oip-",
                              "--max-output-bytes", "1MiB")
        chance = random.Random(SEED)
        requests = [request.SerializeToString() for request in seeds(names)]
        counts = {}
        with InferenceClient(server.port) as client, Client(server.port) as typed, \
                concurrent.futures.ThreadPoolExecutor(4) as threads:
            client.call("SystemSharedMemoryRegister", name="a", key=f"/{shared}", byte_size=4096)
            for text in requests:
                client.call("ModelInfer", text)

            def call(text):
                try:
                    client.method("ModelInfer")(text, timeout=0.5)
                except grpc.RpcError as error:
                    if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                        Refusal.of(error)
                    return error.code().name
                return "OK"

            def stream(texts):
                """All of them are answered, unless the time is over."""
                try:
                    return len(list(client.method("ModelStreamInfer")(iter(texts), timeout=SECONDS))) == len(texts)
                except grpc.RpcError as error:
                    raise AssertionError([text.hex() for text in texts]) from error
            for begin in range(0, CALLS, 500):
                batch = [mutated(chance, requests) for _ in range(min(500, CALLS - begin))]
                for code in threads.map(call, batch):
                    counts[code] = counts.get(code, 0) + 1
                assert all(threads.map(stream, [batch[n:n + 5] for n in range(0, len(batch), 50)]))
                typed.when_idle()
            for text in requests:
                client.call("ModelInfer", text)
        print(counts)
        assert counts.keys() <= {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
        assert counts["OK"] > CALLS / 100 and counts["INVALID_ARGUMENT"] > CALLS / 10
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    finally:
        os.unlink(f"/dev/shm/{shared}")

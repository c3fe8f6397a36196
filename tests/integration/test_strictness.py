"""The server refuses by name what it does not know in a request, except in CallHints, and keeps running."""

import random

import grpc
import pytest
import samples
from client import SECONDS, SERVICE, Client, Refusal, serialize
from every_field import is_list
from posenc.v1 import rotary_pb2, service_pb2
from rich_requests import rich_requests

INVALID = grpc.StatusCode.INVALID_ARGUMENT
# Field 2000, varint 1: what a newer proto might have.
NEW_FIELD = bytes([0x80, 0x7D, 0x01])
NEW_NUMBER = "2000"


def messages_within(message, path=""):
    """Yields (path, message) for a message and all messages within it, at any depth."""
    yield path, message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        parts = enumerate(value) if is_list(field) else [(None, value)]
        for n, part in parts:
            name = field.name if n is None else f"{field.name}[{n}]"
            yield from messages_within(part, f"{path}.{name}".lstrip("."))


def places(wanted):
    """Yields a test case (method, request's number, path, name) for each name that `wanted` picks in rich requests."""
    for n, (method, request) in enumerate(rich_requests()):
        for path, message in messages_within(request):
            for name in wanted(message):
                yield pytest.param(method, n, path, name, id=f"{method}-{n}-{path}.{name}".replace("-.", "-"))


def at(path, request):
    return next(message for found, message in messages_within(request) if found == path)


def joined(path, name):
    return f"{path}.{name}".lstrip(".")


@pytest.mark.parametrize("method, request_", rich_requests())
def test_the_rich_requests_are_legal(client, method, request_):
    client.call(method, request_)


@pytest.mark.parametrize("method, n, path, name", places(lambda message: [message.DESCRIPTOR.name]))
def test_a_field_of_a_newer_proto(client, method, n, path, name):
    request = rich_requests()[n][1]
    message = at(path, request)
    expected = client.call(method, request) if name == "CallHints" else None
    message.MergeFromString(NEW_FIELD)
    if name == "CallHints":
        assert client.call(method, request) == expected
        return
    refusal = client.refusal(method, request)
    assert (refusal.code, refusal.reason, refusal.field) == (INVALID, "UNKNOWN_FIELD", joined(path, NEW_NUMBER))
    assert (refusal.value, refusal.started) == ("1", "false") and name in refusal.limit


def enum_fields(message):
    return [field.name for field, _ in message.ListFields() if field.enum_type]


@pytest.mark.parametrize("method, n, path, name", places(enum_fields))
def test_an_enum_value_of_a_newer_proto(client, method, n, path, name):
    request = rich_requests()[n][1]
    setattr(at(path, request), name, 999)
    refusal = client.refusal(method, request)
    assert (refusal.code, refusal.reason, refusal.field) == (INVALID, "UNKNOWN_VALUE", joined(path, name))
    assert refusal.value == "999"


def clear(field):
    def change(request):
        *parents, last = field.split(".")
        for parent in parents:
            request = getattr(request, parent)
        request.ClearField(last)
    return change


@pytest.mark.parametrize("method, request_, field", [
    ("ApplyRotary", samples.rotary(), "layout"),
    ("ApplyRotary", samples.rotary(), "positions"),
    ("ApplyRotary", samples.rotary(), "rotary"),
    ("ApplyRotary", samples.rotary(), "q"),
    ("ApplyRotary", samples.rotary(), "q.tensor.dtype"),
    ("ApplyRotary", samples.rotary(), "rotary.settings.input_pairing"),
    ("ApplyRotary", samples.rotary(), "rotary.settings.rotary_dim"),
    ("ApplyRotary", samples.rotary(), "rotary.settings.rope_parameters.rope_type"),
    ("GenerateTable", samples.table(), "count"),
    ("GenerateTable", samples.table(), "dtype"),
    ("GenerateTable", samples.table(), "form"),
    ("Analyze", samples.analysis(), "rotary.settings.rope_parameters.rope_type"),
    ("GenerateEmbedding", samples.embedding(), "sinusoidal"),
    ("GenerateEmbedding", samples.embedding(), "sinusoidal.convention"),
    ("GenerateBias", samples.bias(), "method"),
    ("GenerateBias", samples.bias(), "form"),
    ("GenerateBias", samples.bias(), "geometry"),
    ("GenerateBias", samples.bias(), "method.alibi.form"),
    ("DiagnoseBias", service_pb2.DiagnoseBiasRequest(), "bias"),
    ("Compare", samples.comparison(), "a"),
    ("Compare", samples.comparison(), "b"),
    ("StreamTable", samples.stream(), "table"),
    ("StreamTable", samples.stream(), "table.dtype"),
    ("StreamBias", service_pb2.StreamBiasRequest(bias=samples.bias()), "bias"),
    ("StreamBias", service_pb2.StreamBiasRequest(bias=samples.bias()), "bias.geometry"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_has_no_default_must_be_given(client, method, request_, field):
    clear(field)(request_)
    refusal = client.refusal(method, request_)
    assert (refusal.code, refusal.reason) == (INVALID, "MISSING")
    # The error may name a missing field inside, or the choice that was not made.
    assert field.startswith(refusal.field) or refusal.field.startswith(field) or refusal.field == "method"


def test_a_parameter_that_the_formula_does_not_read(client):
    request = samples.table()
    request.rotary.settings.rope_parameters.low_freq_factor = 1
    refusal = client.refusal("GenerateTable", request)
    assert (refusal.code, refusal.reason) == (INVALID, "NOT_READ")
    assert refusal.field == "rotary.settings.rope_parameters.low_freq_factor"


@pytest.mark.parametrize("change, reason, field", [
    (lambda q: q.tensor.shape.append(1), "MISMATCH", "q.tensor.shape"),
    (lambda q: q.tensor.shape.__setitem__(3, -8), "OUT_OF_RANGE", "q.tensor.shape[3]"),
    (lambda q: q.tensor.shape.__setitem__(0, 2), "MISMATCH", "q.tensor.data"),
    (lambda q: q.tensor.shape.__setitem__(0, 2**62), "OUT_OF_RANGE", "q.tensor.shape[0]"),
    (lambda q: q.tensor.shape.extend([1] * 5), "OUT_OF_RANGE", "q.tensor.shape"),
    (lambda q: setattr(q.tensor, "data", q.tensor.data[1:]), "MISMATCH", "q.tensor.data"),
    (lambda q: setattr(q.tensor, "dtype", samples.FP64), "UNSUPPORTED", "q.tensor.dtype"),
    (lambda q: setattr(q, "rotary_offset", 1), "OUT_OF_RANGE", "q.rotary_offset"),
    (lambda q: setattr(q, "rotary_offset", -1), "OUT_OF_RANGE", "q.rotary_offset"),
], ids=["rank", "negative", "short", "overflow", "deep", "ragged", "dtype", "offset", "negative-offset"])
def test_tensors_that_cannot_be(client, change, reason, field):
    request = samples.rotary()
    change(request.q)
    refusal = client.refusal("ApplyRotary", request)
    assert refusal.code == INVALID
    assert (refusal.reason, refusal.field) in ((reason, field), ("MISMATCH", "q.tensor.data"))
    client.call("ApplyRotary", samples.rotary())


def test_every_prefix_of_a_request_is_refused(client):
    # The tensor's bytes are last, so that no prefix is a valid request.
    whole = samples.rotary().SerializeToString()
    expected = client.call("ApplyRotary", whole)
    for length in range(len(whole)):
        refusal = client.refusal("ApplyRotary", whole[:length])
        assert refusal.code == INVALID, length
        assert refusal.reason in ("MALFORMED", "MISSING", "MISMATCH"), length
    assert client.call("ApplyRotary", whole) == expected


@pytest.mark.parametrize("junk", [
    b"\xff" * 11, b"\x00", b"\x07", b"\x0f\x01", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a" * 5000, b"\x3a\x80\x80\x80\x80\x10",
    b"\x0b" * 200, b"\x0a\x02\xc3\x28",
], ids=["varint", "field-0", "wire-7", "end", "length", "nested", "two-gib", "groups", "text"])
def test_bytes_that_are_no_message(client, junk):
    for method in ("ApplyRotary", "GenerateTable", "StreamTable", "Explain", "Analyze", "GenerateEmbedding", "GenerateBias",
                   "StreamBias", "Compare"):
        refusal = client.refusal(method, junk)
        assert (refusal.code, refusal.started) == (INVALID, "false"), (method, refusal)
    client.call("Explain", samples.explain())


def test_text_that_is_not_utf8_is_named(client):
    refusal = client.refusal("Explain", samples.explain().SerializeToString().replace(b"default", b"defa\xffult"[:7]))
    assert (refusal.code, refusal.reason) == (INVALID, "MALFORMED")
    assert refusal.message.isascii()


def test_a_call_without_a_message(client):
    call = client.channel.stream_unary(f"/{SERVICE.full_name}/ApplyRotary", serialize)
    with pytest.raises(grpc.RpcError) as error:
        call(iter([]), timeout=SECONDS)
    refusal = Refusal.of(error.value)
    assert (refusal.code, refusal.reason) == (INVALID, "MALFORMED")


def test_random_damage_never_ends_the_server(shared_server, client):
    seed = 20240607
    print(f"seed {seed}")
    chance = random.Random(seed)
    allowed = (INVALID, grpc.StatusCode.RESOURCE_EXHAUSTED)
    requests = [(method, request.SerializeToString()) for method, request in rich_requests()]
    for _ in range(2000):
        method, text = chance.choice(requests)
        damaged = bytearray(text)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(damaged) + 1)
            damaged[place:place + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 2))
        try:
            client.call(method, bytes(damaged))
        except grpc.RpcError as error:
            assert error.code() in allowed, (method, bytes(damaged), error)
            Refusal.of(error)
    client.when_idle()


def test_compression_is_off(client):
    with pytest.raises(grpc.RpcError) as error:
        client.call("ApplyRotary", samples.rotary(), compression=grpc.Compression.Gzip)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_caller_text_in_errors_is_escaped_and_cut(client):
    request = samples.explain()
    request.rotary.rope_parameters.rope_type = "\x1b[31m" + "x" * 100000
    refusal = client.refusal("Explain", request)
    assert refusal.reason == "UNKNOWN_VALUE" and refusal.field == "rotary.rope_parameters.rope_type"
    assert refusal.message.isprintable() and len(refusal.message) < 400


@pytest.mark.parametrize("key, shown", [(b"a" * 1024, "a" * 61 + "..."), (b"\xaa" * 300, r"\xaa" * 15 + "..."),
                                        ("\u952e".encode() * 300, "\u952e" * 20 + "...")], ids=["long", "not-utf8", "chinese"])
def test_errors_of_a_long_key_say_what_is_wrong(client, key, shown):
    pair = len(key).to_bytes(8, "little") + key + bytes(5)  # a UINT8 of 0
    counts = (3).to_bytes(4, "little") + bytes(8) + (2).to_bytes(8, "little")
    request = service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(gguf=b"GGUF" + counts + 2 * pair))
    assert client.refusal("Explain", request).message == f"model.gguf.{shown}: is given twice; must be given once"


def test_an_unknown_method_is_named(client):
    call = client.channel.unary_unary("/posenc.v1.PositionalEncodingService/Nothing")
    with pytest.raises(grpc.RpcError) as error:
        call(b"", timeout=SECONDS)
    refusal = Refusal.of(error.value)
    assert (refusal.code, refusal.reason, refusal.field) == (grpc.StatusCode.UNIMPLEMENTED, "UNKNOWN_VALUE", "method")
    assert refusal.value == "/posenc.v1.PositionalEncodingService/Nothing"


@pytest.mark.parametrize("call, code", [
    (lambda client: client.call("ApplyRotary", samples.rotary(), compression=grpc.Compression.Gzip),
     grpc.StatusCode.UNIMPLEMENTED),
    (lambda client: client.call("ApplyRotary", samples.rotary(), metadata=[("large", "x" * 100_000)]),
     grpc.StatusCode.RESOURCE_EXHAUSTED),
    (lambda client: client.call("ApplyRotary", bytes(4 << 20)), grpc.StatusCode.RESOURCE_EXHAUSTED),
    (lambda client: client.call("ApplyRotary", samples.rotary(), timeout=1e-6), grpc.StatusCode.DEADLINE_EXCEEDED),
], ids=["compression", "metadata", "size", "deadline"])
def test_errors_of_grpc_itself_have_no_details(start_server, call, code):
    server = start_server("--max-request-bytes", "1MiB")
    with Client(server.port) as client, pytest.raises(grpc.RpcError) as error:
        call(client)
    assert error.value.code() == code
    assert "grpc-status-details-bin" not in dict(error.value.trailing_metadata() or ())

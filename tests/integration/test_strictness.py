"""The server refuses by name what it does not know in a request, except in CallHints, and keeps running."""

import random

import grpc
import pytest
import samples
from client import SECONDS, SERVICE, Client, Refusal, serialize
from every_field import copy_of, name_of, part_at, parts_of
from posenc.v1 import rotary_pb2, service_pb2
from rich_requests import rich_requests

INVALID = grpc.StatusCode.INVALID_ARGUMENT
# Field 2000, varint 1: what a newer proto might have.
NEW_FIELD = bytes([0x80, 0x7D, 0x01])
NEW_NUMBER = "2000"


def test_a_field_of_a_newer_proto(client):
    for method, request in rich_requests():
        for path, part in parts_of(request):
            changed = copy_of(request)
            part_at(changed, path).MergeFromString(NEW_FIELD)
            if part.DESCRIPTOR.name == "CallHints":
                assert client.call(method, changed) == client.call(method, request)
                continue
            refusal = client.refusal(method, changed)
            named = f"{name_of(path)}.{NEW_NUMBER}".lstrip(".")
            assert (refusal.code, refusal.reason, refusal.field) == (INVALID, "UNKNOWN_FIELD", named), method
            assert (refusal.value, refusal.started) == ("1", "false") and part.DESCRIPTOR.name in refusal.limit


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
    for method in [method.name for method in SERVICE.methods]:
        refusal = client.refusal(method, iter([junk]) if method == "StreamApplyRotary" else junk)
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
    (lambda client: client.call("ApplyRotary", samples.rotary(), compression=grpc.Compression.Deflate),
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

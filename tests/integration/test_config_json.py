"""Tests untrusted config.json files: the server answers quickly, names the error and keeps running."""

import json

import grpc
import pytest
import samples

MEBIBYTE = 1 << 20
GOOD = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
        "rope_theta": 10000.0, "max_position_embeddings": 2048}


def text(**changes):
    return json.dumps({**GOOD, **changes}).encode()


def scaled(**block):
    return text(rope_scaling=block)


def raw(key, value):
    """A file that Python's json would not write."""
    return text()[:-1] + f', "{key}": {value}}}'.encode()


HORRORS = {
    "empty": b"",
    "truncated": text()[:-10],
    "trailing": text() + b"}",
    "not-utf8": text(model_type="llama").replace(b"llama", b"ll\xff\xfea"),
    "utf16": json.dumps(GOOD).encode("utf-16"),
    "nul": text() + b"\0",
    "binary": bytes(range(256)),
    "array": b"[]",
    "null": b"null",
    "number": b"1",
    "5-mb": raw("padding", '"' + "x" * 5_000_000 + '"'),
    "10000-arrays": raw("deep", "[" * 10000 + "]" * 10000),
    "10000-objects": raw("deep", '{"a":' * 10000 + "1" + "}" * 10000),
    "unclosed-arrays": b"[" * 500_000,
    "duplicate-key": raw("rope_theta", "500000.0"),
    "infinite-number": raw("partial_rotary_factor", "1e400"),
    "nan": raw("partial_rotary_factor", "NaN"),
    "comment": b"/* */" + text(),
    "huge-integer": text(num_hidden_layers=10**30),
    "layers-2^31": text(num_hidden_layers=2**31),
    "negative-heads": text(num_attention_heads=-4),
    "no-heads": text(num_attention_heads=0),
    "text-for-number": text(hidden_size="64"),
    "list-for-number": text(rope_theta=[10000]),
    "theta-0": text(rope_theta=0),
    "theta-negative": text(rope_theta=-1),
    "head-dim-odd": text(head_dim=63),
    "head-dim-huge": text(head_dim=2**40),
    "block-is-text": text(rope_scaling="linear"),
    "block-is-list": text(rope_scaling=[1]),
    "unknown-type": scaled(rope_type="quantum", factor=2),
    "unknown-field": scaled(rope_type="linear", factor=2, warp=9),
    "types-differ": scaled(rope_type="linear", type="dynamic", factor=2),
    "factor-missing": scaled(rope_type="linear"),
    "factor-0": scaled(rope_type="linear", factor=0),
    "factor-text": scaled(rope_type="linear", factor="2"),
    "longrope-short-list": scaled(rope_type="longrope", short_factor=[1.0], long_factor=[1.0], factor=2,
                                  original_max_position_embeddings=1024),
    "unknown-model": text(model_type="of-tomorrow"),
    "no-model": text(model_type=None),
}


@pytest.mark.parametrize("name", HORRORS)
def test_horrors_are_refused(client, name):
    refusal = client.refusal("GenerateTable", samples.model_table(HORRORS[name]))
    assert refusal.code == grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.field.startswith("rotary.model") and refusal.reason != "INTERNAL"
    assert refusal.message.isprintable()
    client.call("GenerateTable", samples.model_table(text()))


def test_a_wide_file_is_refused_or_read_in_bounded_time(client):
    # Half a million tiny values are short in a file but slow in a careless parser.
    wide = text()[:-1] + b', "wide": [' + b"0," * (MEBIBYTE // 2 - 1000) + b"0]}"
    assert len(wide) <= client.info().limits.max_config_json_bytes
    client.call("GenerateTable", samples.model_table(wide), timeout=30)


def test_the_choices_are_listed_where_layers_differ(client, configs):
    config = (configs / "gemma-3-1b-it.json").read_bytes()
    refusal = client.refusal("GenerateTable", samples.model_table(config))
    assert refusal.reason == "MISSING" and refusal.field == "rotary.model.layer_type"
    assert "sliding_attention" in refusal.limit and "full_attention" in refusal.limit
    client.call("GenerateTable", samples.model_table(config, layer_type="sliding_attention"))
    assert client.refusal("GenerateTable", samples.model_table(config, layer_type="lateral")).reason == "UNKNOWN_VALUE"
    assert client.refusal("GenerateTable", samples.model_table(config, layer_index=99)).reason == "OUT_OF_RANGE"


def test_the_text_of_a_file_is_as_good_as_its_bytes(client, configs):
    text = (configs / "llama-3.1-8b.json").read_text()
    by_bytes = samples.model_table(text.encode())
    by_text = samples.model_table(b"")
    by_text.rotary.model.config_json_text = text
    assert client.call("GenerateTable", by_text) == client.call("GenerateTable", by_bytes)

    by_text.rotary.model.config_json = b"{}"
    refusal = client.refusal("GenerateTable", by_text)
    assert (refusal.reason, refusal.field) == ("CONFLICT", "rotary.model.config_json_text")

    by_bytes.rotary.model.config_json = b""
    refusal = client.refusal("GenerateTable", by_bytes)
    assert (refusal.reason, refusal.field) == ("MISSING", "rotary.model.config_json")

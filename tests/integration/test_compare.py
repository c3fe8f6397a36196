"""Tests Compare and `posenc compare` with real models' files: compared with each other and with their settings."""

import json

import gguf_file
import pytest
import samples
from google.protobuf import json_format
from posenc.v1 import rotary_pb2, service_pb2

LLAMA = "llama-3.1-8b.json"
LENGTHS = (128, 1_000_000)


def model(path, **choice):
    return rotary_pb2.ModelConfig(config_json=path.read_bytes(), **choice)


def each_config(configs):
    """Returns one part of each file."""
    choice = {"t5-small.json": {"component": "encoder"}, "ministral-3-3b-reasoning-2512.json": {"component": "text"}}
    return [model(path, **choice.get(path.name, {})) for path in sorted(configs.glob("*.json"))]


@pytest.fixture
def unscaled(configs, tmp_path):
    """Llama 3.1's file without its scaling."""
    config = json.loads((configs / LLAMA).read_text())
    del config["rope_scaling"]
    path = tmp_path / "unscaled.json"
    path.write_text(json.dumps(config))
    return path


def test_each_model_is_the_same_as_itself_and_as_its_canonical_settings(client, configs):
    compared = 0
    for config in each_config(configs):
        assert client.call("Compare", samples.comparison(config, config, seq_len=LENGTHS)).same
        explained = client.call("Explain", service_pb2.ExplainRequest(model=config, seq_len=LENGTHS))
        for layers in explained.layers:
            plan = layers.info.plan
            if not plan.HasField("rotary"):
                continue
            chosen = rotary_pb2.ModelConfig()
            chosen.CopyFrom(config)
            if len(explained.layers) > 1:
                chosen.layer_type = layers.layer_type
            answer = client.call("Compare", samples.comparison(chosen, plan.rotary, seq_len=LENGTHS))
            assert answer.same, answer
            compared += 1
    assert compared > 30


@pytest.mark.parametrize("older, newer", [
    ("llama-3.2-1b.json", "llama-3.2-1b.transformers-5.json"),
    ("gemma-3-1b-it.json", "gemma-3-1b-it.transformers-5.json"),
    ("phi-4-mini-instruct.json", "phi-4-mini-instruct.transformers-5.json"),
])
def test_two_spellings_of_one_model_are_the_same(posenc, configs, older, newer):
    said = posenc("compare", configs / older, configs / newer, "--seq-len", "4096,8192").stdout
    assert said.startswith("same: ")


def test_the_command_says_where_they_part(posenc, address, configs, unscaled):
    for flags in ((), ("--server", address)):
        said = posenc("compare", configs / LLAMA, unscaled, *flags, exit_code=1).stdout
        assert said.startswith("different: ")
        for words in ("layers 0-31: different", "a: llama3   b: default", "35, the first is pair 29", "difference at 131071"):
            assert words in said
    answers = [json_format.Parse(posenc("compare", "--json", configs / LLAMA, unscaled, *flags, exit_code=1).stdout,
                                 service_pb2.CompareResponse()) for flags in ((), ("--server", address))]
    assert answers[0] == answers[1] and answers[0].layers[0].rotary[0].first_pair.pair == 29


def test_sizes_of_learned_tables(posenc, tmp_path):
    for name, positions in (("short", 1024), ("long", 2048)):
        (tmp_path / name).write_text(json.dumps({"model_type": "gpt2", "n_positions": positions, "n_embd": 768}))
    same = posenc("compare", "short", "short").stdout
    assert same.startswith("same: a and b give the same positional encoding, as far as can be said without the weights\n")
    assert "learned.rows  a: 1024   b: 2048" in posenc("compare", "short", "long", exit_code=1).stdout


def test_directories_settings_and_layers(posenc, configs, unscaled, tmp_path):
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "config.json").write_bytes(unscaled.read_bytes())
    (tmp_path / "settings.json").write_text(json.dumps({"rotary": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000}, "rotary_dim": 128,
        "input_pairing": "PAIRING_HALF_SPLIT"}}))
    (tmp_path / "bias.json").write_text(json.dumps({"bias": {"alibi": {
        "num_heads": 32, "rule": "ALIBI_SLOPE_RULE_MPT", "form": "ALIBI_FORM_MPT"}}}))
    posenc("compare", "directory", "settings.json")
    posenc("compare", configs / "mpt-7b.json", "bias.json")
    assert "method  a: rotary   b: alibi" in posenc("compare", "settings.json", "bias.json", exit_code=1).stdout
    gemma = configs / "gemma-3-1b-it.json"
    posenc("compare", gemma, gemma, "--a-layer-type", "full_attention", "--b-layer-index", "5")
    posenc("compare", gemma, gemma, "--a-layer-type", "full_attention", "--b-layer-index", "4", exit_code=1)
    dynamic = configs / "internlm2_5-7b-chat.json"
    for pairing, exit_code in (("half-split", 0), ("interleaved", 1)):
        posenc("compare", dynamic, dynamic, "--a-input-pairing", "half-split", "--b-input-pairing", pairing, "--seq-len",
               "4096", exit_code=exit_code)


@pytest.mark.parametrize("arguments, exit_code, said", [
    (("{llama}",), 2, "FILE, the other side"),
    (("{llama}", "missing.json"), 3, "missing.json"),
    (("{llama}", "broken.json"), 3, "broken.json: "),
    (("{llama}", "wrong.json"), 3, "such_field"),
    (("settings.json", "{llama}", "--a-component", "text"), 2, "--a-component"),
    (("{llama}", "{phi}"), 3, "--seq-len"),
    (("{llama}", "{llama}", "--server", "localhost:1", "--timeout", "1"), 3, "localhost:1"),
])
def test_what_cannot_be_compared_is_not_called_different(posenc, configs, tmp_path, arguments, exit_code, said):
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "settings.json").write_text('{"rotary": {}}')
    (tmp_path / "wrong.json").write_text('{"rotary": {"such_field": 1}}')
    paths = {"llama": configs / LLAMA, "phi": configs / "phi-3-mini-128k-instruct.json"}
    ended = posenc("compare", *(argument.format(**paths) for argument in arguments), exit_code=exit_code)
    assert said in ended.stderr and ended.stdout == ""


@pytest.mark.parametrize("model_type, config, keys", [
    ("bloom", {"n_head": 32, "n_layer": 32, "hidden_size": 4096}, {}),
    ("mpt", {"n_heads": 32, "n_layers": 32, "d_model": 4096, "attn_config": {"alibi": True, "alibi_bias_max": 8}},
     {"attention__max_alibi_bias": 8.0}),
])
def test_alibi_of_a_gguf_is_the_same_in_causal_attention(posenc, tmp_path, model_type, config, keys):
    """The forms differ by a constant per query; other slopes are another encoding."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **config}))
    (tmp_path / "model.gguf").write_bytes(gguf_file.model(model_type, **keys))
    done = posenc("compare", "config.json", "model.gguf", exit_code=5)
    assert done.stdout.startswith("same in causal attention: the biases of a and b differ, but softmax cancels the difference")
    assert "note: alibi.form: the forms differ by a constant per query" in done.stdout
    (tmp_path / "other.gguf").write_bytes(gguf_file.model("mpt", attention__max_alibi_bias=4.0))
    assert posenc("compare", "config.json", "other.gguf", exit_code=1).stdout.startswith("different: ")


def test_the_conversion_keeps_the_factor_of_queries(client):
    """Llama 4's layers without rotation: by the index in the cache in config.json, by the position in llama.cpp."""
    config = {"model_type": "llama4_text", "num_hidden_layers": 4, "hidden_size": 4096, "num_attention_heads": 32}
    file = rotary_pb2.ModelConfig(gguf=gguf_file.model(
        "llama4", block_count=4, rope__freq_base=500000.0, interleave_moe_layer_step=1))

    def layers(**changed):
        a = rotary_pb2.ModelConfig(config_json=json.dumps(config | changed).encode())
        return client.call("Compare", samples.comparison(a, file)).layers
    assert [layer.same for layer in layers()] == [True, True]
    assert [layer.same for layer in layers(floor_scale=4096)] == [True, False]
    fields = {field.path: field for field in layers(attn_temperature_tuning=False)[1].fields}
    assert list(fields)[0] == "method" and fields["query_scale.floor_scale"].b == "8192"

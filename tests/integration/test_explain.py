"""Explain answers every config.json at once: all parts, layers and branches, in numbers and in words."""

import json

import grpc
import pytest
from posenc.v1 import rotary_pb2, service_pb2


def explain(client, config, **choice):
    return client.call("Explain", service_pb2.ExplainRequest(
        model=rotary_pb2.ModelConfig(config_json=config, **choice))).layers


def runs(text):
    return [(run.first, run.last, service_pb2.PairScaling.Name(run.scaling).removeprefix("PAIR_SCALING_"))
            for run in text.runs]


def test_every_file_is_answered_without_choices(client, configs):
    for path in sorted(configs.glob("*.json")):
        layers = explain(client, path.read_bytes())
        assert layers, path
        for layer in layers:
            if layer.info.rotated:
                assert len(layer.text) == len(layer.info.sequences) == len(layer.info.plan.frequencies), path
                assert all(text.sentence for text in layer.text), path


@pytest.mark.parametrize("config, original", (
    ({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}, "transformers"),
    ({"model_type": "telechat3", "hidden_size": 64, "num_attention_heads": 4}, "the model's released code"),
    ({"_class_name": "FluxTransformer2DModel"}, "diffusers"),
))
def test_the_original_is_named(client, config, original):
    layer, = explain(client, json.dumps(config).encode())
    assert any(sentence.startswith(f"Differs from {original} in: roundings") for sentence in layer.text[0].sentence)


def test_a_file_of_unknown_model_type_needs_a_pairing(client):
    refusal = client.refusal("Explain", service_pb2.ExplainRequest(
        model=rotary_pb2.ModelConfig(config_json=b'{"model_type": "unheard", "head_dim": 64, "rope_theta": 10000}')))
    assert (refusal.code, refusal.field) == (grpc.StatusCode.INVALID_ARGUMENT, "model.input_pairing")


def test_all_parts_are_named(client, configs):
    layers = explain(client, (configs / "gemma-3-4b-it.json").read_bytes())
    assert [(layer.component, layer.layer_type) for layer in layers] == [
        ("text", "sliding_attention"), ("text", "full_attention"), ("vision", "")]
    one = explain(client, (configs / "gemma-3-4b-it.json").read_bytes(), component="text")
    assert [layer.info for layer in one] == [layer.info for layer in layers[:2]]
    stacks = explain(client, (configs / "t5-small.json").read_bytes())
    assert [(layer.component, layer.info.plan.bias.t5.bidirectional) for layer in stacks] == [
        ("encoder", True), ("decoder", False)]


def test_a_part_that_cannot_be_read_is_an_entry_with_its_error(client, configs):
    file = json.loads((configs / "gemma-3-4b-it.json").read_bytes())
    file["vision_config"]["patch_size"] = 0
    layers = explain(client, json.dumps(file).encode())
    [failed] = [layer for layer in layers if layer.component == "vision"]
    [note] = failed.info.notes
    assert (note.code, note.field) == ("OUT_OF_RANGE", "model.config_json.vision_config.patch_size")
    file["text_config"]["head_dim"] = "256"
    refusal = client.refusal("Explain", service_pb2.ExplainRequest(
        model=rotary_pb2.ModelConfig(config_json=json.dumps(file).encode())))
    assert refusal.field == "model.config_json.text_config.head_dim"


@pytest.mark.parametrize("name, lengths, branches", [
    ("phi-3-mini-128k-instruct.json", [4096, 8192], ["short", "long"]),
    ("llama-2-7b-dynamic.json", [4096, 8192], ["unscaled", "scaled"]),
])
def test_both_branches_are_explained(client, configs, name, lengths, branches):
    [layer] = explain(client, (configs / name).read_bytes())
    assert [sequence.seq_len for sequence in layer.info.sequences] == lengths
    assert [sequence.branch for sequence in layer.info.sequences] == branches
    assert [any(branch in sentence for sentence in text.sentence) for branch, text in zip(branches, layer.text)] == [True] * 2
    given = client.call("Explain", service_pb2.ExplainRequest(
        model=rotary_pb2.ModelConfig(config_json=(configs / name).read_bytes()), seq_len=lengths[:1]))
    assert [sequence.seq_len for sequence in given.layers[0].info.sequences] == lengths[:1]


def test_llama3_in_words(client, configs):
    [layer] = explain(client, (configs / "llama-3.1-8b.json").read_bytes())
    [text] = layer.text
    # Llama 3.1 keeps wavelengths below 8192/4 tokens and slows those above 8192/1 by its factor.
    wavelengths = [2 * 3.141592653589793 * 500000 ** (i / 64) for i in range(64)]
    kept = sum(length < 8192 / 4 for length in wavelengths)
    slowed = sum(length > 8192 for length in wavelengths)
    assert runs(text) == [(0, kept - 1, "KEPT"), (kept, 63 - slowed, "MIXED"), (64 - slowed, 63, "INTERPOLATED")]
    assert (text.runs[2].least_ratio, text.runs[2].most_ratio) == (1 / 8, 1 / 8)
    words = " ".join(text.sentence)
    assert f"Pairs 0-{kept - 1} kept" in words and f"pairs {64 - slowed}-63 slowed 8 times" in words
    assert "max_position_embeddings is 131,072; before the scaling 8,192." in text.sentence


@pytest.mark.parametrize("name, said", [
    ("llama-3.1-8b.json", "131,072 rows and 67,108,864 bytes in float32; beyond it the same frequencies go on"),
    ("phi-3-mini-128k-instruct.json",
     "a sequence of more than 4,096 tokens has the long list of factors, which goes on beyond 131,072"),
    ("llama-2-7b-dynamic.json", "4,096 rows and 2,097,152 bytes in float32; a longer sequence has a larger base"),
])
def test_how_far_a_table_reaches(client, configs, name, said):
    [layer] = explain(client, (configs / name).read_bytes())
    assert all(any(said in sentence for sentence in text.sentence) for text in layer.text)


LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 1, "num_hidden_layers": 1}
LINEAR = {"rope_type": "linear", "factor": 8.0}
GEMMA = {"model_type": "gemma3_text", "hidden_size": 64, "num_attention_heads": 1, "num_hidden_layers": 6,
         "max_position_embeddings": 131072, "sliding_window": 512,
         "rope_parameters": {"full_attention": {"rope_theta": 1e6, **LINEAR},
                             "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}}


@pytest.mark.parametrize("config, layer_type, said", [
    # The file's length is the one before a linear scaling of all layers, and that of layers without it.
    ({**LLAMA, "max_position_embeddings": 2048, "rope_scaling": LINEAR}, "", [
        "max_position_embeddings is 2,048; its factor 8 makes 16,384 of it, if it is the length before the scaling.",
        "has 16,384 rows and 4,194,304 bytes in float32"]),
    (GEMMA, "full_attention", ["max_position_embeddings is 131,072.", "has 131,072 rows"]),
    (GEMMA, "sliding_attention", ["Attention reaches 512 tokens back (sliding_window), while positions go on."]),
    ({**LLAMA, "model_type": "mistral", "sliding_window": 4096, "max_position_embeddings": 32768}, "", [
        "Attention reaches 4,096 tokens back"]),
    ({"model_type": "bert"}, "", [
        "The learned table has 512 rows and 1,572,864 bytes in float32, for at most 512 tokens: there is no row beyond."]),
    ({"model_type": "gpt2"}, "", ["The learned table has 1,024 rows and 3,145,728 bytes in float32"]),
    ({"model_type": "roberta", "max_position_embeddings": 514}, "", [
        "The learned table has 514 rows and 1,579,008 bytes in float32, for at most 512 tokens",
        "Positions by roberta: Tokens are counted from pad_token_id + 1"]),
    ({"model_type": "whisper", "max_source_positions": 1500}, "", [
        "max_source_positions is 1,500: a table up to there has 1,500 rows and 2,304,000 bytes in float32"]),
    ({"model_type": "bloom", "n_head": 8}, "", ["A bias is a slope times a distance: it has no last position."]),
    ({"model_type": "t5"}, "", ["Distances from 128 (max_distance) on have the last bucket: there is no last position."]),
])
def test_how_far_each_encoding_reaches(client, config, layer_type, said):
    layers = [layer for layer in explain(client, json.dumps(config).encode()) if layer.layer_type == layer_type]
    assert layers
    for layer in layers:
        words = " ".join(layer.text[0].sentence)
        assert [part for part in said if part not in words] == []


def test_a_window_is_said_only_of_layers_that_have_it(client):
    unused = {**LLAMA, "model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}
    for layer in [*explain(client, json.dumps(GEMMA).encode()), *explain(client, json.dumps(unused).encode())]:
        assert any("Attention reaches" in said for said in layer.text[0].sentence) == (layer.layer_type == "sliding_attention")


def rotary_in_words(client, rope_parameters, seq_len=(), **settings):
    rotary = rotary_pb2.RotarySettings(rope_parameters=rotary_pb2.RopeParameters(rope_theta=10000, **rope_parameters),
                                       input_pairing=rotary_pb2.PAIRING_HALF_SPLIT, rotary_dim=8, **settings)
    [layer] = client.call("Explain", service_pb2.ExplainRequest(rotary=rotary, seq_len=seq_len)).layers
    return layer.text[0].sentence


def test_only_a_mixture_of_kept_and_slowed_is_called_blended(client):
    # Other bases and lists of factors can have a pair with 1/factor, too.
    assert "Pair 0 kept, pairs 1-2 slowed 1.26 to 1.587 times, pair 3 slowed 2 times." in rotary_in_words(
        client, {"rope_type": "dynamic", "factor": 2}, [150], max_position_embeddings=100)
    assert "Pair 0 kept, pair 1 slowed 4 times, pairs 2-3 slowed 2.5 to 3 times." in rotary_in_words(
        client, {"rope_type": "longrope", "factor": 4, "original_max_position_embeddings": 64,
                 "short_factor": [1] * 4, "long_factor": [1, 4, 2.5, 3]}, [100])


def test_frequencies_above_the_unscaled_ones_are_sped_up(client):
    assert "Pairs 0-3 sped up 4 times." in rotary_in_words(client, {"rope_type": "linear", "factor": 0.25})
    factors = {"rope_type": "longrope", "factor": 4, "original_max_position_embeddings": 64, "short_factor": [1] * 4}
    assert "Pairs 0-3 sped up 2 to 5 times." in rotary_in_words(
        client, {**factors, "long_factor": [0.5, 0.2, 0.5, 0.5]}, [100])
    assert "Pairs 0-3 have their frequencies times 0.5 to 2." in rotary_in_words(
        client, {**factors, "long_factor": [0.5, 2, 0.5, 0.5]}, [100])


@pytest.mark.parametrize("longest, original, said", [
    # As many files have it: the length before the scaling.
    (32768, 32768, ["max_position_embeddings is 32,768; its factor 4 makes 131,072 of it."]),
    (40960, 32768, ["max_position_embeddings is 40,960; before the scaling 32,768, and its factor 4 makes 131,072 of it."]),
    (131072, 32768, ["max_position_embeddings is 131,072; before the scaling 32,768."]),
    (1000, 4096, []),
    (-5, None, []),
])
def test_lengths_in_words(client, longest, original, said):
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": original}
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 1, "num_hidden_layers": 1,
              "max_position_embeddings": longest, **({"rope_scaling": scaling} if original else {})}
    [layer] = explain(client, json.dumps(config).encode())
    assert [sentence for sentence in layer.text[0].sentence if "max_position_embeddings" in sentence] == said


@pytest.mark.parametrize("config, rotates, said", [
    ({"model_type": "llama4_text", "num_hidden_layers": 4}, False,
     "Queries from index in the cache 8,191 on are multiplied, by 1.069 there and by 1.283 at 131,071."),
    ({"model_type": "ministral3", "max_position_embeddings": 262144}, True,
     "Queries from position 16,384 on are multiplied, by 1.069 there and by 1.277 at 262,143."),
    ({"model_type": "beam", "num_hidden_layers": 6}, False,
     "Queries from position 0 on are multiplied, by 1.518 at 131,071."),
])
def test_queries_in_words(client, config, rotates, said):
    layers = explain(client, json.dumps(config).encode())
    (scaled,) = (layer for layer in layers if layer.info.plan.rotary.HasField("query_scale"))
    assert said in scaled.text[0].sentence
    assert scaled.info.rotated == rotates
    assert "QUERY_SCALE" in [note.code for note in scaled.info.notes]


def test_the_bias_of_inkling(client):
    config = {"model_type": "inkling2", "text_config": {"model_type": "inkling2_text", "num_hidden_layers": 6},
              "vision_config": {"model_type": "inkling2_vision"}}
    sliding, full, vision = explain(client, json.dumps(config).encode())
    assert [layer.layer_type for layer in (sliding, full)] == ["hybrid_sliding", "hybrid"]
    assert vision.component == "vision" and vision.info.plan.HasField("rotary")
    assert not sliding.info.plan.relative.inkling.HasField("log_scaling_alpha")
    assert full.info.plan.relative.inkling.log_scaling_n_floor == 128000
    said = {note.code: note.message for note in full.info.notes}
    assert "proj, [16, 1024]" in said["WEIGHTS"] and "from position 128000 on" in said["QUERY_SCALE"]


def test_the_command_prints_words_picture_and_numbers(posenc, configs):
    printed = posenc("explain", "--model", configs / "llama-3.1-8b.json").stdout
    assert "Pairs 0-28 kept, pairs 29-34 blended" in printed
    assert f"pair 0 [{'#' * 29}{'+' * 6}{'.' * 29}] 63" in printed
    assert "0.8146172338" in printed, "the frequency of pair 1 is 500000^(-1/64)"
    yarn = posenc("explain", "--model", configs / "qwen2.5-7b-instruct-yarn.json").stdout
    assert "scores by 1.29648" in yarn and "attention scaling                 1.138629436" in yarn

"""posenc.torch.check: right models of many families pass, and published faults, rebuilt with transformers itself, are found."""

import copy
import json
import pathlib
import re

import numpy
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import posenc  # noqa: E402
import posenc.torch  # noqa: E402
from rotary_models import EXPERTS, GROUPED, LATENT, MODELS, TINY, config_of, model_of  # noqa: E402

ENCODER_DECODER = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
                   "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 99}
T5 = {"d_model": 32, "num_layers": 2, "num_heads": 2, "d_kv": 16, "d_ff": 32, "vocab_size": 99}
VISION = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
MROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
OTHERS = {
    "bloom": {"hidden_size": 48, "n_layer": 2, "n_head": 12, "vocab_size": 99},
    "mpt": {"d_model": 48, "n_heads": 6, "n_layers": 2, "vocab_size": 99},
    "falcon alibi": {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "vocab_size": 99, "alibi": True},
    "t5": T5, "umt5": T5, "mt5": T5, "longt5": T5,
    "mpnet": TINY,
    "bert": TINY, "roberta": TINY, "modernbert": MODELS["modernbert"],
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2},
    "opt": {"hidden_size": 32, "word_embed_proj_dim": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 32,
            "vocab_size": 99},
    "gptj": {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "vocab_size": 99},
    "whisper": {**ENCODER_DECODER, "pad_token_id": 0},
    "pegasus": {**ENCODER_DECODER, "max_position_embeddings": 64},
    "m2m_100": {**ENCODER_DECODER, "max_position_embeddings": 64},
    "modernbert-decoder": {**TINY, "layer_types": ["full_attention", "sliding_attention"]},
    "distilbert": {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "sinusoidal_pos_embds": True},
    "vit": VISION, "clip_vision_model": VISION,
    "llama4_text": {**GROUPED, "head_dim": 16, "num_local_experts": 2, "intermediate_size_mlp": 32},
    "qwen2_vl_text": {**GROUPED, "rope_parameters": MROPE},
    "glm4": {**GROUPED, "head_dim": 16},
    "qwen3_moe": {**GROUPED, **EXPERTS, "head_dim": 16, "num_experts": 4},
    "deepseek_v2": {**LATENT, **TINY, "first_k_dense_replace": 1},
}


def other(name, **fields):
    torch.manual_seed(20261130)
    config = transformers.AutoConfig.for_model(name.split()[0], **{**OTHERS[name], **fields})
    return transformers.AutoModel.from_config(config).eval()


def only_difference(model):
    """Returns the words of the only finding that differs."""
    report = posenc.torch.check(model)
    (finding,) = report.of("differs")
    assert not report.ok
    with pytest.raises(posenc.torch.CheckError) as raised:
        report.raise_for_status()
    assert str(raised.value) == str(report)
    return " ".join(finding.details)


@pytest.mark.parametrize("name", [*MODELS, *(name for name in OTHERS if name not in MODELS)])
def test_right_models_pass(name):
    model = model_of(name) if name in MODELS else other(name)
    report = posenc.torch.check(model)
    report.raise_for_status()
    assert report.ok and report.of("ok")
    # Falcon has a rotary module also if its config says ALiBi; no layer uses it.
    assert not report.of("not understood") or name == "falcon alibi"


def test_right_ways_to_load(tmp_path):
    """bfloat16 weights leave frequencies in float32; adding a head, half of the layers, and no gradients change nothing."""
    model_of("llama").save_pretrained(tmp_path)
    other("whisper").save_pretrained(tmp_path / "whisper")
    for loaded in (transformers.AutoModel.from_pretrained(tmp_path, dtype=torch.bfloat16),
                   transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float16),
                   transformers.AutoModel.from_pretrained(tmp_path / "whisper", dtype=torch.bfloat16)):
        with torch.no_grad():
            assert posenc.torch.check(loaded).of("ok")
        posenc.torch.check(torch.nn.ModuleDict({"wrapped": loaded})).raise_for_status()
    replaced = model_of("llama")
    posenc.torch.replace(replaced)
    posenc.torch.check(replaced).raise_for_status()


def test_nothing_is_changed():
    """Neither buffers nor flags, also of dynamic frequencies, and random numbers go on as they would."""
    for name in ("llama dynamic", "phi3", "gemma3_text"):
        model = model_of(name).train()
        arguments = ("full_attention",) if name == "gemma3_text" else ()
        model.rotary_emb(torch.zeros(1, 1), torch.arange(900)[None], *arguments)
        before = {name: (tensor, tensor.clone()) for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
        flags = {name: copy.copy(value) for name, value in vars(model.rotary_emb).items() if isinstance(value, (int, float, str))}
        state, config = torch.get_rng_state(), model.config.to_dict()
        posenc.torch.check(model).raise_for_status()
        assert torch.equal(torch.get_rng_state(), state) and model.config.to_dict() == config and model.training
        after = dict([*model.named_parameters(), *model.named_buffers()])
        assert all(after[name] is tensor and torch.equal(tensor, values) for name, (tensor, values) in before.items())
        assert all(getattr(model.rotary_emb, name) == value for name, value in flags.items())


def with_frequencies(model, change):
    for name, buffer in model.rotary_emb.named_buffers():
        if name.endswith("inv_freq"):
            buffer.copy_(change(buffer))
    return model


NEVER_INITIALISED = {
    "NaN": (lambda old: torch.full_like(old, torch.nan), "8 of 8 values that are NaN or infinite"),
    "zeros": (torch.zeros_like, "has only zeros"),
    "pointers": (lambda old: torch.arange(old.numel()) * 1e-30 + 3e-41, "largest error of an angle: 255 radians at position 255"),
}


@pytest.mark.parametrize("memory", NEVER_INITIALISED)
def test_frequencies_lost_on_the_meta_device(memory):
    """https://github.com/huggingface/transformers/issues/45902: to_empty() leaves inv_freq, which is in no checkpoint, as is."""
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config_of("llama"))
    assert "inv_freq is still on the meta device" in only_difference(model)
    change, words = NEVER_INITIALISED[memory]
    model.to_empty(device="cpu")
    assert words in only_difference(with_frequencies(model, change))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_frequencies_rounded_with_the_model(dtype):
    """https://github.com/huggingface/transformers/issues/25681: model.to(dtype) rounds inv_freq, and .float() is too late."""
    for model in (model_of("llama").to(dtype), model_of("llama").to(dtype).float()):
        words = only_difference(model)
        assert f"frequencies were rounded to {str(dtype).removeprefix('torch.')}" in words
        assert "radians at position 255, in pair 1" in words


def test_dynamic_frequencies_that_were_not_set_back():
    """https://github.com/huggingface/transformers/pull/46624: the length was stored under another name, and never reset."""
    model = model_of("llama dynamic")
    model.rotary_emb(torch.zeros(1, 1), torch.arange(900)[None])
    posenc.torch.check(model).raise_for_status()  # a short sequence will set them back
    model.rotary_emb.max_seq_len_cached = model.config.max_position_embeddings  # as that version left it
    assert "frequencies are those of a sequence of 900 tokens, not of 255" in only_difference(model)


def test_scaling_that_was_set_after_loading():
    """https://github.com/MakazhanAlpamys/Soup/issues/793: the modules read the config only when they are made."""
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model("llama", **GROUPED))
    model.config.rope_parameters = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
    words = only_difference(model)
    assert "the yarn scaling is missing" in words and "multiplied by 1 instead of 1.13863" in words


def module_of(model, **parameters):
    """Gives the model a rotary module of another config, as a port that reads the config in its own way."""
    config = copy.deepcopy(model.config)
    config.rope_parameters = {**config.rope_parameters, **parameters}
    model.rotary_emb = type(model.rotary_emb)(config)
    return model


def test_theta_that_was_replaced_by_a_default():
    """https://github.com/deepspeedai/DeepSpeed/pull/8345: rope_theta moved, and getattr(config, "rope_theta", 10000) is 10000."""
    model = other("glm4", rope_parameters={"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5})
    assert not hasattr(model.config, "rope_theta")
    wrong = module_of(model, rope_theta=getattr(model.config, "rope_theta", 10000.0))
    assert "rope_theta 10000 was applied, but the settings specify 1000000" in only_difference(wrong)


def test_another_factor():
    """https://github.com/unslothai/unsloth/pull/6925: Llama 3.2's factor of 32 was taken to be Llama 3.1's 8."""
    config = config_of("llama")
    config.rope_parameters["factor"] = 32.0
    model = module_of(transformers.AutoModel.from_config(config), factor=8.0)
    assert "factor 8 was applied, but the settings specify 32" in only_difference(model)


def test_scaling_missing_in_one_type_of_layers():
    """https://github.com/Blaizzy/mlx-vlm/pull/1709: Gemma 3's global layers were not scaled."""
    config = config_of("gemma3_text")
    config.rope_parameters["full_attention"] = {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}
    model = transformers.AutoModel.from_config(config)
    posenc.torch.check(model).raise_for_status()
    model.rotary_emb.full_attention_inv_freq *= 8
    assert "the linear scaling is missing" in only_difference(model)
    assert [one.layer_type for one in posenc.torch.check(model).findings if one.status == "ok"] == ["sliding_attention"]


def test_tables_of_checkpoints():
    """Weights may be stored in 16 bits, and a checkpoint may have been trained with sines in another order."""
    model = other("whisper")
    table = model.encoder.embed_positions.weight
    table.data = table.data.half().float()
    assert posenc.torch.check(model).of("ok")[0].expected == "a fixed table [1500, 32] of sinusoids, TENSOR2TENSOR"
    model = other("pegasus")
    table = model.encoder.embed_positions.weight
    table.data = table.data.reshape(64, 2, 16).transpose(1, 2).reshape(64, 32)
    finding = posenc.torch.check(model).findings[0]
    assert finding.status == "not understood" and "a checkpoint may hold other sines" in finding.details[0]
    table.data = table.data * 0.02
    assert "it is not the table that its class makes" in only_difference(model)


@pytest.mark.parametrize("name", ["distilbert", "pegasus", "whisper"])
def test_sinusoids_that_were_initialised_over(name):
    """https://github.com/huggingface/transformers/issues/29807 and pull/44454: random numbers in a fixed table."""
    model = other(name)
    table = next(module for name, module in model.named_modules()
                 if isinstance(module, torch.nn.Embedding) and name.endswith(("embed_positions", "position_embeddings")))
    torch.nn.init.normal_(table.weight, std=0.02)
    assert "it is not the table that its class makes of the config" in only_difference(model)


def test_slopes():
    """https://github.com/ml-explore/mlx/pull/3071: the paper's sequence for 12 heads; and slopes in bfloat16, and a shard's."""
    def geometric(mask, heads, dtype):
        return (2.0 ** (-8 * torch.arange(1, heads + 1) / heads))[:, None, None] * torch.arange(mask.shape[1]).to(dtype)

    model = other("bloom")
    right = model.build_alibi_tensor
    model.build_alibi_tensor = geometric
    assert "slopes of 12 of 12 heads differ" in only_difference(model)
    model.build_alibi_tensor = lambda mask, heads, dtype: right(mask, heads, torch.bfloat16)
    assert "slopes of 4 of 12 heads differ: 0.707031 instead of 0.707107 in head 8: they were rounded to bfloat16" in only_difference(
        model)
    model.build_alibi_tensor, model.num_heads = right, 6
    assert "its bias has 6 heads; the config has 12" in only_difference(model)


def test_buckets():
    """Another distance, a decoder that looks both ways, and a table of other buckets."""
    model = other("t5", relative_attention_max_distance=256)
    attention = model.encoder.block[0].layer[0].SelfAttention
    attention.relative_attention_max_distance = 128
    assert "relative_attention_max_distance is 128; its class makes 256" in only_difference(model)
    model = other("t5")
    attention = model.decoder.block[0].layer[0].SelfAttention
    right = attention._relative_position_bucket
    attention._relative_position_bucket = lambda distance, **fields: right(distance, **{**fields, "bidirectional": True})
    assert "32 buckets up to a distance of 128, in both directions" in only_difference(model)
    model = other("t5")
    model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias = torch.nn.Embedding(16, 2)
    assert "[16, 2]; its class makes [32, 2]" in only_difference(model)


def test_rows_and_values_of_learned_tables():
    model = other("bert")
    model.embeddings.position_embeddings = torch.nn.Embedding(128, 64)
    assert "its shape is [128, 64]; its class makes [256, 64] of the config" in only_difference(model)
    model = other("vit")
    with torch.no_grad():
        model.embeddings.position_embeddings[0, 3] = torch.nan
    assert "32 of 6304 values that are NaN or infinite" in only_difference(model)


def test_tables_that_the_class_leaves_at_zero():
    """ViT-MAE of transformers 5.24, made from a config: the initialisation of its sines returns early."""
    config = transformers.AutoConfig.for_model("vit_mae", **VISION)
    model = transformers.AutoModel.from_config(config)
    if model.embeddings.position_embeddings.any():
        pytest.skip("this release initialises the table")
    assert "it has only zeros, and is not trained" in only_difference(model)


def test_tables_of_gpt_j():
    model = other("gptj")
    model.rotary_emb.embed_positions = model.rotary_emb.embed_positions.bfloat16()
    assert "they were rounded to bfloat16" in only_difference(model)


def test_the_report():
    report = posenc.torch.check(model_of("gemma3_text").to(torch.bfloat16))
    assert str(report).count("rotary_emb [") == 2 and "0 ok, 2 differs, 0 not understood" in str(report)
    read = json.loads(report.to_json())
    assert read == report.to_dict() and read["ok"] is False
    assert [one["layer_type"] for one in read["findings"]] == ["full_attention", "sliding_attention"]
    assert read["findings"][0]["inv_freq"] == report.findings[0].inv_freq.tolist()
    with torch.device("meta"):
        lost = transformers.AutoModel.from_config(config_of("llama"))
    lost.to_empty(device="cpu")
    assert json.loads(posenc.torch.check(with_frequencies(lost, NEVER_INITIALISED["NaN"][0])).to_json())["findings"][0][
        "inv_freq"] == [None] * 8


def test_evidence_for_other_methods():
    """What a finding holds is what diagnose takes, with the same verdict."""
    right, rounded = model_of("llama"), model_of("llama").to(torch.bfloat16)
    with posenc.local() as client:
        for model, kind in ((right, "MATCHES"), (rounded, "DIFFERS")):
            (finding,) = posenc.torch.check(model).findings
            assert finding.table["cos"].shape == (len(finding.positions), 16) and finding.inv_freq.dtype == numpy.float32
            assert client.diagnose(model=model.config, inv_freq=finding.inv_freq).verdict.kind == kind
            assert client.diagnose(model=model.config, table=finding.table, positions=finding.positions).verdict.kind == kind
        given = {"rotary": {"given_frequencies": {"inv_freq": finding.inv_freq}, "rotary_dim": 16, "input_pairing": "HALF_SPLIT"}}
        assert not client.compare(given, right.config).same


def test_parts():
    mrope = {"text_config": {**GROUPED, "rope_parameters": MROPE},
             "vision_config": {"embed_dim": 64, "hidden_size": 64, "num_heads": 4, "depth": 2, "patch_size": 4}}
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model("qwen2_vl", **mrope))
    both = posenc.torch.check(model)
    both.raise_for_status()
    names = {part: [one.name for one in posenc.torch.check(model, part).findings] for part in ("text", "vision")}
    assert names["text"] and names["vision"] and sorted(names["text"] + names["vision"]) == sorted(one.name for one in both.findings)
    with pytest.raises(ValueError, match="component: is 'audio'; must be a part of the model"):
        posenc.torch.check(model, "audio")


class Foreign(torch.nn.Module):
    """A rotary module of another package, with another forward."""

    def __init__(self, theta):
        super().__init__()
        self.inv_freq = torch.nn.Buffer(1 / theta ** (torch.arange(0, 32, 2) / 32), persistent=False)

    def forward(self, x, seq_len):
        raise NotImplementedError


def test_modules_of_other_packages_in_a_model():
    """Their frequencies are compared, and a module that is added, wrapped or emptied is not accused."""
    model = model_of("qwen3")
    model.rotary_emb = Foreign(1e4)
    (finding,) = posenc.torch.check(model).findings
    assert finding.status == "ok" and finding.class_name == "Foreign"
    model.rotary_emb = Foreign(5e5)
    assert "rope_theta 500000 was applied, but the settings specify 10000" in only_difference(model)
    model = other("bert")
    model.embeddings.position_embeddings.weight.data = torch.empty(0)  # as ZeRO and FSDP leave it
    (finding,) = posenc.torch.check(model).findings
    assert finding.status == "not understood" and "its values are elsewhere" in finding.details[0]
    model = other("bert").to("meta")
    model.embeddings.position_embeddings._hf_hook = object()  # as accelerate marks what it offloads
    (finding,) = posenc.torch.check(model).findings
    assert finding.status == "not understood" and finding.details == ["its values are offloaded, and were not looked at"]


def test_what_is_not_understood_is_said():
    class OtherRotaryEmbedding(torch.nn.Module):
        config = config_of("llama")

        def forward(self, x, position_ids):
            return x, x

    report = posenc.torch.check(torch.nn.Sequential(OtherRotaryEmbedding(), model_of("llama")))
    assert [one.status for one in report.findings] == ["not understood", "ok"] and report.ok
    assert "none of the model's tables" in report.findings[0].details[0]
    with pytest.raises(ValueError, match="the model has no module that encodes positions"):
        posenc.torch.check(torch.nn.Linear(2, 2))


def diffusion(name):
    diffusers = pytest.importorskip("diffusers")
    fields = {"num_layers": 1, "num_attention_heads": 2, "attention_head_dim": 24, "in_channels": 4, "out_channels": 4}
    more = {"WanTransformer3DModel": {"ffn_dim": 32, "text_dim": 16, "freq_dim": 16},
            "FluxTransformer2DModel": {"num_single_layers": 1, "axes_dims_rope": (4, 10, 10), "joint_attention_dim": 16,
                                       "pooled_projection_dim": 16},
            "QwenImageTransformer2DModel": {"axes_dims_rope": (4, 10, 10), "joint_attention_dim": 16}}
    return getattr(diffusers, name)(**fields, **more[name])


@pytest.mark.parametrize("name", ["FluxTransformer2DModel", "QwenImageTransformer2DModel", "WanTransformer3DModel"])
def test_diffusion_models(name):
    (finding,) = posenc.torch.check(diffusion(name)).findings
    assert finding.status == "ok", finding


def test_faults_of_diffusion_models():
    wan = diffusion("WanTransformer3DModel")
    wan.rope.freqs_sin.zero_()
    assert "freqs_sin has only zeros" in only_difference(wan)
    flux = diffusion("FluxTransformer2DModel")
    flux.pos_embed.theta = 500
    assert "theta is 500; its class makes 10000 of the config" in only_difference(flux)


def test_modules_of_vllm():
    config = transformers.AutoConfig.for_model("llama", **{**MODELS["llama"], "hidden_size": 256})
    try:
        from vllm.config import VllmConfig, set_current_vllm_config
        from vllm.model_executor.layers.rotary_embedding import get_rope
    except ImportError:
        assert "vLLM cannot be imported here" in posenc.torch.check(model_of("llama")).notes[0]
        return
    for parameters, status in ((config.rope_parameters, "ok"), ({"rope_type": "default", "rope_theta": 5e5}, "differs")):
        holder = torch.nn.Module()
        with set_current_vllm_config(VllmConfig()):
            holder.rotary_emb = get_rope(64, max_position=256, rope_parameters=parameters, dtype=torch.float32)
        holder.config = config
        (finding,) = posenc.torch.check(holder).findings
        assert finding.status == status
    assert "the llama3 scaling is missing" in finding.details[0]


def test_the_page(capsys):
    """The examples of docs/torch-check.md run, and print what the page shows."""
    page = (pathlib.Path(__file__).parents[3] / "docs/torch-check.md").read_text()
    blocks = re.findall(r"```(\w*)\n(.*?)```", page, re.DOTALL)
    names = {}
    for language, text in blocks:
        if language == "python":
            exec(text, names)
        else:
            shown = [line for line in text.splitlines() if not line.startswith("vLLM")]
            assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith("vLLM")] == shown
    assert len(blocks) == 4

"""posenc.torch beside transformers' own modules: ten model types with random weights."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import posenc  # noqa: E402
import posenc.torch  # noqa: E402

TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128,
        "max_position_embeddings": 256, "pad_token_id": 0}
GROUPED = {**TINY, "num_key_value_heads": 2}
MODELS = {
    "llama": {**GROUPED, "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0,
                                             "original_max_position_embeddings": 64, "low_freq_factor": 1.0,
                                             "high_freq_factor": 4.0}},
    "qwen3": {**GROUPED, "head_dim": 32},
    "gemma3_text": {**GROUPED, "head_dim": 16, "num_hidden_layers": 6, "sliding_window": 32},
    "phi3": {**GROUPED, "original_max_position_embeddings": 64,
             "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0 + n / 8 for n in range(8)],
                                 "long_factor": [1.0 + n for n in range(8)], "original_max_position_embeddings": 64}},
    "mistral": {**GROUPED, "head_dim": 16},
    "gpt_neox": {**TINY, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "glm": {**GROUPED, "head_dim": 16},
    "cohere": GROUPED,
    "gpt_oss": {**GROUPED, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo2": GROUPED,
    "smollm3": {**GROUPED, "num_hidden_layers": 4},
    "deepseek_v3": {**GROUPED, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
                    "topk_group": 1, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                    "v_head_dim": 16, "moe_intermediate_size": 32, "first_k_dense_replace": 1},
    "modernbert": {**TINY, "num_hidden_layers": 4},
}


def config_of(model_type):
    return transformers.AutoConfig.for_model(model_type, **MODELS[model_type])


def rotary_modules(model):
    return {name: module for name, module in model.named_modules() if "RotaryEmbedding" in type(module).__name__}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(20261124)
    return transformers.AutoModel.from_config(config_of(request.param)).eval()


def calls(module):
    """Yields the further arguments of each kind of the module's calls."""
    layers = getattr(module, "_layers", {None: None})
    for layer_type in layers:
        yield () if layer_type is None else (layer_type,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_shapes_and_types_are_the_originals(model, dtype):
    originals = rotary_modules(model)
    assert originals
    ids = torch.tensor([[0, 1, 2, 40], [7, 8, 9, 10]])
    x = torch.zeros(2, 4, 64, dtype=dtype)
    for original in originals.values():
        ours = posenc.torch.RotaryEmbedding(original.config, original)
        for arguments in calls(ours):
            for got, expected in zip(ours(x, ids, *arguments), original(x, ids, *arguments), strict=True):
                assert got.shape == expected.shape and got.dtype == expected.dtype
                assert torch.allclose(got.float(), expected.float(), rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-2)


def test_values_are_the_exact_tables(model):
    """The modules return the numbers of the exact table, also where float32's angles are far off."""
    ids = torch.tensor([[0, 3, 120, 9_999_999]])
    for original in rotary_modules(model).values():
        ours = posenc.torch.RotaryEmbedding(original.config, original)
        for arguments in calls(ours):
            layers = ours._layers[arguments[0] if arguments else None]
            cos, sin = ours(torch.zeros(1, 1), ids, *arguments)
            frequencies = torch.tensor(layers.inv_freq, dtype=torch.float64)
            if layers.needs_length:
                info = posenc.torch._default_client().table(
                    model=layers.model, positions=layers.fields(ids[0]), dtype="FP64", form="HALF_WIDTH",
                    hints={"return_plan": True}).info
                frequencies = torch.tensor(info.plan.frequencies[0].inv_freq, dtype=torch.float64)
            # float64's own error of an angle of 1e7 is below 1e-8.
            angles = ids[0, :, None].double() * frequencies
            half = {"DUPLICATED": slice(None, len(frequencies)), "HALF_WIDTH": slice(None),
                    "REPEAT_INTERLEAVED": slice(None, None, 2)}[layers.form]
            assert torch.allclose(cos[0, :, half].double(), layers.attention_scaling * angles.cos(), rtol=0, atol=1e-7)
            assert torch.allclose(sin[0, :, half].double(), layers.attention_scaling * angles.sin(), rtol=0, atol=1e-7)


def test_a_replaced_model_gives_nearly_the_same_states(model):
    tokens = torch.arange(24).reshape(1, 24)
    with torch.no_grad():
        before = model(tokens).last_hidden_state
        done = posenc.torch.replace(model)
        after = model(tokens).last_hidden_state
    assert done.replaced and not done.kept
    assert all(isinstance(module, posenc.torch.RotaryEmbedding) for module in rotary_modules(model).values())
    assert torch.allclose(before, after, rtol=0, atol=1e-4)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "cohere"])
def test_a_config_alone_is_enough(model_type):
    ours = posenc.torch.RotaryEmbedding(config_of(model_type))
    arguments = next(iter(calls(ours)))
    cos, sin = ours(torch.zeros(1, 2, 8), torch.tensor([[0, 1]]), *arguments)
    assert cos.shape == sin.shape == (1, 2, 16)
    assert bool((cos[0, 0] == 1).all()) and bool((sin[0, 0] == 0).all())


def test_several_axes():
    """Qwen2-VL's positions have three axes."""
    config = transformers.AutoConfig.for_model("qwen2_vl_text", **{
        **GROUPED, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}})
    original = transformers.models.qwen2_vl.modeling_qwen2_vl.Qwen2VLRotaryEmbedding(config)
    ours = posenc.torch.RotaryEmbedding(config, original)
    ids = torch.tensor([[[0, 5, 6]], [[0, 9, 9]], [[0, 2, 3]]])
    for got, expected in zip(ours(torch.zeros(1, 3, 8), ids), original(torch.zeros(1, 3, 8), ids), strict=True):
        assert got.shape == expected.shape and torch.allclose(got, expected, rtol=0, atol=1e-5)


def test_what_is_not_known_is_kept_and_named():
    class OtherRotaryEmbedding(torch.nn.Module):
        config = config_of("llama")

        def forward(self, x, position_ids):
            return x, x

    model = torch.nn.Sequential(OtherRotaryEmbedding())
    with pytest.raises(ValueError, match="no rotary module was replaced.*in no form"):
        posenc.torch.replace(model)
    with pytest.raises(ValueError, match="the model has none"):
        posenc.torch.replace(torch.nn.Linear(2, 2))

"""posenc.torch beside transformers' own modules."""

import importlib
import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import posenc  # noqa: E402
import posenc.torch  # noqa: E402
from rotary_models import GROUPED, MODELS, config_of, model_of, rotary_modules  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402


@pytest.fixture(params=MODELS)
def model(request):
    return model_of(request.param)


def calls(module):
    """Yields the further arguments of each kind of the module's calls."""
    for layer_type in module._tables:
        yield () if layer_type is None else (layer_type,)


def original_of(name, part, **fields):
    """Makes a rotary module of transformers by its names: model type and class, with its default configuration."""
    package = f"transformers.models.{name}"
    config = getattr(importlib.import_module(f"{package}.configuration_{name}"), f"{part}Config")(**fields)
    return getattr(importlib.import_module(f"{package}.modeling_{name}"), f"{part}RotaryEmbedding")(config)


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
            table = json.loads(ours._tables[arguments[0] if arguments else None])
            cos, sin = ours(torch.zeros(1, 1), ids, *arguments)
            positions = {"ids": ids[0]}
            if table["needs_length"]:
                positions |= {"scaling_length_rule": "GIVEN", "seq_len": [10_000_000]}
            with posenc.local() as client:
                info = client.table(settings=table["rotary"], positions=positions, dtype="FP64", form="HALF_WIDTH",
                                    hints={"return_plan": True}).info
            frequencies = torch.tensor(info.plan.frequencies[0].inv_freq, dtype=torch.float64)
            # float64's own error of an angle of 1e7 is below 1e-8.
            angles, scaling = ids[0, :, None].double() * frequencies, info.sequences[0].attention_scaling
            half = {"DUPLICATED": slice(None, len(frequencies)), "HALF_WIDTH": slice(None),
                    "REPEAT_INTERLEAVED": slice(None, None, 2)}[table["form"]]
            assert torch.allclose(cos[0, :, half].double(), scaling * angles.cos(), rtol=0, atol=1e-7)
            assert torch.allclose(sin[0, :, half].double(), scaling * angles.sin(), rtol=0, atol=1e-7)


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


OTHERS = [("deepseek_v4", "DeepseekV4"), ("nanochat", "NanoChat"), ("lfm3", "Lfm3"), ("beam", "Beam"), ("llama4", "Llama4Text"),
          ("csm", "Csm"), ("granite_swa", "GraniteSWA")]


@pytest.mark.parametrize(("name", "part"), OTHERS)
def test_modules_of_other_interfaces(name, part):
    """Types that are no layers', layers without rotation, turns backwards, complex answers, several parts."""
    original = original_of(name, part)
    ours = posenc.torch.RotaryEmbedding(original.config, original)
    x, ids = torch.zeros(2, 3, 8), torch.tensor([[0, 5, 9], [1, 30, 2]])
    for arguments in calls(ours):
        got, expected = ours(x, ids, *arguments), original(x, ids, *arguments)
        if isinstance(expected, torch.Tensor):
            got, expected = (got.real, got.imag), (expected.real, expected.imag)
        for one, other in zip(got, expected, strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            assert torch.allclose(one, other, rtol=0, atol=1e-5)


GRIDS = [("qwen2_vl", "Qwen2VLVision", (5, 2)), ("qwen3_vl", "Qwen3VLVision", (5, 2)), ("pixtral", "PixtralVision", (5, 2)),
         ("glm4v", "Glm4vVision", (5, 2)), ("mlcd", "MLCD", (5, 2)), ("kimi_k25", "Kimi_K25Vision", (5, 2)),
         ("step3p7", "Step3p7Vision", (5, 2)), ("inkling2", "Inkling2Vision", (5, 2)), ("sam3", "Sam3ViT", (5, 2)),
         ("gemma4", "Gemma4Vision", (2, 5, 2)), ("minimax_m3_vl", "MiniMaxM3VLVision", (5, 3))]


@pytest.mark.parametrize(("name", "part", "shape"), GRIDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_grids_of_vision_towers(name, part, shape, dtype):
    config = {"mlcd": "MLCDVision"}.get(name, part)
    package = f"transformers.models.{name}"
    settings = getattr(importlib.import_module(f"{package}.configuration_{name}"), f"{config}Config")()
    original = getattr(importlib.import_module(f"{package}.modeling_{name}"), f"{part}RotaryEmbedding")(settings)
    ours = posenc.torch.RotaryEmbedding(settings, original)
    ids = torch.randint(0, 40, shape, generator=torch.Generator().manual_seed(7))
    x = torch.zeros(1, 5, 8, dtype=dtype)
    for got, expected in zip(ours(x, ids), original(x, ids), strict=True):
        assert got.shape == expected.shape and got.dtype == expected.dtype
        assert torch.allclose(got.float(), expected.float(), rtol=0, atol=1e-4 if got.dtype == torch.float32 else 1e-2)


def test_several_axes():
    """Positions of Qwen2-VL's text have three axes, NeoMME's two, or one for all."""
    mrope = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}}
    config = transformers.AutoConfig.for_model("qwen2_vl_text", **{**GROUPED, **mrope})
    qwen = transformers.models.qwen2_vl.modeling_qwen2_vl.Qwen2VLRotaryEmbedding(config)
    three = torch.tensor([[[0, 5, 6]], [[0, 9, 9]], [[0, 2, 3]]])
    for original, ids in ((qwen, three), (original_of("neomme", "NeoMME"), three[:2])):
        ours = posenc.torch.RotaryEmbedding(original.config, original)
        for arguments in calls(ours):
            for many in (ids, ids[:1].expand_as(ids)):
                for got, expected in zip(ours(torch.zeros(1, 3, 8), many, *arguments),
                                         original(torch.zeros(1, 3, 8), many, *arguments), strict=True):
                    assert got.shape == expected.shape and torch.allclose(got, expected, rtol=0, atol=1e-5)
            one_for_all = ours(torch.zeros(1, 3, 8), ids[0], *arguments)[0]
            assert torch.equal(one_for_all, ours(torch.zeros(1, 3, 8), ids[:1].expand_as(ids), *arguments)[0])
    with pytest.raises(ValueError, match=r"position_ids: is of shape \[5, 1, 3\]; must have 3 axes in its first dimension"):
        posenc.torch.RotaryEmbedding(config, qwen)(torch.zeros(1, 3, 8), three[[0, 1, 2, 0, 1]])


def vision_language_model():
    mrope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    config = transformers.AutoConfig.for_model(
        "qwen2_vl", text_config={**GROUPED, "rope_parameters": mrope},
        vision_config={"embed_dim": 64, "hidden_size": 64, "num_heads": 4, "depth": 2, "patch_size": 4})
    return transformers.AutoModel.from_config(config)


@pytest.mark.parametrize("component", [None, "text", "vision"])
def test_one_part_of_a_model(component):
    model = vision_language_model()
    parts = {name: "vision" if "Vision" in type(module).__name__ else "text" for name, module in rotary_modules(model).items()}
    assert set(parts.values()) == {"text", "vision"}
    done = posenc.torch.replace(model, component)
    assert set(done.replaced) == {name for name, part in parts.items() if component in (None, part)} and not done.kept
    assert posenc.torch.RotaryEmbedding(model.config, component="vision")(torch.zeros(1, 8), torch.tensor([[1, 2]]))
    with pytest.raises(ValueError, match="component: is 'audio'; must be a part of the model"):
        posenc.torch.replace(model, "audio")


def test_a_module_of_several_names():
    model = model_of("llama")
    model.other = torch.nn.ModuleList([model.rotary_emb])
    assert posenc.torch.replace(model).replaced == ["rotary_emb", "other.0"]
    assert model.rotary_emb is model.other[0] and isinstance(model.rotary_emb, posenc.torch.RotaryEmbedding)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_fractions_of_positions(dtype):
    original = next(iter(rotary_modules(model_of("qwen3")).values()))
    ours = posenc.torch.RotaryEmbedding(original.config, original)
    ids = torch.tensor([[0.25, 1.5, 7.75]], dtype=dtype)
    for got, expected in zip(ours(torch.zeros(1, 3, 8), ids), original(torch.zeros(1, 3, 8), ids), strict=True):
        assert torch.allclose(got, expected, rtol=0, atol=1e-5)


def test_fractions_beside_a_limit():
    """The long factors begin at the position that is no longer below the original length, as in transformers."""
    for largest in (63.0, 63.5, 64.0):
        original = next(iter(rotary_modules(model_of("phi3")).values()))
        ours = posenc.torch.RotaryEmbedding(original.config, original)
        ids = torch.tensor([[1.0, largest]])
        for got, expected in zip(ours(torch.zeros(1, 2, 8), ids), original(torch.zeros(1, 2, 8), ids), strict=True):
            assert torch.allclose(got, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "part", "shape"), [("llama", "Llama", (2, 3)), ("glm", "Glm", (2, 3)), ("neomme", "NeoMME", (2, 1, 3)),
                                                     ("step3p7", "Step3p7Vision", (3, 2)), ("gemma4", "Gemma4Vision", (1, 3, 2)),
                                                     ("sam3", "Sam3ViT", (3, 2))])
def test_gradients_of_positions(name, part, shape):
    """The operator has a gradient, although the modules, as the originals, pass none on."""
    original = original_of(name, part)
    ours = posenc.torch.RotaryEmbedding(original.config, original)
    ids = (torch.rand(shape, dtype=torch.float64) * 9).requires_grad_()
    for table in ours._tables.values():
        assert torch.autograd.gradcheck(lambda ids, table=table: posenc.torch.rotary_table(ids, table, torch.float64), (ids,),
                                        fast_mode=True)
    arguments = next(iter(calls(ours)))
    assert not any(one.requires_grad for one in ours(torch.zeros(1, 3, 8), ids, *arguments))


def test_models_without_numbers_are_replaced_too():
    """The buffers of a bfloat16, meta or fake model have no frequencies that could be compared."""
    with FakeTensorMode():
        model = model_of("llama")
        assert posenc.torch.replace(model).replaced == ["rotary_emb"]
        assert model(torch.zeros(1, 4, dtype=torch.int64), use_cache=False).last_hidden_state.shape == (1, 4, 64)
    for to in (torch.bfloat16, torch.float16, "meta"):
        model = model_of("llama").to(to)
        assert posenc.torch.replace(model).replaced == ["rotary_emb"]
        assert model.rotary_emb.inv_freq.device.type == ("meta" if to == "meta" else "cpu")


def test_what_is_not_known_is_kept_and_named():
    class OtherRotaryEmbedding(torch.nn.Module):
        config = config_of("llama")

        def forward(self, x, position_ids):
            return x, x

    class FailingRotaryEmbedding(OtherRotaryEmbedding):
        def forward(self, x, position_ids):
            raise AttributeError("no such buffer")

    class SomeRotaryPositionalEmbedding(torch.nn.Module):
        pass

    model = torch.nn.Sequential(OtherRotaryEmbedding(), FailingRotaryEmbedding(), SomeRotaryPositionalEmbedding(), model_of("llama"))
    done = posenc.torch.replace(model)
    assert done.replaced == ["3.rotary_emb"]
    assert "none of the model's tables: for position_ids [1, 4] it returns shapes [[1, 1], [1, 1]]" in done.kept["0"]
    assert "AttributeError: no such buffer" in done.kept["1"]
    assert done.kept["2"] == "SomeRotaryPositionalEmbedding has no config"
    with pytest.raises(ValueError, match="no rotary module was replaced.*in none of the model's tables"):
        posenc.torch.replace(model[:1])
    with pytest.raises(ValueError, match="the model has none"):
        posenc.torch.replace(torch.nn.Linear(2, 2))

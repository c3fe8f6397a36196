"""Compares posenc's table of model types with the installed release of transformers.

Reports the model types that posenc does not know. If a type's configuration class has a rotary embedding, its default
configuration is written as transformers writes it, in full and as the difference from the defaults. posenc and the
release's own modules rotate the same queries, once in float32 and once in bfloat16 with the model's own roundings, and
the results are compared. Composite types are compared part by part. For types whose weights come with the request, it
compares rows of a learned table of the model's size, T5's bias, attention scores with random weights, or Swin v2's
windows; for types that add sines of positions to their input, these sines. It needs no weights of a real model.

scripts/check-model-types runs this program.
"""

import argparse
import collections
import logging
import warnings

import torch
import transformers

import original
import ours
import release
import sines
import weighted

HEADS = 4
POSITIONS = [[0, 1, 2, 5, 17, 40, 41, 90], [0, 3, 2, 9, 11, 23, 1, 60], [0, 7, 1, 4, 12, 31, 8, 77]]
FLOAT32_TOLERANCE = 3e-4  # torch's frequencies may be off by 2 units in the last place, at positions up to 90
BFLOAT16_EQUAL = 0.98  # fraction of elements with equal bits: such frequencies may change a rounding
COLUMNS_FIRST = ("inkling2_vision", "kimi_k25_vision", "step3p5_vision")  # transformers takes rows first
WITHOUT_TIME = ("neomme",)  # transformers has only the last two of three axes
NOT_OF_ATTENTION = ("blt", "musicflamingo")  # have a rope block that does not rotate their queries
# Types that have sines of a grid, and a part with a bias.
BESIDE_A_BIAS = ("grounding-dino", "mask2former", "maskformer", "mm-grounding-dino", "oneformer")
ONE_STACK = ("cpmant", "mpnet", "pix2struct_text_model", "wavlm")  # models of one stack with T5's buckets
# Fields to change if the class's modules cannot run its defaults, or if it has no rotary embedding by default.
SECTIONS = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 12, 12]}
INSTEAD = {
    "cohere_compass_text": {"rope_parameters": {"full_attention": SECTIONS | {"mrope_section": [24, 20, 20]}}},
    "esm": {"position_embedding_type": "rotary"},
    "fun_asr_nano_encoder": {"num_mel_bins": 40},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "glm4v_text": {"rope_parameters": SECTIONS | {"partial_rotary_factor": 0.5}},
    "glm_image_text": {"rope_parameters": SECTIONS | {"partial_rotary_factor": 0.5}},
    "granitemoehybrid": {"position_embedding_type": "rope"},
    "hunyuan_vl_text": {"rope_parameters": SECTIONS | {"mrope_section": [22, 21, 21]}},
    "pix2struct_text_model": {"initializer_range": 0.02},
    "qwen3_omni_moe_talker_text": {"rope_parameters": SECTIONS | {"mrope_section": [12, 10, 10]}},
    "qwen3_omni_moe_text": {"num_attention_heads": 16},
    "qwen4_exp_text": {"rope_parameters": SECTIONS | {"partial_rotary_factor": 0.25, "mrope_section": [12, 10, 10]}},
    "timesfm": {"use_positional_embedding": True},
    "zamba2": {"use_mem_rope": True},
}


class Mismatch(Exception):
    pass


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--posenc", required=True, help="the command to ask")
    arguments.add_argument("names", nargs="*", help="only these model types")
    options = arguments.parse_args()
    quiet()
    posenc = ours.Posenc(options.posenc)
    report = collections.defaultdict(list)
    for name, config_class in release.config_classes().items():
        if options.names and name not in options.names:
            continue
        kind, text = check(posenc, name, config_class)
        report[kind].append(name)
        if kind in ("failed", "not compared"):
            print(f"{name}: {kind}: {text}", flush=True)
    print(f"transformers {transformers.__version__}, {sum(map(len, report.values()))} model types:")
    for kind in ("without settings", "not compared", "unknown"):
        print(f"{kind} ({len(report[kind])}): {' '.join(report[kind])}")
    print(f"{len(report['passed'])} passed, {len(report['failed'])} failed")
    return 1 if report["failed"] else 0


def quiet():
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)


def check(posenc, name, config_class):
    """Returns (passed | failed | not compared | without settings | unknown, reason)."""
    try:
        config = config_class()
        change(config)
        parts = list(rotary_parts(config))
        outcome = ask(posenc, in_short(config))
        if outcome in ("without settings", "unknown"):
            return outcome, ""
        if outcome not in ("selected", "choose"):
            return "failed", outcome
        differs = compare_weighted(posenc, name, config) if outcome == "selected" else None
        if differs is not None:
            return ("failed", differs) if differs else ("passed", "")
        compared = [compare(posenc, config, part) for part in parts]
        if not any(compared):
            return "not compared", "no rotary module of its own was found in the source"
        compare_scaled(posenc, config, parts[0])
        return "passed", ""
    except original.CannotRun as error:
        return "not compared", str(error)
    except (Mismatch, ours.Refused) as error:
        return "failed", str(error)
    except OSError:  # the posenc command cannot be run
        raise
    except Exception as error:  # an error of the release's own code
        return "not compared", f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"


def change(config):
    """Changes a config and its sub-configs so that their modules run and rotate."""
    for name, value in INSTEAD.get(config.model_type, {}).items():
        setattr(config, name, value)
    for below in sub_configs(config).values():
        change(below)


def sub_configs(config):
    found = {field: getattr(config, field, None) for field in getattr(config, "sub_configs", None) or {}}
    return {field: below for field, below in found.items() if below is not None}


def in_short(config):
    """Returns config.json as save_pretrained writes it, without the class's defaults."""
    return config.to_json_string(use_diff=True)


def ask(posenc, text):
    try:
        posenc.explain(text)
        return "selected"
    except ours.Refused as error:
        message = str(error)
        for mark, kind in (("the file has several parts", "choose"), ("the layers differ", "choose"),
                           ("is not known", "unknown"), ("unknown type", "unknown"),
                           ("must have a part", "without settings"), (") has ", "without settings"),
                           ("has no rotary embedding", "without settings"), ("two stacks", "without settings"),
                           ("layers have no bias", "without settings")):
            if mark in message:
                return kind
        return message


class Part:
    """A config within a file, and the component by which posenc names it."""

    def __init__(self, component, config, rotary):
        self.component, self.config, self.rotary = component, config, rotary


def rotary_parts(config, prefix=""):
    """Yields the Parts of a config that rotate: the config itself and its sub-configs."""
    rotaries = [rotary for rotary in release.rotary_of(type(config)) if rotary.embedding]
    # A part without a model_type cannot be identified in a file.
    if rotaries and has_rope(config) and config.model_type and config.model_type not in NOT_OF_ATTENTION:
        yield Part(prefix or "text", config, rotaries[0])
    for field, below in sub_configs(config).items():
        name = field.removesuffix("_config")
        yield from rotary_parts(below, f"{prefix}.{name}" if prefix else name)


def has_rope(config):
    says = (getattr(config, name, None) for name in ("rope_parameters", "rope_theta", "use_rotary_embedding"))
    return any(value not in (None, False, {}) for value in says)


def compare(posenc, config, part):
    """Returns whether there was something to compare. Raises Mismatch unless posenc and the original always agree."""
    try:
        layers = posenc.explain(in_short(config), component=part.component)
    except ours.Refused as error:
        if ") has " in str(error):  # posenc has no settings for this kind of part
            return False
        raise
    in_full = posenc.explain(config.to_json_string(use_diff=False), component=part.component)
    if [layer["info"]["plan_fingerprint"] for layer in layers] != [
            layer["info"]["plan_fingerprint"] for layer in in_full]:
        raise Mismatch(f"{part.component}: the file in full says something else")
    for layer in layers:
        if layer["info"].get("rotated"):
            compare_layer(posenc, in_short(config), part, layer, of_layer(part, layer["layer_type"]))
    return True


def compare_weighted(posenc, name, config):
    """Returns how they differ for types with weights in the request or sines of positions; None for other types."""
    layers = posenc.explain(in_short(config))
    if len({layer["component"] for layer in layers}) > 1:
        return None  # parts are compared one by one
    plan = layers[0]["info"].get("plan", {})
    if "swin_v2" in plan.get("bias", {}):
        return weighted.compare_windows(config, layers)
    if name in ONE_STACK:
        return weighted.compare_stack(posenc, config, in_short(config))
    if "relative" in plan:
        return weighted.compare_scores(posenc, name)
    if name in BESIDE_A_BIAS:
        return sines.compare(posenc, config, {"convention": "GRID_CONVENTION_DETR"})
    if "sinusoidal" in plan or "grid" in plan:
        return sines.compare(posenc, config, plan.get("sinusoidal") or plan["grid"])
    # deberta's default config has no relative term, so its plan is learned; compare its scores too.
    if "learned" in plan:
        return (weighted.compare_scores(posenc, name) or "") + weighted.compare_table(posenc, config, in_short(config))
    return None


def of_layer(part, layer_type):
    blocks = getattr(part.config, "rope_parameters", None) or {}
    nested = any(isinstance(block, dict) for block in blocks.values())
    try:
        return original.Original(part.rotary, part.config, layer_type if nested else None)
    except AttributeError as error:
        raise original.CannotRun(f"{layer_type}: {error}") from error


def compare_scaled(posenc, config, part):
    """Compares again with another theta and a linear scaling in the file, if the model has one part and one block."""
    block = getattr(config, "rope_parameters", None)
    if part.config is not config or not block or block.get("rope_type") != "default" or hasattr(
            config, "layer_rope_theta"):
        return
    config.rope_parameters = block | {"rope_type": "linear", "factor": 4.0, "rope_theta": 54321.0}
    try:
        type(config).from_dict(config.to_dict())
    except Exception:  # of any class: this config class refuses the scaling
        return
    try:
        turned = original.Original(part.rotary, config)
        turned.tables([[0]] * turned.axes, torch.float32)
    except (KeyError, ValueError):
        return  # this class knows no such scaling
    if turned.fixed_positions():
        return  # nor do modules for images
    for layer in posenc.explain(in_short(config), component=part.component):
        if layer["info"].get("rotated"):
            compare_layer(posenc, in_short(config), part, layer, turned)


def compare_layer(posenc, text, part, layer, turned):
    where = f"{part.component or ''} {layer['layer_type']}".strip()
    width = int(layer["info"]["rotary_dim"])
    axis = layer["info"]["plan"]["frequencies"][0]["axis"]
    axes = 1 + max(map(int, axis), default=0)
    without_time = part.config.model_type in WITHOUT_TIME
    if turned.axes != axes - without_time:
        raise Mismatch(f"{where}: {axes} axes, the original has {turned.axes}")
    positions = turned.fixed_positions() or POSITIONS[:axes]
    theirs = positions[::-1] if part.config.model_type in COLUMNS_FIRST else positions[without_time:]
    choice = {"component": part.component, "layer_type": layer["layer_type"] or None}
    for dtype, precision in ((torch.float32, "f32"), (torch.bfloat16, "model")):
        x = torch.randn(1, HEADS, len(positions[0]), width).to(dtype)
        mine = posenc.rotate(text, x, positions, precision, **choice)
        other = turned.rotate(x, theirs)
        if other.shape != mine.shape:
            raise Mismatch(f"{where}: the original does not take a width of {width}")
        if dtype == torch.float32:
            largest = (mine - other).abs().max().item()
            if largest > FLOAT32_TOLERANCE:
                raise Mismatch(f"{where}: float32 differs by {largest:.2g}")
        else:
            equal = (mine == other).float().mean().item()
            if equal < BFLOAT16_EQUAL:
                raise Mismatch(f"{where}: {equal:.1%} of bfloat16 elements are equal")


if __name__ == "__main__":
    raise SystemExit(main())

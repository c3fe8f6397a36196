"""Checks `posenc diagnose` on rotations of transformers' own modules and on typical errors of ports."""

import check_model_types
import original
import release
import torch
from table import Row

TYPES = ("cohere", "deepseek_v3", "ernie4_5", "gemma3_text", "glm4", "gpt_neox", "gpt_oss", "granite", "helium", "llama",
         "mistral", "modernbert", "olmo2", "persimmon", "phi", "phi3", "qwen2", "qwen2_vl_text", "qwen3", "stablelm")
TOKENS, HEADS, OTHER_THETA = 96, 4, 77777.0
SCALINGS = {
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
    "linear": {"factor": 4.0},
}
SCALED = ("llama", "qwen3", "phi")
WHY = "the verdict must name the departures that were made, and no others; torch's cosines are its own"


def rows(program):
    """`program` is the path of the posenc command."""
    with_posenc = check_model_types.ours.Posenc(program)
    classes = release.config_classes()
    for name in TYPES:
        row = Row(name, "transformers", why=WHY)
        run(row, lambda name=name, row=row: check_type(with_posenc, row, classes[name]()))
        yield row
    for name in SCALED:
        for rope_type, parameters in SCALINGS.items():
            row = Row(f"{name}, {rope_type}", "transformers", why=WHY)
            run(row, lambda name=name, row=row, block={"rope_type": rope_type} | parameters: check_scaled(
                with_posenc, row, classes[name](), block))
            yield row


def run(row, check):
    try:
        check()
    except Exception as error:  # a refusal by posenc, or an error of the release's own code
        row.fail(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


def check_type(posenc, row, config):
    """Checks the model's own rotation and wrong variants of it, for every layer type."""
    check_model_types.change(config)
    part, = check_model_types.rotary_parts(config)
    for layer in rotating(posenc, config, part):
        turned = check_model_types.of_layer(part, layer["layer_type"])
        case = Case(posenc, row, config, part, layer)
        case.expect([], turned.rotate)
        case.expect([], turned.rotate, torch.bfloat16)
        case.expect(["POSITIONS"], lambda x, p, turned=turned: turned.rotate(x, shifted(p, 1)))
        case.expect(["DIRECTION"], lambda x, p, turned=turned: turned.rotate(x, [[-n for n in axis] for axis in p]))
        interleaved = layer["info"]["input_pairing"] == "PAIRING_INTERLEAVED"
        if layer["info"]["input_pairing"] == layer["info"]["output_pairing"]:
            case.expect(["PAIRING"], lambda x, p, turned=turned, interleaved=interleaved: other_pairing(
                turned, x, p, interleaved))
    block = getattr(config, "rope_parameters", None)
    if block and block.get("rope_type") == "default":
        wanted = check_model_types.in_short(config)
        config.rope_parameters = block | {"rope_theta": OTHER_THETA}
        turned = original.Original(part.rotary, config)
        case.wanted = wanted
        case.expect(["ROPE_THETA"], turned.rotate)


def check_scaled(posenc, row, config, block):
    """Checks a model with the scaling, one that ignores it, and one that ignores its attention factor."""
    check_model_types.change(config)
    part, = check_model_types.rotary_parts(config)
    plain = original.Original(part.rotary, config)
    # from_dict loads it as a file, which lets the class complete the block.
    config.rope_parameters = {**config.rope_parameters, **block}
    config = type(config).from_dict(config.to_dict())
    part, = check_model_types.rotary_parts(config)
    scaled = original.Original(part.rotary, config)
    layer, = rotating(posenc, config, part)
    case = Case(posenc, row, config, part, layer)
    case.expect([], scaled.rotate)
    case.expect(["SCALING_MISSING"], plain.rotate)
    factor = layer["info"]["sequences"][0]["attention_scaling"]
    if factor != 1:
        case.expect(["ATTENTION_FACTOR"], lambda x, p: scaled.rotate(x, p) / factor)


def rotating(posenc, config, part):
    layers = posenc.explain(check_model_types.in_short(config), component=part.component)
    return [layer for layer in layers if layer["info"].get("rotated")]


class Case:
    def __init__(self, posenc, row, config, part, layer):
        self.posenc, self.row, self.wanted = posenc, row, check_model_types.in_short(config)
        self.width = int(layer["info"]["rotary_dim"])
        axis = layer["info"]["plan"]["frequencies"][0]["axis"]
        self.axes = 1 + max(map(int, axis), default=0)
        self.choice = {"component": part.component, "layer_type": layer["layer_type"] or None}

    def expect(self, codes, rotate, dtype=torch.float32):
        positions = [list(range(TOKENS))] if self.axes == 1 else image()[:self.axes]
        x = torch.randn(1, HEADS, TOKENS, self.width).to(dtype)
        verdict = self.posenc.diagnose(self.wanted, x, rotate(x, positions), positions, **self.choice)
        named = sorted(departure["code"] for fault in verdict.get("faults", []) for departure in fault.get("departures", []))
        matches = verdict["kind"] == "VERDICT_KIND_MATCHES"
        self.row.check(named == sorted(codes) and matches == (not codes),
                       f"{dtype}: {sorted(codes)} expected, {verdict['sentence']!r} said")


def shifted(positions, by):
    return [[n + by for n in axis] for axis in positions]


def image():
    """M-RoPE's positions [temporal, height, width] of text, an image of 5 rows and 12 columns, and text."""
    before, rows, columns = 20, 5, 12
    after = TOKENS - before - rows * columns
    head, tail = range(before), range(before + columns, before + columns + after)
    return [[*head, *[before] * (rows * columns), *tail],
            [*head, *(before + row for row in range(rows) for _ in range(columns)), *tail],
            [*head, *(before + column for _ in range(rows) for column in range(columns)), *tail]]


def other_pairing(turned, x, positions, interleaved):
    """Rotates like a port that uses the other pairing."""
    if interleaved:  # the port takes halves
        swapped = torch.stack(x.chunk(2, -1), -1).flatten(-2)
        return torch.cat(turned.rotate(swapped, positions).unflatten(-1, (-1, 2)).unbind(-1), -1)
    swapped = torch.cat(x.unflatten(-1, (-1, 2)).unbind(-1), -1)
    return torch.stack(turned.rotate(swapped, positions).chunk(2, -1), -1).flatten(-2)

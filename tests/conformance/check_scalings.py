"""Compares each scaling block on each rotary model type of one part that reads it, beyond the trained length."""

import check_model_types
import original
import release
from check_rotary import LARGEST_ANGLE, WHY, WITHIN, Measuring
from table import Row

TRAINED = 64  # positions go up to 90
NO_SCALING = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")  # fields to keep
SCALINGS = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": TRAINED},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": TRAINED},
    "longrope": {"original_max_position_embeddings": TRAINED},
}
BY_LENGTH = {"seq_len": LARGEST_ANGLE}  # the largest position plus one, on which dynamic and longrope depend


def rows(program):
    with Measuring(program) as measuring:
        for rope_type, parameters in SCALINGS.items():
            measuring.row = row = Row(f"rope_type {rope_type}", "transformers, all types", within=WITHIN,
                                      of="1 + the largest angle", why=WHY)
            for name, config_class in release.config_classes().items():
                try:
                    if not scaled(measuring.posenc, config_class, {"rope_type": rope_type} | parameters):
                        continue
                except Exception as error:  # a refusal by posenc, a difference, or an error of the release's own code
                    row.fail(f"{name}: {' '.join(str(error).split())[:200]}")
                else:
                    row.check(True, "")
            yield row


def scaled(posenc, config_class, parameters):
    """Compares the layers if the class reads this block; returns whether it does."""
    try:
        config, part = with_part(config_class())
        original.Original(part.rotary, config)
        plain = posenc.explain(check_model_types.in_short(config), component=part.component)
        pairs = int(next(layer["info"] for layer in plain if layer["info"].get("rotated"))["rotary_dim"]) // 2
    except Exception:  # check_model_types reports errors without a scaling
        return False
    if parameters["rope_type"] == "longrope":
        parameters |= {"short_factor": [1.0 + n / pairs for n in range(pairs)],
                       "long_factor": [2.0 + n / pairs for n in range(pairs)]}
    kept = {name: value for name, value in config.rope_parameters.items() if name in NO_SCALING}
    config.rope_parameters = kept | parameters
    config.max_position_embeddings = TRAINED if parameters["rope_type"] == "dynamic" else 4 * TRAINED
    try:
        config, part = with_part(config_class.from_dict(config.to_dict()))  # it may rewrite or refuse the block
        turned = original.Original(part.rotary, config)
    except Exception:  # this class knows no such scaling
        return False
    if config.rope_parameters["rope_type"] != parameters["rope_type"] or turned.fixed_positions():
        return False
    posenc.by_length = parameters["rope_type"] in ("dynamic", "longrope")
    text = check_model_types.in_short(config)
    for layer in posenc.explain(text, component=part.component, **(BY_LENGTH if posenc.by_length else {})):
        if layer["info"].get("rotated"):
            check_model_types.compare_layer(posenc, text, part, layer, turned)
    return True


def with_part(config):
    """Returns (config, its Part). Raises unless the config itself is the only part and has a block of its own."""
    check_model_types.change(config)
    part, = check_model_types.rotary_parts(config)
    if part.config is not config or "rope_type" not in config.rope_parameters:
        raise check_model_types.Mismatch("the block is a part's, or a layer type's")
    return config, part

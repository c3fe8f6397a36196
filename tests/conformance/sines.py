"""Compares sines and cosines that models add to their input: posenc's by config.json alone, and the release's."""

import inspect

import torch

import original
import weighted

COUNT = 48
HEIGHT, WIDTH = 5, 7
TOLERANCE = 3e-5  # torch's frequencies may be off by 2 units in the last place, at positions below COUNT
TABLES = ("weights", "positional_embedding", "pos_encoding", "position_embeddings", "weight")
WHICH = {"maskformer": {"component": "text"}}  # its decoder is a DETR model
# A file must give both of these.
LENGTHS = {"context_length": 30, "prediction_length": 30}


@torch.no_grad()
def compare(posenc, config, said):
    """Returns how the rows differ, or "" if they are equal. `said` are the plan's settings, sinusoidal or grid."""
    for name, value in LENGTHS.items():
        if hasattr(config, name):
            setattr(config, name, value)
    text = config.to_json_string(use_diff=True)
    model = weighted.small_model(config)
    if "padding_idx" in said or said["convention"].startswith("SINUSOIDAL"):
        begin = int(said["padding_idx"]) + 1 if "padding_idx" in said else 0
        theirs = first(model, table_of)[begin:begin + COUNT]
        mine = posenc.embedding(text, offset=0, count=len(theirs))
    elif int(said.get("height", 0)) > 0:
        theirs = first(model, table_of)
        mine = posenc.embedding(text)
    else:
        theirs = first(model, cells_of)
        mine = posenc.embedding(text, grid_height=HEIGHT, grid_width=WIDTH, **WHICH.get(config.model_type, {}))
    if theirs.shape != mine.shape:
        return f"the original has {tuple(theirs.shape)}, posenc {tuple(mine.shape)}"
    largest = (mine - theirs).abs().max().item()
    return "" if largest <= TOLERANCE else f"differs by {largest:.2g}"


def first(model, rows_of):
    for module in model.modules():
        rows = rows_of(module)
        if rows is not None:
            return rows
    raise original.CannotRun("no module with positions was found")


def is_of_positions(module):
    name = type(module).__name__
    return ("Sin" in name or "Positional" in name) and "Position" in name and "Relative" not in name


def table_of(module):
    """Returns the table [N, D] that the module is or holds, if it was not learned; otherwise None."""
    if hasattr(module, "create_weight"):
        return module.create_weight()
    if type(module).__name__.startswith("CanaryPositional"):
        return module(torch.arange(COUNT))
    if type(module).__name__.startswith("PegasusXSinusoidal"):
        return module(torch.zeros(1, COUNT, module.embed_dim))[0]
    if hasattr(module, "inv_timescales"):
        return module(COUNT)[0]
    if type(module).__name__ == "FunAsrNanoPositionEmbedding":
        return module.positional_embedding
    if type(module).__name__ == "WhisperEncoder":
        return module.embed_positions.weight
    if hasattr(module, "position_embeddings") and hasattr(module, "initialize_weights"):
        for holder in (*module.modules(), *module.parameters()):
            holder._is_hf_initialized = False
        module.initialize_weights()
    held = is_of_positions(module) or hasattr(module, "pos_encoding") or type(module).__name__.endswith("MAEEmbeddings")
    for name in TABLES if held else ():
        table = getattr(module, name, None)
        if torch.is_tensor(table) and table.squeeze(0).ndim == 2:
            return table.squeeze(0)
    return None


def cells_of(module):
    """Returns [HEIGHT * WIDTH, D] of a feature map, row-major; None if the module has none."""
    if not type(module).__name__.endswith("SinePositionEmbedding"):
        return None
    parameters = inspect.signature(module.forward).parameters
    if "height" in parameters:
        return module(height=HEIGHT, width=WIDTH, device=torch.device("cpu"), dtype=torch.float32)[0]
    if "shape" in parameters:
        rows = module(torch.Size((1, 1, HEIGHT, WIDTH)), torch.device("cpu"), torch.float32)
    else:
        rows = module(torch.zeros(1, 3, HEIGHT, WIDTH), torch.ones(1, HEIGHT, WIDTH))
    return rows[0].flatten(1).T

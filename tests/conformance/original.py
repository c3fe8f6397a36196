"""Runs the rotation of transformers' own modules, with a config and without weights."""

import functools
import importlib
import inspect
import math

import torch

import release

# Text in a module's source, and the number of axes of positions that it implies.
AXES = (("expand(3", 3), ("expand(2", 2), ("(3, N)", 3), ("axial", 2), ("patch", 2), ("frequencies_x", 2), ("feats_height", 2),
        ("recomposition_frequencies", 3))  # HunyuanVL has as many as sections: three in the files here
PATCHES = (2, 4)  # rows and columns, for modules that make positions of an image


@functools.cache
def source_of(embedding):
    """Returns the source of an embedding's class and of its base classes."""
    own = [item for item in embedding.__mro__ if item.__module__.startswith("transformers.models")]
    return "\n".join(map(inspect.getsource, own))


@functools.cache
def knows_interleave(config_class):
    """Returns whether rope_interleave is a field of the class, and not only of a file."""
    return hasattr(config_class(), "rope_interleave")


class CannotRun(Exception):
    """This program does not know how to call the original."""


class Original:
    """The rotation of one config, at all layers of a type."""

    def __init__(self, rotary, config, layer_type=None):
        self.embedding, self.function = release.load(rotary)
        module = importlib.import_module(rotary.module)
        if self.function is None:
            names = ["apply_rotary_pos_emb", "apply_rotary_emb"]
            names.insert(0 if "Vision" in (rotary.embedding or "") else 2, "apply_rotary_pos_emb_vision")
            self.function = next((getattr(module, name) for name in names if hasattr(module, name)), None)
        interleave = knows_interleave(type(config)) and config.rope_interleave and getattr(
            module, "apply_rotary_pos_emb_interleave", None)
        if interleave and "vision" not in getattr(self.function, "__name__", ""):
            self.function = interleave
        if self.embedding is None or self.function is None:
            raise CannotRun("no embedding class, or no function that applies it, was found in the source")
        self.config, self.layer_type = config, layer_type
        self.module = self.embedding(config).eval()
        source = self.source()
        self.axes = next((axes for mark, axes in AXES if mark in source), 1)

    def source(self):
        return source_of(self.embedding)

    def fixed_positions(self):
        """Returns the positions [axes][tokens], in posenc's terms, of a module that makes its own; otherwise None."""
        names = release.parameters_of(self.module.forward)
        if names == ["pixel_values"]:  # 2 pi times the patch centres in -1 .. 1
            rows, columns = ([2 * math.pi * (2 * (n + 0.5) / size - 1) for n in range(size)] for size in PATCHES)
            return [[row for row in rows for _ in columns], [column for _ in rows for column in columns]]
        if names == ["hidden_states"] and hasattr(self.module, "freqs_ci"):  # Llama 4's, with a class token
            size = range(1, self.config.image_size // self.config.patch_size + 1)
            return [[x for _ in size for x in size] + [0], [y for y in size for _ in size] + [0]]
        if names == ["x"]:  # EfficientLoFTR's, which counts from 1
            rows, columns = (range(1, size + 1) for size in PATCHES)
            return [[row for row in rows for _ in columns], [column for _ in rows for column in columns]]
        return None

    def tables(self, positions, dtype):
        """Returns the module's result for positions [axes][tokens]: (cos, sin), or one complex tensor."""
        names = release.parameters_of(self.module.forward)
        if names == ["pixel_values"]:
            size = [patches * self.config.patch_size for patches in PATCHES]
            return self.module(torch.zeros(1, 3, *size, dtype=dtype))
        if names == ["hidden_states"]:
            if hasattr(self.module, "freqs_ci"):
                return self.module(torch.zeros(1, dtype=dtype))
            angles = self.module(torch.zeros(1, 1 + max(positions[0]), 1))[0]  # CLVP's, for all positions
            return angles.cos(), angles.sin()
        if names == ["x"]:
            size = [patches * self.config.q_aggregation_stride for patches in PATCHES]
            return [table.flatten(1, 2) for table in self.module(torch.zeros(1, 1, *size, dtype=dtype))]
        ids = torch.tensor(positions)
        if self.axes == 1:
            ids = ids[0][None]
        elif "expand(" in self.source():
            ids = ids[:, None]
        elif "freq[:, :, 0]" in self.source():  # Gemma 4's, with a position's axes last
            ids = ids.T[None]
        else:
            ids = ids[None] if "unsqueeze_dim" in release.parameters_of(self.function) else ids.T
        arguments = {"layer_type": self.layer_type} if self.layer_type else {}
        return self.module(torch.zeros(1, 1, dtype=dtype), ids, **arguments)

    def rotate(self, x, positions):
        """Rotates x [1, heads, tokens, width]."""
        tables = self.tables(positions, x.dtype)
        names = release.parameters_of(self.function)
        if torch.is_tensor(tables):  # complex
            if "llama4" in self.function.__module__:  # heads after tokens
                return self.function(x.transpose(1, 2), x.transpose(1, 2), tables)[0].transpose(1, 2)
            return self.function(x, x, tables)[0]
        cos, sin = tables
        if names[:4] == ["q", "k", "cos", "sin"]:
            if self.function.__name__.endswith("_vision"):
                rows = x[0].transpose(0, 1)
                cos, sin = (table[0] if table.dim() == 3 else table for table in tables)
                return self.function(rows, rows, cos, sin)[0].transpose(0, 1)[None]
            if "unsqueeze_dim" not in names:
                cos, sin = (table.reshape(table.shape[-2:]) for table in tables)
            return self.function(x, x, cos, sin)[0]
        if names[:6] == ["q", "k", "v", "cos", "sin", "position_ids"]:
            return self.function(x, x, x, cos, sin, torch.tensor(positions[:1]))[2].to(x.dtype)
        if names[:4] == ["x", "cos", "sin", "position_ids"]:  # heads after tokens
            ids = torch.tensor(positions).T[None]
            return self.function(x.transpose(1, 2), cos, sin, ids).transpose(1, 2)
        if names[:3] == ["x", "cos", "sin"]:
            return self.function(x, cos, sin)
        raise CannotRun(f"{self.function.__name__}({', '.join(names)})")

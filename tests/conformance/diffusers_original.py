"""Builds diffusers' transformer classes without weights, and defines the form in which their positions are compared."""

import collections.abc
import dataclasses
import importlib
import inspect
import itertools
import pkgutil
import re

import numpy
import torch
from diffusers import ModelMixin
from diffusers.models import transformers
from diffusers.models.modeling_utils import no_init_weights
from diffusers.pipelines.cogvideo.pipeline_cogvideox import get_resize_crop_region_for_grid

F, H, W = 5, 12, 20  # frames, rows and columns of patches
LENGTH = 100  # tokens in one dimension
CPU = torch.device("cpu")


@dataclasses.dataclass(frozen=True)
class Expected:
    """The tolerance: `within` times `place` times (1 + the largest angle), or without `place`, `within` ulps."""
    within: float
    of: str = ""
    place: float | None = None
    why: str = ""


ANGLE = "1 + the largest angle"
EQUAL = Expected(0)
ONCE = Expected(1, why="float64 rounded to float32 once")
FLOAT32 = Expected(1, ANGLE, 2.0**-24, "torch's float32 frequencies may be a place off, which the position multiplies")
EXPONENTIALS = Expected(
    2, ANGLE, 2.0**-24, "frequencies are exponentials of float32 logarithms, places off, which the position multiplies")
FLOAT64 = Expected(1, ANGLE, 2.0**-53,
                   "of float64; torch's pow, cosine and sine may be a place off, which the position multiplies")


@dataclasses.dataclass
class Table:
    """Cosines and sines of tokens at positions [tokens][axes]."""
    positions: numpy.ndarray
    cos: torch.Tensor
    sin: torch.Tensor
    form: str
    pairing: str
    largest: float  # angle
    length: dict  # fields of the request's positions that give the sequence's length


@dataclasses.dataclass
class Sines:
    """Rows that are added to the input, and the method and settings of the request beside the model."""
    method: str
    settings: dict
    rows: torch.Tensor


@dataclasses.dataclass
class Learned:
    """The shape of a learned table."""
    shape: tuple


@dataclasses.dataclass
class Original:
    """A class. `of` takes an instance and yields what its own code has: Table, Sines or Learned objects."""
    name: str
    of: collections.abc.Callable
    others: tuple = ()  # configs beside the default one, by the fields that differ
    needs: dict = dataclasses.field(default_factory=dict)  # fields that it needs to be built or to have these positions
    expected: Expected = FLOAT32


def alike(names, *rest, **more):
    """Originals of classes that have the same module and fields."""
    return [Original(name, *rest, **more) for name in names.split()]


def classes():
    """{name: class} of the installed release."""
    found = {}
    for file in pkgutil.iter_modules(transformers.__path__):
        module = importlib.import_module(f"{transformers.__name__}.{file.name}")
        found |= {name: item for name, item in vars(module).items()
                  if inspect.isclass(item) and issubclass(item, ModelMixin) and item.__module__ == module.__name__}
    return found


def fields_of(cls):
    """Returns a class's defaults, without those that are None."""
    defaults = {name: each.default for name, each in inspect.signature(cls.__init__).parameters.items()}
    return {name: value for name, value in defaults.items() if value not in (None, inspect.Parameter.empty)}


def build(cls, fields):
    """Builds a class with one layer instead of many, and without initializing its weights."""
    fewer = {name: 1 for name, value in fields.items()
             if type(value) is int and value > 1 and re.search("layers|blocks|depth", name)}
    if "vace_layers" in fields:
        fewer["vace_layers"] = [0]
    with no_init_weights():
        return cls(**fields | fewer)


def mesh(*lines):
    """Returns the grid [cells][axes] of each axis's positions; the last axis varies fastest."""
    return numpy.array(list(itertools.product(*lines)), "f8")


def grid(*sizes):
    return mesh(*map(range, sizes))


def resized(base_rows, base_columns):
    """Places H x W cells in a grid of another size. Returns the corners, and the positions of rows and columns."""
    corners = get_resize_crop_region_for_grid((H, W), base_columns, base_rows)
    return corners, [torch.linspace(first, last * (size - 1) / size, size).tolist()
                     for first, last, size in zip(*corners, (H, W))]


def table(positions, turns, form="REPEAT_INTERLEAVED", largest=None, pairing=None, **length):
    """Makes a Table from (cos, sin) of that form, complex numbers, or matrices [[cos, -sin], [sin, cos]]."""
    pairing = pairing or ("HALF_SPLIT" if form == "DUPLICATED" else "INTERLEAVED")
    if torch.is_tensor(turns):
        turns = (turns.real, turns.imag) if turns.is_complex() else (turns[..., 0, 0], turns[..., 1, 0])
        form = "HALF_WIDTH"
    cos, sin = (each.reshape(len(positions), -1) for each in turns)
    return Table(positions, cos, sin, form, pairing, largest or float(numpy.abs(positions).max()), length)


def of_ids(module, axes=3, batch=(), **more):
    """For a module that takes positions [tokens][axes], with a leading batch axis if batch is None."""
    def of(model):
        positions = grid(*(2, F, H, W)[-axes:])
        yield table(positions, getattr(model, module)(torch.tensor(positions).long()[batch]), **more)
    return of


def of_latents(axes=3, **more):
    """For a module `rope` that derives positions from the patches of its input."""
    def of(model):
        sizes, patch = (F, H, W)[-axes:], model.config.patch_size
        if isinstance(patch, int):
            patch = (model.config.get("patch_size_t", 1), patch, patch)[-axes:]
        latents = torch.zeros(1, 1, *(size * each for size, each in zip(sizes, patch)))
        yield table(grid(*sizes), model.rope(latents), **more)
    return of

"""Reads off transformers' own modules what a config.json makes them compute: small models run on the CPU, without weights.

Each function that rotates queries gets a fixed vector instead of the queries, so its result shows the frequencies, the
scaling, the pairing and the width; the attention's query shows where in the head this result lies, and by which factors
of the position the layer multiplies it. What is not rotated comes from projections that are ones.
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import itertools
import os
import pathlib
import re
import resource
import sys

import numpy
import torch
import transformers
from transformers import AttentionInterface, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.models.auto.modeling_auto import MODEL_MAPPING

import original
import release

# Far apart, so that slow pairs turn visibly; the last one is beyond the trained lengths of the scaling blocks.
POSITIONS = [[0, 1, 2, 5, 17, 90, 3000], [0, 3, 2, 9, 11, 60, 2500], [0, 7, 1, 4, 12, 77, 2000]]
TOKENS = len(POSITIONS[0])
FROM_ZERO = [list(range(TOKENS))] * 3  # for models that number the tokens themselves
VECTOR = torch.randn(1 << 14, generator=torch.Generator().manual_seed(1))  # stands for the queries
# Functions and classes whose errors are about positions, by the names that release.py knows and some more.
OF_POSITIONS = re.compile("rope|rotary|Rotary|alibi|relative_position|compute_bias|position_bias", re.IGNORECASE)
# Classes of modules that do not see positions, and take time.
BESIDE_ATTENTION = re.compile("((?<!Router)MLP|Mixer|GatedDeltaNet)$")
LEARNED_SCALE = re.compile("SoftmaxScaling$")  # modules that multiply queries by weights and the position
OF_QUERIES = re.compile(r"(^|\.)(q_proj|q_b_proj)$")  # the projections of queries, which are ones instead of zeros
MEMORY = 4 << 30  # bytes; a changed field may make a model that is too large
PACKAGE = os.path.dirname(transformers.__file__)


class Raised(Exception):
    """The original does not compute. `of_positions`: its configuration or its code for positions raised the error."""

    def __init__(self, error, of_positions):
        super().__init__(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        self.of_positions = of_positions


@dataclasses.dataclass
class Rotation:
    """What a layer does to VECTOR at each position."""
    turned: numpy.ndarray  # [tokens][width], width elements of a head from `offset` on
    head: int  # width of a query's head; 0: not known
    offset: int
    softmax: float | None = None  # factor of the products q . k, times the root of the head's width
    factors: numpy.ndarray | None = None  # [tokens] by which the rotated elements are multiplied, divided by the first


@dataclasses.dataclass
class Queries:
    """The factors of a layer's queries by position, divided by the first token's; None if they are not seen."""
    rotated: numpy.ndarray | None = None  # of the elements that rotate
    others: numpy.ndarray | None = None


@dataclasses.dataclass
class Answer:
    layers: list  # a Rotation for each layer, or None for a layer that does not rotate
    positions: list  # [axes][tokens]
    labels: list | None = None  # names of layer types, if `layers` has one entry for each type instead of each layer
    queries: list = ()  # Queries of each layer; empty: not seen


def config_of(config_class, file):
    """Builds the configuration. Raises Raised."""
    try:
        config = config_class.from_dict(copied(file))
        return getattr(config, "get_text_config", lambda: config)() if config.model_type != file["model_type"] else config
    except Exception as error:
        raise Raised(error, True) from error


def copied(value):
    """Returns a copy of a JSON value; configuration classes change what they are given."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


@contextlib.contextmanager
def raising():
    """Turns any error of the release's code into Raised, by the names of the functions in which it arose."""
    try:
        yield
    except Raised:
        raise
    except Exception as error:
        names, trace = [], error.__traceback__
        while trace:
            code = trace.tb_frame.f_code
            if code.co_filename.startswith(PACKAGE):
                names.append(f"{os.path.basename(code.co_filename)} {code.co_qualname}")
            trace = trace.tb_next
        raise Raised(error, any(OF_POSITIONS.search(name) for name in names[-6:])) from error


@contextlib.contextmanager
def bounded_memory():
    """Limits what this process may allocate beside what it has."""
    page, held = os.sysconf("SC_PAGE_SIZE"), int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held * page + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Models:
    """Runs whole models of one type, and records what their layers do to the queries."""

    def __init__(self, config_class, base):
        """Finds the class that runs the file `base`. Raises original.CannotRun if none does."""
        self.config_class, self.errors = config_class, []
        choices = itertools.product(model_classes(config_class, base), ("probe", "eager"))  # eager makes masks, too
        for self.model_class, self.implementation in choices:
            self.seen = []
            try:
                self._run(config_of(config_class, base), base)
            except Raised as error:
                self.errors.append(f"{self.model_class.__name__} ({self.implementation}): {error}")
                continue
            if any(layer is not None for layer in self.answer(base).layers):
                return
            self.errors.append(f"{self.model_class.__name__}: no rotation was seen")
        raise original.CannotRun("; ".join(self.errors) or "no model class")

    def answer(self, file):
        """Returns the Answer for a config.json. Raises Raised."""
        positions = self._run(config_of(self.config_class, file), file)
        layers = [rotation_of(*seen) for seen in self.seen]
        queries = [queries_of(rotation, seen[1]) for rotation, seen in zip(layers, self.seen)]
        return Answer(layers, positions, queries=queries)

    @torch.no_grad()
    def _run(self, config, file):
        AttentionInterface.register("probe", self._attend)
        config._attn_implementation = self.implementation
        self.seen, self.layer = [], None
        with raising(), bounded_memory(), no_init_weights():
            model = self.model_class(config).eval()
        for module in model.modules():
            if LEARNED_SCALE.search(type(module).__name__):  # as the class initializes it: without effect
                module.scale.zero_()
                module.bias.fill_(1)
        layers = layers_of(model, config)
        if not layers:
            raise Raised(ValueError("no list of layers"), False)
        self.seen = [([], []) for _ in layers]
        self.of_queries = {id(module.weight) for layer in layers for name, module in layer.named_modules()
                           if OF_QUERIES.search(name) and hasattr(module, "weight")}
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(lambda *_, index=index: setattr(self, "layer", index))
        names = release.parameters_of(model.forward)
        arguments, positions = inputs_of(model, config, names)
        with raising(), bounded_memory(), self._probing(model):
            model(**arguments)
        return positions

    @contextlib.contextmanager
    def _probing(self, model):
        """Replaces the functions that rotate in all modules of the model, and its attention."""
        modules = {type(module).__module__ for module in model.modules()}
        replaced = []
        for name in modules:
            if not name.startswith("transformers.models"):
                continue
            module = sys.modules[name]
            for function, value in list(vars(module).items()):
                if inspect.isfunction(value) and release.ROTARY_FUNCTION.match(function):
                    replaced.append((module, function, value))
                    setattr(module, function, self._probe(value))
        for module in model.modules():
            if BESIDE_ATTENTION.search(type(module).__name__) and not hasattr(module, "router"):
                module.forward = zeros_like_input
        interface, product = AttentionInterface.get_interface, torch.nn.functional.linear
        AttentionInterface.get_interface = lambda *_: self._attend
        torch.nn.functional.linear = self._project
        try:
            yield
        finally:
            AttentionInterface.get_interface, torch.nn.functional.linear = interface, product
            for module, function, value in replaced:
                setattr(module, function, value)

    def _project(self, x, weight, bias=None):
        """Stands for a product with weights, whose values do not matter here."""
        if x.shape[-1] != weight.shape[-1]:
            raise RuntimeError(
                f"mat1 and mat2 shapes cannot be multiplied ({tuple(x.shape)} and {tuple(weight.shape)})")
        made = x.new_ones if id(weight) in self.of_queries else x.new_zeros
        return made(*x.shape[:-1], weight.shape[0])

    def _probe(self, function):
        def rotate(q, *arguments, **named):
            if self.layer is None or not torch.is_tensor(q) or TOKENS not in q.shape[:-1]:  # other keys than tokens
                return function(q, *arguments, **named)
            given = VECTOR[:q.shape[-1]].to(q.dtype).expand_as(q).contiguous()
            result = function(given, *arguments, **named)
            first = result[0] if isinstance(result, tuple) else result
            rotations = self.seen[self.layer][0]
            rotations.append(rows(first))
            return result
        return rotate

    def _attend(self, module, query, key, value, *_, scaling=None, **__):
        if self.layer is not None:
            self.seen[self.layer][1].append((query[0, 0].float().numpy().copy(), scaling))
        shape = (query.shape[0], query.shape[2], query.shape[1], value.shape[-1])
        return torch.zeros(shape, dtype=query.dtype), None


def zeros_like_input(*arguments, **named):
    return torch.zeros_like(next(value for value in (*arguments, *named.values()) if torch.is_tensor(value)))


def rows(turned):
    """Returns [tokens][width] of a tensor that has its tokens in any place, and equal rows for all heads."""
    dimension = next(n for n in range(turned.dim() - 2, -1, -1) if turned.shape[n] == TOKENS)
    turned = turned.movedim(dimension, -2)
    return turned.reshape(-1, *turned.shape[-2:])[0].float().numpy().copy()


def rotation_of(rotations, queries):
    """Returns the Rotation of a layer's query, or None. Indexers rotate too; the query tells which one is its own."""
    if not rotations:
        return None
    if not queries:
        return Rotation(rotations[0], 0, 0)
    query, scaling = queries[0]
    head = query.shape[-1]
    softmax = None if scaling is None else float(scaling) * head**0.5
    for turned in rotations:
        width = turned.shape[-1]
        for offset in (0, head - width):
            if head < width:
                continue
            part = query[:, offset:offset + width]
            factors = (part * turned).sum(axis=1) / (turned * turned).sum(axis=1)
            if not numpy.isfinite(factors).all() or not factors.all():
                continue
            if numpy.allclose(part, factors[:, None] * turned, atol=1e-6 * max(1, numpy.abs(part).max())):
                return Rotation(turned, head, offset, softmax, factors / factors[0])
    whole = [turned for turned in rotations if turned.shape[-1] == head]  # scaled or normalized after the rotation
    return Rotation(whole[0], head, 0, softmax) if whole else Rotation(rotations[0], 0, 0, softmax)


def queries_of(rotation, seen):
    """Returns the Queries of a layer from what its attention got."""
    if not seen:
        return Queries()
    others = numpy.array(seen[0][0])
    if rotation is not None:
        others = numpy.delete(others, slice(rotation.offset, rotation.offset + rotation.turned.shape[-1]), axis=1)
    if others.size == 0 or not others[0].all() or (rotation is not None and rotation.factors is None):
        return Queries(rotation and rotation.factors)
    return Queries(rotation and rotation.factors, (others / others[0])[:, 0])


def model_classes(config_class, base):
    """Returns the classes whose configuration this is, the plain model first."""
    found = []
    with contextlib.suppress(KeyError, ImportError):
        plain = MODEL_MAPPING[config_class]
        found += plain if isinstance(plain, tuple) else [plain]
    with contextlib.suppress(ImportError):
        module = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
        candidates = [item for _, item in inspect.getmembers(module, inspect.isclass)
                      if issubclass(item, PreTrainedModel) and item.config_class is config_class
                      and item.__module__ == module.__name__ and not item.__name__.endswith("PreTrainedModel")]
        found += sorted(candidates, key=lambda item: ("For" in item.__name__, len(item.__name__)))
    return list(dict.fromkeys(found))[:3]


def layers_of(model, config):
    """Returns the model's layers: the first list of modules whose name says so."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and re.search(r"(^|\.)(layers|layer|h|blocks|block)$", name):
            return list(module)
    return []


@functools.cache
def axes_of(model_class):
    """Returns the number of axes of the positions that a model takes."""
    source = inspect.getsource(model_class)
    if "expand(2, -1, -1)" in source:
        return 2
    return 3 if re.search(r"expand\(3|expand\(4|mrope|position_ids\[0\]|ndim == 3", source) else 1


def inputs_of(model, config, names):
    """Returns (arguments of the model's forward, positions [axes][tokens])."""
    arguments = {}
    if "input_ids" in names:
        arguments["input_ids"] = torch.ones(1, TOKENS, dtype=torch.long)
    elif "inputs_embeds" in names:
        arguments["inputs_embeds"] = torch.zeros(1, TOKENS, config.hidden_size)
    else:
        raise Raised(ValueError(f"unknown inputs: {', '.join(names)}"), False)
    if "use_cache" in names:
        arguments["use_cache"] = False
    if "position_ids" not in names:
        return arguments, FROM_ZERO
    axes = axes_of(type(model))
    ids = torch.tensor(POSITIONS[:axes])
    arguments["position_ids"] = ids if axes == 1 else ids[:, None]
    return arguments, POSITIONS


class Modules:
    """Runs a type's rotary module and the function that applies it; for models whose inputs are not text."""

    def __init__(self, config_class, base):
        self.config_class = config_class
        rotaries = [rotary for rotary in release.rotary_of(config_class) if rotary.embedding]
        if not rotaries:
            raise original.CannotRun("no rotary module")
        self.rotary = rotaries[0]
        self.answer(base)

    @torch.no_grad()
    def answer(self, file):
        config = config_of(self.config_class, file)
        with raising():
            if not getattr(config, "use_rotary_embedding", True):  # CLVP's model does not run its module then
                return Answer([None], self.answered)
            labels = list(dict.fromkeys(labels_of(config))) or [None]
            layers, positions = [], None
            for label in labels:
                try:
                    turned = original.Original(self.rotary, config, label)
                except KeyError as error:  # not all of the module's layer types are in the file
                    raise Raised(error, False) from error
                positions = turned.fixed_positions() or POSITIONS[:turned.axes]
                width = width_of(turned, positions)
                x = VECTOR[:width].expand(1, 2, len(positions[0]), width).contiguous()
                layers.append(Rotation(turned.rotate(x, positions)[0, 0].float().numpy(), 0, 0))
            self.answered = positions
            return Answer(layers, positions, labels)


def labels_of(config):
    """Returns the layer types that have blocks of their own."""
    blocks = getattr(config, "rope_parameters", None) or {}
    return [name for name, block in blocks.items() if isinstance(block, dict)]


def width_of(turned, positions):
    """Returns the number of elements that the module's tables rotate."""
    tables = turned.tables(positions, torch.float32)
    if torch.is_tensor(tables):
        return 2 * tables.shape[-1]
    return tables[0].shape[-1]

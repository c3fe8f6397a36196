"""Lists the model types of the installed transformers release, and finds their positional schemes in its source."""

import ast
import dataclasses
import functools
import importlib
import inspect
import pathlib
import re

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

MODELS = pathlib.Path(transformers.__file__).parent / "models"
ROTARY_MODULE = re.compile("Rotary|RoPE|Rope")
ROTARY_FUNCTION = re.compile("^(apply_.*(rotary|rope).*|rotate_queries_or_keys|vision_apply_rotary_emb)$")


@dataclasses.dataclass(frozen=True)
class Rotary:
    """How a config class's model rotates: its modeling module, embedding class and the function that applies it."""

    module: str
    embedding: str | None
    function: str | None


def config_classes():
    """{model type: config class} of all types that a config.json can name."""
    return {name: CONFIG_MAPPING[name] for name in sorted(CONFIG_MAPPING_NAMES)}


@functools.cache
def modeling_modules(package):
    """The parsed modeling files of a package below transformers.models."""
    files = sorted((MODELS / package).glob("modeling_*.py"))
    return {file.stem: ast.parse(file.read_text()) for file in files if not re.search("_(tf|flax)_", file.stem)}


def package_of(config_class):
    return config_class.__module__.split(".")[2]


@functools.cache
def rotary_of(config_class):
    """Returns a Rotary for each way in which modules built from this class rotate; empty if none does."""
    name, found = config_class.__name__, []
    for stem, tree in modeling_modules(package_of(config_class)).items():
        module = f"transformers.models.{package_of(config_class)}.{stem}"
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        mine = [node for node in classes if name in annotations_of_init(node) and "Indexer" not in node.name]
        embeddings = unique(called for node in mine for called in calls(node) if is_embedding(called, classes))
        embeddings += [node.name for node in mine if is_embedding(node.name, classes) and node.name not in embeddings]
        functions = unique(called for node in mine for called in calls(node) if ROTARY_FUNCTION.match(called))
        if functions or embeddings:
            found.append(Rotary(module, embeddings[0] if embeddings else None, functions[0] if functions else None))
    return found


@functools.cache
def source_of(config_class):
    """The text of all modeling files beside this config class."""
    return "\n".join(file.read_text() for file in sorted((MODELS / package_of(config_class)).glob("modeling_*.py")))


def is_embedding(name, classes):
    return bool(ROTARY_MODULE.search(name)) and any(node.name == name for node in classes) and not re.search(
        "(Attention|Layer|Model|Config)$", name)


def annotations_of_init(node):
    """The words of the type annotations of a class's __init__."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return set(re.findall(r"\w+", " ".join(
                ast.unparse(argument.annotation) for argument in item.args.args if argument.annotation)))
    return set()


def calls(node):
    return [inner.func.id for inner in ast.walk(node) if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)]


def unique(names):
    return list(dict.fromkeys(names))


def load(rotary):
    """(embedding class or None, function or None) of a Rotary."""
    module = importlib.import_module(rotary.module)
    return tuple(getattr(module, name) if name else None for name in (rotary.embedding, rotary.function))


def parameters_of(function):
    return list(inspect.signature(function).parameters)

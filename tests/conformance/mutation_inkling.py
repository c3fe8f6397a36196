"""Changes each field of Inkling's classes, and compares the bias and tau of each layer with posenc's for the file."""

import grpc
import numpy
import torch
from client import Refusal
from table import Row
from tensors import FP32

import inkling
import mutation_biases
import mutation_fields
import mutation_originals
import release

TOKENS, PAST = 4, 30
WITHIN = 1e-4  # of float32 sums of numbers around 10
BASE = inkling.SMALL | {"log_scaling_n_floor": 9}


def rows(service, only, excepted):
    """Yields a Row for each class. `excepted` looks failures up in the exceptions."""
    for name in inkling.CLASSES:
        if not only or name in only:
            yield of_class(service, name, release.config_classes()[name], excepted)


def of_class(service, name, config_class, excepted):
    row, base = Row(name, ""), {"model_type": name} | BASE
    unchanged, said = answer(config_class, base), settings_of(service, base)
    differ = difference(service, base, unchanged)
    row.check(not differ, f"unchanged file: {differ}")
    fields, moving, tried = mutation_fields.fields_of(config_class), set(), 0
    for field in fields:
        values = [*mutation_fields.values_of(field, config_class, base), None]
        if field == "layer_types":
            values = [[inkling.SLIDING] * 6, ["hybrid"] * 6, ["hybrid", inkling.SLIDING] * 3]
        if field in base and field != "num_hidden_layers":  # without it, a file says nothing about single layers
            values.append(mutation_fields.ABSENT)
        for value in values:
            change = mutation_fields.Change((field,), value)
            file, tried = change.apply(base), tried + 1
            try:
                theirs = answer(config_class, file)
            except Exception:  # the class does not take this value, or others do not fit it
                continue
            if settings_of(service, file) == said and same(theirs, unchanged):
                continue
            failure = difference(service, file, theirs)
            if failure and excepted(name, (field,), failure, mutation_biases.explained(service, file)):
                continue
            moving.add(field)
            row.check(not failure, f"{change}: {failure}")
    row.original = f"attentions, {len(fields)} fields, {len(moving)} move, {tried} files"
    return row


def answer(config_class, file):
    """Returns what the attention of each layer computes, from the same random numbers."""
    config = mutation_originals.config_of(config_class, file)
    with mutation_originals.bounded_memory():
        seen = []
        for layer in range(config.num_hidden_layers):
            torch.manual_seed(6)
            seen.append(inkling.run(config, layer, torch.float32, TOKENS, PAST))
    return seen


def same(a, b):
    """Returns whether the layers have the same extents, heads and taus."""
    return len(a) == len(b) and all(
        one.projection.shape == other.projection.shape and one.bias.shape == other.bias.shape and torch.allclose(
            tau_of(one), tau_of(other)) for one, other in zip(a, b))


def tau_of(seen):
    return (seen.queries / seen.unscaled)[0, :, 0, 0]


def settings_of(service, file):
    return mutation_biases.settings_of(mutation_biases.explained(service, file))


def difference(service, file, theirs):
    """Returns how posenc's bias differs, or ""."""
    model = {"config_json": mutation_fields.as_json(file)}
    for layer, seen in enumerate(theirs):
        try:
            mine = inkling.scores(service, seen, {"model": model | {"layer_index": layer}}, FP32, "F32")
        except grpc.RpcError as error:
            refusal = Refusal.of(error)
            return f"layer {layer}: refused: {refusal.reason} {refusal.message}"
        distance = numpy.abs(mine - inkling.numbers(seen.bias)).max()
        if not distance <= WITHIN:
            return f"layer {layer}: the bias differs by {distance:.2g}"
    return ""

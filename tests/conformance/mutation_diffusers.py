"""Changes each field of diffusers' transformer classes, and compares what posenc and the class make of the config.json."""

import inspect

import grpc
import numpy
import torch
from client import Refusal
from posenc.v1 import service_pb2
from table import Row

import check_diffusers
import diffusers_original
import mutation_fields
from diffusers_original import Learned, Sines

# Fields that select parts beside the positions, and take long to build in another size.
LARGE = ("num_layers", "vocab_size", "sample_frames")


def rows(service, only, excepted):
    """Yields a Row for each class. `excepted` looks failures up in the exceptions."""
    release = diffusers_original.classes()
    for original in check_diffusers.ORIGINALS:
        if not only or original.name in only:
            yield of_class(service, original, release[original.name], excepted)


def of_class(service, original, cls, excepted):
    row = Row(original.name, "", original.expected.within, original.expected.of, original.expected.why)
    base = diffusers_original.fields_of(cls) | original.needs
    try:
        unchanged = answers(original, cls, base)
    except Exception as error:  # an error of the release's own code
        row.original = f"not run: {error}"
        return row
    said, moving, tried = explained(service, original, base), set(), 0
    for field in inspect.signature(cls.__init__).parameters:
        for value in values_of(field, base):
            file = {name: each for name, each in (base | {field: value}).items() if each is not mutation_fields.ABSENT}
            tried += 1
            text = f"{field} = {mutation_fields.short(value)}"
            ours_move = explained(service, original, file) != said
            try:
                theirs = answers(original, cls, file)
            except Exception as error:  # the class or its check does not take this value
                continue
            theirs_move = not all_same(theirs, unchanged)
            if not ours_move and not theirs_move:
                continue
            failure = difference(service, original, file, theirs)
            if failure and excepted(original.name, (field,), failure, refusal_of(service, original, file)):
                continue
            moving.add(field)
            row.check(not failure, f"{text}: {failure}")
    row.original = f"diffusers, {len(inspect.signature(cls.__init__).parameters)} fields, {len(moving)} move, {tried} files"
    return row


def values_of(field, base):
    """Returns other values of a field, of the kind that it has."""
    given = base.get(field)
    if field in LARGE or field == "self":
        return []
    if isinstance(given, bool):
        values = [not given]
    elif isinstance(given, int):
        values = [value for value in (2 * given, given // 2) if value > 0 and value != given]
    elif isinstance(given, float):
        values = [2 * given, given / 2]
    elif isinstance(given, (list, tuple)) and all(type(item) is int for item in given):
        given = list(given)
        values = [item for item in (given[::-1], [2 * n for n in given]) if item != given]
    else:
        return [mutation_fields.ABSENT] if given is not None else []
    return [*values, mutation_fields.ABSENT]


@torch.no_grad()
def answers(original, cls, file):
    """Returns what the class's own code has, without rows of zeros. Its file never has more layers than it needs."""
    found = original.of(diffusers_original.build(cls, file))
    return [case for case in found if not isinstance(case, Sines) or case.rows.any()]


def explained(service, original, file):
    """Returns posenc's settings of a file, or its refusal."""
    try:
        return [layer.info.plan.SerializeToString(deterministic=True)
                for layer in service.client.call("Explain", request_for(original, file)).layers]
    except grpc.RpcError as error:
        return str(Refusal.of(error).message)


def has_sines(service, original, file):
    try:
        layers = service.client.call("Explain", request_for(original, file)).layers
    except grpc.RpcError:
        return False
    return any(layer.info.plan.ByteSize() and not layer.info.rotated for layer in layers)


def request_for(original, file):
    request = service_pb2.ExplainRequest()
    request.model.config_json = check_diffusers.config(original.name, file)["config_json"]
    return request


def refusal_of(service, original, file):
    try:
        service.client.call("Explain", request_for(original, file))
    except grpc.RpcError as error:
        return Refusal.of(error)
    return None


def all_same(theirs, others):
    return len(theirs) == len(others) and all(map(same, theirs, others))


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, Learned):
        return tuple(a.shape) == tuple(b.shape)
    if isinstance(a, Sines):
        return a.settings == b.settings and equal(a.rows, b.rows)
    return equal(a.cos, b.cos) and equal(a.sin, b.sin) and numpy.array_equal(a.positions, b.positions)


def equal(a, b):
    return a.shape == b.shape and torch.equal(a, b)


def difference(service, original, file, theirs):
    """Returns how the answers differ, or ""."""
    row = Row(original.name, "", original.expected.within)
    if not theirs:  # sines that are all zero, or that another encoding of the same class takes the place of
        return "has sines, the original has none" if has_sines(service, original, file) else ""
    for case in theirs:
        try:
            check_diffusers.COMPARE[type(case)](service, row, original.expected, check_diffusers.config(original.name, file), case)
        except grpc.RpcError as error:
            refusal = Refusal.of(error)
            return f"refused: {refusal.reason} {refusal.message}"
    return "; ".join(row.errors[:2])

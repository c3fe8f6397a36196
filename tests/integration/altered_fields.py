"""Legal requests with one field changed, of every message and every field, found by reflection: absent, empty, each limit of
its type and what is beside it, numbers that are none, every value of an enum and one that is unknown, one entry more or fewer.
A tensor changes its shape with its data, and single elements.
"""

import math
import struct

import numpy
from every_field import LARGEST, copy_of, is_list, part_at, parts_of
from google.protobuf.descriptor import FieldDescriptor
from posenc.v1 import tensor_pb2
from tensors import BF16, BOOL, INT32, INT64, NUMPY

SIGNED = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64)
FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": -float("inf"), "-1": -1, "0": 0, "min": 5e-324, "0.5": 0.5,
          "max": 1.7976931348623157e308}
OTHERS = {FieldDescriptor.TYPE_DOUBLE: FLOATS, FieldDescriptor.TYPE_BOOL: {"false": False, "true": True},
          FieldDescriptor.TYPE_FLOAT: {**FLOATS, "min": 2**-149, "max": (2 - 2**-23) * 2.0**127},
          FieldDescriptor.TYPE_STRING: {'""': "", '"?"': "?"}, FieldDescriptor.TYPE_BYTES: {'""': b"", '"?"': b"?"}}


def values_of(field):
    """Returns {name: value} of what a scalar field, or an entry of it, is changed to."""
    if field.type in LARGEST:
        few = {str(value): value for value in (0, 1, 3)}
        if field.type in SIGNED:
            few.update({"min": -LARGEST[field.type] - 1, "-1": -1})
        return {"max": LARGEST[field.type], **few}
    if field.enum_type is not None:
        return {**{value.name: value.number for value in field.enum_type.values}, "999": 999}
    return OTHERS[field.type]


# Elements of each type that a tensor's first and last ones are changed to.
ELEMENTS = {INT32: (-1, 2**31 - 1), INT64: (-1, 2**63 - 1), BOOL: (2,)}
REALS = (float("nan"), float("inf"), -1.0, 0.5)


def element(dtype, value):
    if dtype == BF16:
        return struct.pack("<f", value)[2:]
    return numpy.array(value, "u1" if dtype == BOOL else NUMPY[dtype]).tobytes()


def changes_of_tensor(tensor):
    """Yields (what, tensor)."""
    shape, data, bytes_each = list(tensor.shape), tensor.data, len(element(tensor.dtype, 0))
    shapes = {"flat": [math.prod(shape)], "with a dimension of 1": [*shape, 1], "turned round": shape[::-1]}
    for k, size in enumerate(shape):
        shapes[f"dimension {k} one more"] = [*shape[:k], size + 1, *shape[k + 1:]]
        shapes[f"dimension {k} of 0"] = [*shape[:k], 0, *shape[k + 1:]]
    for what, new in shapes.items():
        if new != shape and (data or not math.prod(new)):
            size = math.prod(new) * bytes_each
            yield what, tensor_pb2.Tensor(dtype=tensor.dtype, shape=new, data=(data * (size // max(len(data), 1) + 1))[:size])
    for value in ELEMENTS.get(tensor.dtype, REALS) if data else ():
        new = element(tensor.dtype, value)
        yield f"first element {value}", tensor_pb2.Tensor(dtype=tensor.dtype, shape=shape, data=new + data[bytes_each:])
        yield f"last element {value}", tensor_pb2.Tensor(dtype=tensor.dtype, shape=shape, data=data[:-bytes_each] + new)


def is_present(message, field):
    if not is_list(field) and field.has_presence:
        return message.HasField(field.name)
    return bool(getattr(message, field.name))


def changes_of_list(field, entries):
    """Yields (what, entries) for a list of scalars."""
    if entries:
        yield "one more", [*entries, entries[-1]]
    if len(entries) > 1:
        yield "one fewer", entries[:-1]
    for name, value in values_of(field).items():
        yield f"[{name}{', ...' if entries else ''}]", [value, *entries[1:]]


def changes(message):
    """Yields (field, what, function that changes it in an equal message)."""
    for field in message.DESCRIPTOR.fields:
        name, present = field.name, is_present(message, field)
        if present:
            yield field, "absent", lambda part, name=name: part.ClearField(name)
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                continue
            if is_list(field):
                yield field, "one more", lambda part, name=name: getattr(part, name).add()
            elif not present:
                yield field, "empty", lambda part, name=name: getattr(part, name).SetInParent()
            elif field.message_type is tensor_pb2.Tensor.DESCRIPTOR:
                for what, tensor in changes_of_tensor(getattr(message, name)):
                    yield field, what, lambda part, name=name, tensor=tensor: getattr(part, name).CopyFrom(tensor)
        elif is_list(field):
            for what, entries in changes_of_list(field, list(getattr(message, name))):
                yield field, what, lambda part, name=name, entries=entries: getattr(part, name).__setitem__(
                    slice(None), entries)
        else:
            values = values_of(field)
            if field.type == FieldDescriptor.TYPE_BYTES and present:
                values = {**values, "a byte fewer": getattr(message, name)[:-1]}
            for what, value in values.items():
                if not present or value != getattr(message, name):
                    yield field, what, lambda part, name=name, value=value: setattr(part, name, value)


def altered(request):
    """Yields (path, message, field, what, request) for each change."""
    for path, message in parts_of(request):
        for field, what, change in changes(message):
            changed = copy_of(request)
            change(part_at(changed, path))
            yield path, message.DESCRIPTOR, field, what, changed

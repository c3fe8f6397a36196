"""Changes of every field of a request, found by protobuf's reflection: a new field is among them without a line here.

The requests to change are legal ones that together set every field (rich_requests.py, which test_rich_requests.py
checks). resized() changes sizes: integers, the lists of integers that are shapes, and the lengths of lists.
"""

import itertools

from google.protobuf.descriptor import FieldDescriptor

OVERFLOWS_BY_TYPE = 2**60  # elements of 8 bytes have 2^63 bytes, smaller ones fewer
# The third and the fourth are legal: of a tensor that is empty, and of a count.
SIZES = (0, 1, 2**26, 2**31 - 1, 2**31, OVERFLOWS_BY_TYPE, 2**63 - 1)
LARGEST = {FieldDescriptor.TYPE_INT32: 2**31 - 1, FieldDescriptor.TYPE_UINT32: 2**32 - 1,
           FieldDescriptor.TYPE_INT64: 2**63 - 1, FieldDescriptor.TYPE_UINT64: 2**64 - 1}
RENAMED = (2**26, 2**31, OVERFLOWS_BY_TYPE)
MOST_PLACES = 4  # of a list of integers; a shape of more dimensions than any method reads changes at its first ones


def is_list(field):
    # Newer releases of protobuf have no label.
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def parts_of(message, path=()):
    """Yields (path, message) for a message and all within it. A step of a path is a field and an index or a key."""
    yield path, message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if not is_list(field):
            parts = [(None, value)]
        elif field.message_type.GetOptions().map_entry:
            parts = value.items() if field.message_type.fields_by_name["value"].message_type else []
        else:
            parts = enumerate(value)
        for index, part in parts:
            yield from parts_of(part, (*path, (field.name, index)))


def part_at(message, path):
    for name, index in path:
        message = getattr(message, name)
        message = message if index is None else message[index]
    return message


def name_of(path):
    return ".".join(name if index is None else f"{name}[{index}]" for name, index in path)


def values_of(field, values):
    """Returns the values that the integer field can hold, larger ones as its largest, each once."""
    return list(dict.fromkeys(min(value, LARGEST[field.type]) for value in values))


def resized_part(message):
    """Yields {field: value} for each size of the message itself: beside the other sizes as they are, and beside zeros."""
    scalars = [field for field in message.DESCRIPTOR.fields if field.type in LARGEST and not is_list(field)]
    for field in scalars:
        others = {other.name: 0 for other in scalars if other is not field and getattr(message, other.name) and
                  (other.containing_oneof is None or other.containing_oneof is not field.containing_oneof)}
        for value in values_of(field, SIZES):
            yield {field.name: value}
            if others:
                yield {field.name: value, **others}
    for field in message.DESCRIPTOR.fields:
        if not is_list(field):
            continue
        if getattr(message, field.name):
            yield {field.name: []}
        if field.type not in LARGEST:
            continue
        old = list(getattr(message, field.name))
        for value in values_of(field, SIZES):
            for place in range(min(len(old), MOST_PLACES)):
                yield {field.name: [*old[:place], value, *old[place + 1:]]}
            for length in range(1, MOST_PLACES + 1):
                for place in range(length):
                    yield {field.name: [0] * place + [value] + [0] * (length - place - 1)}


def other_choices(message):
    """Yields {field: value} for each other value of the message's enums, which say how the shapes within it are read."""
    for field in message.DESCRIPTOR.fields:
        if field.enum_type is not None and not is_list(field):
            for value in field.enum_type.values:
                if value.number not in (0, getattr(message, field.name)):
                    yield {field.name: value.number}


def assign(message, values):
    for name, value in values.items():
        if isinstance(value, list):
            message.ClearField(name)
            if value:
                getattr(message, name).extend(value)
        else:
            setattr(message, name, value)


def take_data_of_empty_tensors(request):
    """Makes the bytes fit the shapes that have a 0, so that what is checked next are the sizes."""
    for _, message in parts_of(request):
        if "shape" in message.DESCRIPTOR.fields_by_name and 0 in message.shape:
            for name in ("data", "contents"):
                if name in message.DESCRIPTOR.fields_by_name:
                    message.ClearField(name)
    if "raw_input_contents" in request.DESCRIPTOR.fields_by_name:
        for n, tensor in enumerate(request.inputs[:len(request.raw_input_contents)]):
            if 0 in tensor.shape:
                request.raw_input_contents[n] = b""


def copy_of(request):
    changed = type(request)()
    changed.CopyFrom(request)
    return changed


def resized(request, only=None):
    """Yields (what, request) with one message's sizes changed, of the message at the path `only` or of each one.

    A shape is also changed beside other choices of the enums around it, and beside other ones of its own if the size
    overflows with some types only.
    """
    for path, message in parts_of(request):
        if only not in (None, path):
            continue
        around = [(path[:-1], choice) for choice in other_choices(part_at(request, path[:-1]))] if path else []
        own = [(path, choice) for choice in other_choices(message)]
        for values in resized_part(message):
            sizes = [size for value in values.values() if isinstance(value, list) for size in value]
            for where, choice in [(path, {}), *(around if sizes else []), *(own if OVERFLOWS_BY_TYPE in sizes else [])]:
                changed = copy_of(request)
                assign(part_at(changed, where), choice)
                assign(part_at(changed, path), values)
                take_data_of_empty_tensors(changed)
                yield f"{name_of(path)} {values} {choice or ''}", changed


def renamed(request):
    """Yields (what, request) in which one size has become another one, and a second size 0, wherever they occur.

    So shapes and counts still agree with each other, as far as their sizes differ.
    """
    lists = [(path, field.name) for path, message in parts_of(request) for field in message.DESCRIPTOR.fields
             if field.type in LARGEST and is_list(field) and getattr(message, field.name)]
    scalars = [(path, field.name) for path, message in parts_of(request) for field in message.DESCRIPTOR.fields
               if field.type in LARGEST and not is_list(field) and getattr(message, field.name)]
    sizes = sorted({size for path, name in lists for size in list(getattr(part_at(request, path), name))[:MOST_PLACES]} - {0})
    for grown in sizes:
        for gone in {None, *sizes} - {grown}:
            for size in RENAMED:
                new = {grown: size, gone: 0}
                changed = copy_of(request)
                for path, name in lists:
                    values = getattr(part_at(changed, path), name)
                    values[:] = [new.get(value, value) for value in values]
                for path, name in scalars:
                    part = part_at(changed, path)
                    value, field = getattr(part, name), part.DESCRIPTOR.fields_by_name[name]
                    setattr(part, name, min(new.get(value, value), LARGEST[field.type]))
                take_data_of_empty_tensors(changed)
                yield f"{grown} as {size}, {gone} as 0", changed


def absent_parts(requests):
    """Yields (method, request, path) for each message type that none of a method's requests has: with it, empty, there."""
    known = {}
    for method, request in requests:
        known.setdefault(method, set()).update(part.DESCRIPTOR.full_name for _, part in parts_of(request))
    for method, request in requests:
        for path, part in parts_of(request):
            for field in part.DESCRIPTOR.fields:
                if field.message_type and not is_list(field) and field.message_type.full_name not in known[method]:
                    known[method].add(field.message_type.full_name)
                    changed = copy_of(request)
                    getattr(part_at(changed, path), field.name).SetInParent()
                    yield method, changed, (*path, (field.name, None))


def all_sizes(requests):
    """Yields (method, what, request) for (method, request), each changed request of a method once."""
    requests, seen = list(requests), set()
    changes = itertools.chain(
        ((method, changes) for method, request in requests for changes in (resized(request), renamed(request))),
        ((method, resized(request, path)) for method, request, path in absent_parts(requests)))
    for method, some in changes:
        for what, changed in some:
            key = method, type(changed), changed.SerializeToString(deterministic=True)
            if key not in seen:
                seen.add(key)
                yield method, what, changed

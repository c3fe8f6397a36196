"""A request is what protobuf makes of its bytes: fields in any order, messages in pieces that are merged, scalars that are
given again, lists packed or not. Every RPC answers each form of a legal request with the bytes of the whole one."""

import random

from every_field import is_list
from google.protobuf.internal.encoder import _VarintBytes as varint
from rich_requests import rich_requests

SEED = 20261129
LENGTH_DELIMITED = 2


def delimited(number, content):
    return varint(number << 3 | LENGTH_DELIMITED) + varint(len(content)) + content


def only(message, field, value):
    """The bytes of a message of which only this field is set."""
    part = type(message)()
    if is_list(field):
        getattr(part, field.name).append(value)
    else:
        setattr(part, field.name, value)
    return part.SerializeToString()


def records(message, chance):
    """The bytes of each field, of messages in two pieces, of scalars once or twice; those of a list in their order."""
    for field, value in message.ListFields():
        if field.message_type is not None and is_list(field):
            yield [delimited(field.number, form_of(part, chance)) for part in value]
        elif field.message_type is not None:
            pieces = shuffled(value, chance)
            cut = chance.randint(0, len(pieces))
            yield [delimited(field.number, b"".join(part)) for part in (pieces[:cut], pieces[cut:])]
        elif is_list(field):
            # An entry alone is a packed list of one.
            yield [only(message, field, entry) for entry in value]
        else:
            yield [only(message, field, value)] * chance.randint(1, 2)


def shuffled(message, chance):
    """The bytes of all fields, in a random order that keeps that of a list."""
    lists = [record for record in records(message, chance) if record]
    turns = [n for n, record in enumerate(lists) for _ in record]
    chance.shuffle(turns)
    left = [iter(record) for record in lists]
    return [next(left[n]) for n in turns]


def form_of(message, chance):
    return b"".join(shuffled(message, chance))


def answer(client, method, request):
    call = client.method(method)(request, timeout=60)
    return list(call) if hasattr(call, "cancel") else call


def test_every_form_is_answered_alike(client):
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    for method, request in rich_requests():
        if method == "GetServerInfo":  # its answer counts the calls
            continue
        form = form_of(request, chance)
        assert type(request).FromString(form) == request
        assert answer(client, method, form) == answer(client, method, request), method

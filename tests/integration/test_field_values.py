"""What each field of each message takes and how the server refuses the rest, beside field-values.txt.

Every field of the legal requests that together set all fields is changed in every way of altered_fields.py; a new field or
RPC is among them without a line here. The file was recorded, and read by a person: it holds what a change of the server
changes for callers. `POSENC_RECORD=1 scripts/python -m pytest tests/integration/test_field_values.py` records it again.
"""

import concurrent.futures
import os
import pathlib
import re

import altered_fields
import grpc
import pytest
from client import Refusal
from altered_fields import is_present
from every_field import is_list, name_of
from rich_requests import rich_requests

RECORDED = pathlib.Path(__file__).with_name("field-values.txt")
SECONDS = 20
HEAD = """\
# What each field takes: a line for each answer to changes of it in legal requests of every RPC. "absent": it was removed.
# "empty": an empty message was added. [0, ...]: the first entry of a list was replaced. Numbers: min and max of its type.
# Answers: ok, or the reason of the error. After it, the field that the error names, if it is another one: .dtype within this
# field, slopes beside it, /geometry.head_count anywhere else. Several answers: other requests were answered otherwise.
"""


def code_or_refusal(call, request):
    try:
        answer = call(request, timeout=SECONDS)
        if hasattr(answer, "cancel"):
            next(answer)
            answer.cancel()
    except grpc.RpcError as error:
        return Refusal.of(error)
    return None


def said(refusal, path, field):
    """Returns the answer as a line of the file has it."""
    if refusal is None:
        return "ok"
    own, named = (re.sub(r"\[[^]]*\]", "[]", name) for name in (name_of((*path, (field.name, None))), refusal.field))
    around = own.rpartition(".")[0]
    if named == own:
        return refusal.reason
    if named.startswith((f"{own}.", f"{own}[")):
        return f"{refusal.reason} {named.removeprefix(own)}"
    if around and named.startswith(f"{around}."):
        return f"{refusal.reason} {named.removeprefix(around + '.')}"
    return f"{refusal.reason} /{'.'.join(named.split('.')[-2:])}"


def value_at(message, field):
    """Returns (descriptor, value) of the scalar that an error names, or None if it is none or absent, and has a default."""
    descriptor = value = None
    for name, index in re.findall(r"(\w+)(?:\[(\d+)\])?(?:\.|$)", field):
        if not hasattr(message, "DESCRIPTOR") or name not in message.DESCRIPTOR.fields_by_name:
            return None
        descriptor = message.DESCRIPTOR.fields_by_name[name]
        if not is_present(message, descriptor):
            return None
        value = getattr(message, name)
        if index and (not is_list(descriptor) or int(index) >= len(value)):
            return None
        message = value = value[int(index)] if index else value
    return None if descriptor is None or descriptor.message_type or hasattr(value, "append") else (descriptor, value)


def is_true(refusal, request):
    """Whether the value that an error shows is the one in the request."""
    found = value_at(request, refusal.field)
    if found is None or refusal.value in ("absent", "present"):
        return True
    field, value = found
    if field.enum_type:
        names = [known.name for known in field.enum_type.values if known.number == value]
        return refusal.value == str(value) or any(name.endswith(refusal.value) for name in names)
    if isinstance(value, bool):
        return refusal.value == str(value).lower()
    if isinstance(value, float):
        return float(refusal.value) == value or value != value and refusal.value == "nan"
    return refusal.value == str(value) if isinstance(value, int) else True


@pytest.fixture(scope="module")
def answers(client):
    """All changed requests and their answers."""
    calls = [(client.method(method), *change) for method, request in rich_requests()
             for change in altered_fields.altered(request)]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        return list(zip(calls, threads.map(lambda call: code_or_refusal(call[0], call[-1]), calls)))


def recorded(answers):
    """The text of the file."""
    fields = {}
    for (_, path, message, field, what, _), refusal in answers:
        changes = fields.setdefault(f"{message.full_name.removeprefix('posenc.v1.')}.{field.name}", {})
        changes.setdefault(what, set()).add(said(refusal, path, field))
    lines = []
    for name, changes in sorted(fields.items()):
        lines.append(name)
        by_answer = {}
        for what, answer in changes.items():
            by_answer.setdefault(" | ".join(sorted(answer)), []).append(what)
        lines += sorted(f"  {', '.join(sorted(whats))}: {answer}" for answer, whats in by_answer.items())
    return "".join(f"{line}\n" for line in lines)


def test_what_each_field_takes(answers):
    text = HEAD + recorded(answers)
    if os.environ.get("POSENC_RECORD"):
        RECORDED.write_text(text)
    assert text.splitlines() == RECORDED.read_text().splitlines()


def test_errors_show_the_value_of_the_request(answers):
    wrong = [(refusal.message, what, name_of((*path, (field.name, None))))
             for (_, path, _, field, what, request), refusal in answers if refusal and not is_true(refusal, request)]
    assert not wrong, "\n".join(map(str, wrong))

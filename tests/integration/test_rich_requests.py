"""The rich requests set every field, and are legal (test_serialized_forms.py)."""

import mutations
from posenc.v1 import service_pb2
from rich_requests import rich_requests

# What names memory that must be registered, or a device that the server must have.
ELSEWHERE = {"Region", "region", "output", "cos_output", "sin_output", "device", "KvPages", "pages"}


def fields_of(descriptor, found):
    """Adds (message's name, field's name) of all fields at any depth."""
    for field in descriptor.fields:
        known = (descriptor.full_name, field.name) in found
        found.add((descriptor.full_name, field.name))
        if field.message_type and not known:
            fields_of(field.message_type, found)


def test_every_field_is_set():
    fields, set_fields = set(), set()
    for method in service_pb2.DESCRIPTOR.services_by_name["PositionalEncodingService"].methods:
        fields_of(method.input_type, fields)
    for request in [*(request for _, request in rich_requests()), *mutations.rotary_stream()]:
        for message in mutations.messages_within(request):
            set_fields |= {(message.DESCRIPTOR.full_name, field.name) for field, _ in message.ListFields()}
    missing = {f"{message}.{field}" for message, field in fields - set_fields
               if field not in ELSEWHERE and message.rsplit(".")[-1] not in ELSEWHERE}
    assert missing == set()

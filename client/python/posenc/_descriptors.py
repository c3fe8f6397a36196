"""The API's messages and enums, read from api.binpb: the protos as a FileDescriptorSet (google/protobuf/descriptor.proto).

The package encodes and decodes messages by these descriptors. A new field of the API therefore needs no new code here,
and the package depends on no release of Python's protobuf.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
from collections.abc import Iterator

# Wire types.
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
# FieldDescriptorProto.Type
DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64_TYPE, FIXED32_TYPE, BOOL, STRING, MESSAGE, BYTES, UINT32, ENUM = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14)
WIRE_TYPES = {DOUBLE: FIXED64, FIXED64_TYPE: FIXED64, FLOAT: FIXED32, FIXED32_TYPE: FIXED32, STRING: LENGTH, MESSAGE: LENGTH,
              BYTES: LENGTH}


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Returns a varint and the offset behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def varint(value: int) -> bytes:
    """Returns the bytes of a varint; a negative number takes ten of them."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def read_fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yields number, wire type and value of each field: an int, or the bytes of a field with a length."""
    at, end = 0, len(data)
    while at < end:
        tag, at = read_varint(data, at)
        wire_type = tag & 7
        if wire_type == VARINT:
            value, at = read_varint(data, at)
            yield tag >> 3, wire_type, value
            continue
        if wire_type == LENGTH:
            size, at = read_varint(data, at)
        elif wire_type in (FIXED64, FIXED32):
            size = 8 if wire_type == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire_type} at byte {at}")
        if at + size > end:
            raise ValueError(f"truncated at byte {end}")
        yield tag >> 3, wire_type, data[at:at + size]
        at += size


@dataclasses.dataclass(eq=False)
class EnumType:
    name: str
    numbers: dict[str, int]  # by full name, "LAYOUT_BSHD", and by short name, "BSHD"
    names: dict[int, str]  # short names

    def number(self, name: str | int) -> int | None:
        """Returns the number of a name in upper or lower case, or None if there is no such value."""
        return name if isinstance(name, int) else self.numbers.get(name.upper())


@dataclasses.dataclass(eq=False)
class Field:
    name: str
    number: int
    type: int
    repeated: bool
    has_presence: bool  # proto3's optional, a message, or a member of a oneof
    type_name: str  # full name of its message or enum
    message: MessageType | None = None
    enum: EnumType | None = None
    tag: bytes = b""  # as packed, if it is a list of numbers

    @property
    def wire_type(self) -> int:
        return WIRE_TYPES.get(self.type, VARINT)

    @property
    def packed(self) -> bool:
        return self.repeated and self.wire_type != LENGTH


@dataclasses.dataclass(eq=False)
class MessageType:
    name: str  # without its package
    full_name: str
    fields: dict[str, Field]
    by_number: dict[int, Field]
    is_map_entry: bool = False


@dataclasses.dataclass(eq=False)
class Rpc:
    name: str
    path: str
    request: MessageType
    response: MessageType


def _text(value: int | memoryview) -> str:
    assert isinstance(value, memoryview)
    return str(value, "utf-8")


def _field(data: memoryview) -> Field:
    name, number, kind, label, type_name, in_oneof = "", 0, 0, 1, "", False
    for key, _, value in read_fields(data):
        if key == 1:
            name = _text(value)
        elif key == 3:
            number = int(value)  # type: ignore[arg-type]
        elif key == 4:
            label = int(value)  # type: ignore[arg-type]
        elif key == 5:
            kind = int(value)  # type: ignore[arg-type]
        elif key == 6:
            type_name = _text(value).lstrip(".")
        elif key == 9:
            in_oneof = True  # proto3's optional fields are in a oneof of their own
    repeated = label == 3
    return Field(name, number, kind, repeated, not repeated and (in_oneof or kind == MESSAGE), type_name)


def _enum(data: memoryview, package: str) -> tuple[str, EnumType]:
    name = ""
    values: dict[str, int] = {}
    for key, _, value in read_fields(data):
        if key == 1:
            name = _text(value)
        elif key == 2:
            assert isinstance(value, memoryview)
            one = {inner: content for inner, _, content in read_fields(value)}
            values[_text(one[1])] = int(one.get(2, 0))  # type: ignore[arg-type]
    prefix = "".join(f"_{c}" if c.isupper() and at else c for at, c in enumerate(name)).upper() + "_"
    short = {value_name.removeprefix(prefix): number for value_name, number in values.items()}
    names = {number: value_name for value_name, number in short.items()}
    return f"{package}.{name}", EnumType(name, {**values, **short}, names)


class Api:
    """All messages, enums and RPCs, by name."""

    def __init__(self, data: bytes):
        self.messages: dict[str, MessageType] = {}  # by full name
        self.enums: dict[str, EnumType] = {}  # by full name
        self.rpcs: dict[str, Rpc] = {}
        services: list[tuple[str, memoryview]] = []
        for _, _, file in read_fields(memoryview(data)):
            assert isinstance(file, memoryview)
            parts = list(read_fields(file))
            package = next((_text(value) for key, _, value in parts if key == 2), "")
            for key, _, value in parts:
                if key == 4:
                    self._add_message(value, package)  # type: ignore[arg-type]
                elif key == 5:
                    full_name, enum = _enum(value, package)  # type: ignore[arg-type]
                    self.enums[full_name] = enum
                elif key == 6:
                    services.append((package, value))  # type: ignore[arg-type]
        for message in self.messages.values():
            for field in message.fields.values():
                field.message = self.messages.get(field.type_name) if field.type == MESSAGE else None
                field.enum = self.enums.get(field.type_name) if field.type == ENUM else None
                field.tag = varint(field.number << 3 | (LENGTH if field.packed else field.wire_type))
        for package, service in services:
            self._add_service(service, package)

    def _add_message(self, data: memoryview, outer: str) -> None:
        parts = list(read_fields(data))
        name = next(_text(value) for key, _, value in parts if key == 1)
        full_name = f"{outer}.{name}"
        fields = [_field(value) for key, _, value in parts if key == 2]  # type: ignore[arg-type]
        message = MessageType(name, full_name, {field.name: field for field in fields},
                              {field.number: field for field in fields})
        self.messages[full_name] = message
        for key, _, value in parts:
            if key == 3:
                self._add_message(value, full_name)  # type: ignore[arg-type]
            elif key == 4:
                enum_name, enum = _enum(value, full_name)  # type: ignore[arg-type]
                self.enums[enum_name] = enum
            elif key == 7:
                message.is_map_entry = any(inner == 7 and content for inner, _, content in read_fields(value))  # type: ignore

    def _add_service(self, data: memoryview, package: str) -> None:
        parts = list(read_fields(data))
        service = next(_text(value) for key, _, value in parts if key == 1)
        for key, _, value in parts:
            if key == 2:
                one = {inner: _text(content) for inner, _, content in read_fields(value) if inner < 4}  # type: ignore
                request, response = (self.messages[one[n].lstrip(".")] for n in (2, 3))
                self.rpcs[one[1]] = Rpc(one[1], f"/{package}.{service}/{one[1]}", request, response)


@functools.cache
def api() -> Api:
    return Api(importlib.resources.files("posenc").joinpath("api.binpb").read_bytes())

"""Messages to and from the wire's bytes, by their descriptors.

A request is a list of pieces, in which tensors are still where the caller has them: sending joins the pieces once, and in
this process the tensors are passed beside the message. A field of an answer is parsed when it is read; tensors are views of
the received bytes.
"""

from __future__ import annotations

import difflib
import functools
import operator
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from posenc import _descriptors as d
from posenc import _tensors
from posenc.errors import InvalidArgument, invalid

TENSOR, REGION, MODEL = "posenc.v1.Tensor", "posenc.v1.Region", "posenc.v1.ModelConfig"
_PACK = {d.DOUBLE: struct.Struct("<d"), d.FLOAT: struct.Struct("<f"), d.FIXED64_TYPE: struct.Struct("<Q"),
         d.FIXED32_TYPE: struct.Struct("<I")}
_RANGES = {d.INT64: (-2**63, 2**63), d.UINT64: (0, 2**64), d.INT32: (-2**31, 2**31), d.UINT32: (0, 2**32)}


class Encoded:
    """A message in place of its fields: its bytes, encoded once."""
    __slots__ = ("data",)

    def __init__(self, data: bytes):
        self.data = data


class Encoder:
    """Encodes one request. `inline`: tensor data are part of the message; otherwise they lie beside it, in `tensors`."""

    def __init__(self, shorthands: Mapping[str, Callable[[Any, str], Any]], inline: bool):
        self._shorthands = shorthands
        self._inline = inline
        self.tensors: list[tuple[str, _tensors.View]] = []  # with their paths
        self.regions = 0  # parts of shared memory that the request names
        self.reads_files = False  # the request has paths of models, whose files may change

    def message(self, schema: d.MessageType, value: Any, path: str) -> tuple[list[Any], int]:
        """Returns the pieces of a message, bytes or Views, and their size."""
        if type(value) is not dict:
            if isinstance(value, Message):
                value = value.encoded(schema, path)
            elif not isinstance(value, (Encoded, Mapping)):
                value = self._shorthand(schema, value, path)
            if isinstance(value, Encoded):
                return [value.data], len(value.data)
            if isinstance(value, _tensors.View):
                return self._tensor(value, path)
        if schema.full_name == REGION:
            self.regions += 1
        pieces: list[Any] = []
        size = 0
        for name, item in cast("Mapping[str, Any]", value).items():
            if item is None:
                continue
            field = schema.fields.get(name)
            if field is None:
                near = difflib.get_close_matches(name, schema.fields)
                raise invalid(f"{path}.{name}" if path else name, item,
                              f"must be a field of {schema.name}" + (f": is {near[0]} meant?" if near else ""), "UNKNOWN_FIELD")
            where = f"{path}.{name}" if path else name
            if field.type != d.MESSAGE:
                data = _packed(field, item, where)
                pieces.append(data)
                size += len(data)
                continue
            assert field.message is not None
            for n, one in enumerate(_items(item, where)) if field.repeated else [(-1, item)]:
                inner, inner_size = self.message(field.message, one, where if n < 0 else f"{where}[{n}]")
                start = field.tag + d.varint(inner_size)
                pieces.append(start)
                pieces += inner
                size += len(start) + inner_size
        return pieces, size

    def _shorthand(self, schema: d.MessageType, value: Any, path: str) -> Any:
        if schema.full_name == TENSOR:
            return _tensors.kind_of(value).view(value, path)
        if schema.full_name == MODEL:
            self.reads_files = True
        shorthand = self._shorthands.get(schema.full_name)
        if shorthand is None:
            raise invalid(path, value, f"must be a mapping of the fields of {schema.name}")
        return shorthand(value, path)

    def _tensor(self, view: _tensors.View, path: str) -> tuple[list[Any], int]:
        self.tensors.append((path, view))
        head = _tensors.header(view.dtype, view.shape)
        if not self._inline or not view.size:
            return [head], len(head)
        head += b"\x7a" + d.varint(view.size)
        return [head, view], len(head) + view.size


def join(pieces: Sequence[Any]) -> bytes:
    return b"".join([piece.bytes() if isinstance(piece, _tensors.View) else piece for piece in pieces])


def _items(value: Any, path: str) -> Iterable[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise invalid(path, cast(object, value), "must be a list")
    return cast("Iterable[Any]", value)


def _packed(field: d.Field, value: Any, path: str) -> bytes:
    """Encodes a field that is no message."""
    if not field.repeated:
        if type(value) in (str, int, float, bool):
            try:
                return _tagged(field, value)
            except InvalidArgument:
                pass  # said again below, with the path
        return field.tag + _scalar(field, value, path)
    items = [_scalar(field, item, f"{path}[{n}]") for n, item in enumerate(_items(value, path))]
    if not field.packed:
        return b"".join(field.tag + item for item in items)
    data = b"".join(items)
    return field.tag + d.varint(len(data)) + data if items else b""


@functools.lru_cache(maxsize=4096, typed=True)
def _tagged(field: d.Field, value: str | float) -> bytes:
    return field.tag + _scalar(field, value, "")


def _scalar(field: d.Field, value: Any, path: str) -> bytes:
    kind = field.type
    if kind == d.ENUM:
        assert field.enum is not None
        number = field.enum.number(value) if isinstance(value, (str, int)) else None
        if number is None:
            raise invalid(path, value, f"must be one of {', '.join(name for n, name in field.enum.names.items() if n)}",
                          "UNKNOWN_VALUE")
        return d.varint(number)
    if kind == d.STRING or kind == d.BYTES:
        if kind == d.STRING and not isinstance(value, str) or kind == d.BYTES and not isinstance(value, (bytes, bytearray)):
            raise invalid(path, type(value).__name__, "must be a str" if kind == d.STRING else "must be bytes")
        data = value.encode() if isinstance(value, str) else bytes(value)
        return d.varint(len(data)) + data
    if kind == d.BOOL:
        if not isinstance(value, bool) and type(value).__name__ != "bool":  # NumPy's is one, too
            raise invalid(path, value, "must be True or False")
        return b"\x01" if value else b"\x00"
    try:
        if kind in _PACK:
            return _PACK[kind].pack(value)
        number = operator.index(value)
    except (TypeError, struct.error) as error:
        raise invalid(path, value, "must be a number" if kind in _PACK else "must be a whole number") from error
    least, end = _RANGES[kind]
    if not least <= number < end:
        raise invalid(path, value, f"must be {least} .. {end - 1}", "OUT_OF_RANGE")
    return d.varint(number)


class Message:
    """A message of an answer. Its attributes are the fields of the proto.

    Enum values are short names ("BSHD"), lists are lists, absent messages and optional fields are None. Iterating over it
    gives its tensors, so that `q, k = client.rope(q, k, ...)` works. A message can be a field of another request.
    """

    def __init__(self, schema: d.MessageType, data: memoryview, kind: _tensors.Kind):
        self._type, self._data, self._kind = schema, data, kind
        self._found: dict[int, list[int | memoryview]] | None = None  # the fields that are present, by number
        # Memory beside the message for the data of its own tensors, in their order: see keep_beside().
        self._beside: Sequence[Any] | None = None

    def keep_beside(self, memory: Sequence[Any]) -> None:
        """The data of the message's own tensors are in these buffers, not in the message. None: the tensor is absent."""
        self._beside = memory

    def put(self, name: str, tensor: Any) -> None:
        """Sets a tensor that the caller has in memory of his own."""
        self.__dict__[name] = tensor

    def __getattr__(self, name: str) -> Any:
        field = None if name.startswith("_") else self._type.fields.get(name)
        if field is None:
            raise AttributeError(f"{self._type.name} has no field {name!r}")
        if self._found is None:
            found: dict[int, list[int | memoryview]] = {}
            for number, _, value in d.read_fields(self._data):
                found.setdefault(number, []).append(value)
            self._found = found
        self.__dict__[name] = parsed = self._parsed(field, self._found.get(field.number, ()))
        return parsed

    def __iter__(self) -> Iterator[Any]:
        for name in own_tensors(self._type):
            tensor = getattr(self, name)
            if tensor is not None:
                yield tensor

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())
        return f"{self._type.name}({shown})"

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields that are present and not zero, as dicts and lists: what a request takes."""
        present: dict[str, Any] = {}
        for name, field in self._type.fields.items():
            value = getattr(self, name)
            zero: Any = None if field.has_presence else [] if field.repeated else _zero(field)
            if value is not zero and (field.has_presence or value != zero):
                present[name] = _plain(value)
        return present

    def encoded(self, schema: d.MessageType, path: str) -> Encoded:
        if schema is not self._type or self._beside is not None:
            raise invalid(path, self._type.name, f"must be a {schema.name}")
        return Encoded(bytes(self._data))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles an answer as its tensors and the other fields' bytes, and a message within one as its bytes."""
        names = own_tensors(self._type) if self._type.name.endswith("Response") else []
        values = {name: getattr(self, name) for name in names}
        data = self._data
        if names:
            left_out = {self._type.fields[name].number for name in names}
            data = b"".join(_field_bytes(*field) for field in d.read_fields(data) if field[0] not in left_out)
        present = {number for number, _, _ in d.read_fields(self._data)}
        for name, value in self.__dict__.items():  # what put() has set
            if not name.startswith("_") and self._type.fields[name].number not in present:
                values[name] = value
        return _unpickled, (self._type.full_name, bytes(data), self._kind, values)

    def _parsed(self, field: d.Field, found: Sequence[int | memoryview]) -> Any:
        """Returns a field's value. `found`: what the message has of it, in order."""
        if field.message is not None and field.message.is_map_entry:
            entries = [new_message(field.message, _view(value), self._kind) for value in found]
            return {entry.key: entry.value for entry in entries}
        if field.repeated:
            values: list[Any] = []
            for value in found:
                values += (_unpacked(field, value) if field.packed and isinstance(value, memoryview) else
                           [self._value(field, value)])
            return values
        if found:
            return self._value(field, found[-1])
        return None if field.has_presence else _zero(field)

    def _value(self, field: d.Field, value: int | memoryview) -> Any:
        if field.message is None:
            return _scalar_from(field, value)
        if field.message.full_name != TENSOR:
            return new_message(field.message, _view(value), self._kind)
        tensor = _TensorHeader(_view(value))
        if tensor.region:
            return new_message(field.message, _view(value), self._kind)
        if self._beside is not None:
            memory = self._beside[own_tensors(self._type).index(field.name)]
            return self._kind.wrap(tensor.dtype, tensor.shape, memory)
        return _tensors.received(self._kind, tensor.dtype, tensor.shape, tensor.data)


class _TensorHeader:
    """A posenc.v1.Tensor, parsed without its descriptor."""

    def __init__(self, message: memoryview):
        self.dtype, self.region, self.data = 0, False, _NOTHING
        shape: list[int] = []
        at, end = 0, len(message)
        while at < end:  # read_fields() for the tags that a Tensor has
            tag, at = d.read_varint(message, at)
            value, at = d.read_varint(message, at)
            if tag == 0x08:
                self.dtype = value
                continue
            part = message[at:at + value]
            if len(part) != value:
                raise ValueError(f"truncated at byte {end}")
            at += value
            if tag == 0x12:
                inner = 0
                while inner < value:
                    size, inner = d.read_varint(part, inner)
                    shape.append(size)
            elif tag == 0x1a:
                self.region = True
            elif tag == 0x7a:
                self.data = part
            else:
                raise ValueError(f"tag {tag} in a Tensor")
        self.shape = tuple(shape)


@functools.cache
def own_tensors(schema: d.MessageType) -> list[str]:
    """Returns the names of the message's own tensors, in the order of the C interface's outputs."""
    return [field.name for field in schema.fields.values() if field.type_name == TENSOR and not field.repeated]


_NOTHING = memoryview(b"")
_CLASSES: dict[str, type[Message]] = {}  # by name; posenc.messages fills it


def register(classes: Iterable[type[Message]]) -> None:
    """Makes parsed messages instances of these classes, by name."""
    _CLASSES.update({one.__name__: one for one in classes})


def new_message(schema: d.MessageType, data: memoryview, kind: _tensors.Kind) -> Message:
    return _CLASSES.get(schema.name, Message)(schema, data, kind)


def _unpickled(full_name: str, data: bytes, kind: _tensors.Kind, values: Mapping[str, Any]) -> Message:
    schema = d.api().messages[full_name]
    message = new_message(schema, memoryview(data), kind)
    for name, value in values.items():
        message.put(name, value)
    if schema.name.endswith("Response") and own_tensors(schema):
        message.keep_beside(())  # the bytes are without the tensors
    return message


def _field_bytes(number: int, wire_type: int, value: int | memoryview) -> bytes:
    tag = d.varint(number << 3 | wire_type)
    if not isinstance(value, memoryview):
        return tag + d.varint(value)
    return tag + (d.varint(len(value)) if wire_type == d.LENGTH else b"") + value


def _view(value: int | memoryview) -> memoryview:
    if not isinstance(value, memoryview):
        raise ValueError("a number in place of a message")
    return value


def _zero(field: d.Field) -> Any:
    if field.enum is not None:
        return field.enum.names.get(0, 0)
    return {d.STRING: "", d.BYTES: b"", d.BOOL: False, d.DOUBLE: 0.0, d.FLOAT: 0.0}.get(field.type, 0)


def _scalar_from(field: d.Field, value: int | memoryview) -> Any:
    if isinstance(value, memoryview):
        if field.type in _PACK:
            return _PACK[field.type].unpack(value)[0]
        return str(value, "utf-8", "replace") if field.type == d.STRING else bytes(value)
    if field.enum is not None:
        return field.enum.names.get(value, value)
    if field.type == d.BOOL:
        return bool(value)
    return value - 2**64 if field.type in (d.INT64, d.INT32) and value >= 2**63 else value


def _unpacked(field: d.Field, data: memoryview) -> list[Any]:
    if field.type in _PACK:
        return [value for (value,) in _PACK[field.type].iter_unpack(data)]
    values: list[Any] = []
    at = 0
    while at < len(data):
        value, at = d.read_varint(data, at)
        values.append(_scalar_from(field, value))
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_dict()
    return [_plain(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value

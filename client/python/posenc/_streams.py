"""Rotations in chunks of rows (StreamApplyRotary), whatever carries the chunks."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from posenc import _descriptors as d
from posenc import _tensors
from posenc._plans import encode
from posenc._wire import join, new_message
from posenc.errors import Internal, invalid

if TYPE_CHECKING:
    from posenc import messages as m

T = TypeVar("T")
CHUNK_BYTES = 4 << 20
IN_FLIGHT = 4  # chunks that are sent and not yet answered
_NUMBERS = {"q": 1, "k": 2}  # posenc.v1.Operand


@dataclasses.dataclass(frozen=True)
class RotatedRows(Generic[T]):
    """Rotated rows of q or k, as a tensor of all of its rows [rows, D] has them in its own order."""
    info: m.AnswerInfo  # the whole rotation's
    operand: str  # "q" or "k"
    begin: int  # index of the first row
    rows: T  # [n, D]


class Operand:
    """q or k, and where its result belongs: in the caller's tensor, in memory for all of it, or in memory for each chunk."""

    def __init__(self, name: str, tensor: Any, out: Any, whole: bool):
        self.name, self.number, self.out, self.kind = name, _NUMBERS[name], out, _tensors.kind_of(tensor)
        self.view = self.kind.view(tensor, f"{name}.tensor")
        self.width = self.view.shape[-1] if self.view.shape else 1
        self.row = self.width * _tensors.BYTES[self.view.dtype]
        self.memory = bytearray(self.view.size) if whole and out is None else None
        self.target: int | None = None if self.memory is None else _tensors.address_of(self.memory)
        self.to: _tensors.View | None = None
        if out is not None:
            field = f"out[{self.number - 1}]"
            self.to = _tensors.destination(_tensors.kind_of(out), out, field)
            _tensors.check_same(self.to, self.view, field)
            self.target = self.to.address

    def chunks(self, chunk_bytes: int) -> list[Chunk]:
        step = max(1, chunk_bytes // max(1, self.row)) * max(1, self.row)
        return [Chunk(self, begin, min(step, self.view.size - begin)) for begin in range(0, self.view.size, step)]

    def result(self) -> Any:
        return self.out if self.memory is None else self.kind.wrap(self.view.dtype, self.view.shape, self.memory)


def _check_apart(operands: Sequence[Operand]) -> None:
    """Raises an error if the result of a chunk would overwrite rows that are read later."""
    for one, other in itertools.product(operands, repeat=2):
        if one.to is None:
            continue
        in_place = one is other and one.to.address == one.view.address
        if one.to.overlaps(other.view) and not in_place:
            raise invalid(f"out[{one.number - 1}]", f"in the memory of {other.name}.tensor",
                          f"must be {one.name}.tensor itself, or overlap no operand", "CONFLICT")


@dataclasses.dataclass(eq=False)
class Chunk:
    operand: Operand
    begin: int  # bytes
    size: int

    @property
    def address(self) -> int:
        return self.operand.view.address + self.begin

    @property
    def target(self) -> int | None:
        """The address that the result belongs at, or None for memory of its own."""
        return None if self.operand.target is None else self.operand.target + self.begin

    @property
    def shape(self) -> tuple[int, int]:
        return self.size // self.operand.row, self.operand.width

    def encoded(self, inline: bool) -> bytes:
        """Returns a StreamApplyRotaryRequest, without the rows' data unless it is inline."""
        data = b"\x7a" + d.varint(self.size) if inline else b""
        rows = b"\x08" + d.varint(self.begin) + data
        size = len(rows) + (self.size if inline else 0)
        start = b"\x08" + d.varint(self.operand.number) + b"\x7a" + d.varint(size)
        head = b"\x12" + d.varint(len(start) + size) + start + rows
        if not inline:
            return head
        return join([head, _tensors.View(self.operand.view.dtype, self.shape, self.address, self.size, self)])


class Rotation:
    """One rotation: its header, the chunks that have no answer yet, and what becomes of their answers."""

    def __init__(self, fields: Mapping[str, Any], q: Any, k: Any, out: Any, chunk_bytes: int, whole: bool):
        """`q`, `k`: fields of RotaryOperand, or None. `whole`: the result is wanted at the end, not chunk by chunk."""
        if chunk_bytes < 1:
            raise invalid("chunk_bytes", chunk_bytes, "must be 1 or more", "OUT_OF_RANGE")
        given: dict[str, Any] = {name: operand for name, operand in (("q", q), ("k", k)) if operand is not None}
        out = _tensors.outputs(out)
        if out is not None and len(out) != len(given):
            raise invalid("out", len(out), f"must be {len(given)} tensors", "MISMATCH")
        self.rpc = d.api().rpcs["StreamApplyRotary"]
        self.operands = [Operand(name, operand["tensor"], None if out is None else out[n], whole)
                         for n, (name, operand) in enumerate(given.items())]
        _check_apart(self.operands)
        header = {**fields, **{one.name: {**given[one.name], "tensor": {"dtype": one.view.dtype, "shape": one.view.shape}}
                               for one in self.operands}}
        self.header = join(encode(self.rpc.request, {"header": header}, True).pieces())
        self.waiting = {(one.number, chunk.begin): chunk for one in self.operands for chunk in one.chunks(chunk_bytes)}
        self.info: Any = None

    def take(self, data: bytes) -> RotatedRows[Any] | None:
        """Takes an answer that has its rows inside. Returns None for the answer to the header."""
        parts = {number: value for number, _, value in d.read_fields(memoryview(data))}
        if 1 in parts:
            self.info = new_message(self.rpc.response, memoryview(data), _tensors.NUMPY).info
        if 2 not in parts:
            return None
        chunk = {number: value for number, _, value in d.read_fields(_bytes(parts[2]))}
        rows = {number: value for number, _, value in d.read_fields(_bytes(chunk[15]))}
        content = _bytes(rows.get(15, memoryview(b"")))
        place = chunk.get(1, 0), rows.get(1, 0)
        asked = self.waiting.get(place)  # type: ignore[arg-type]
        if asked is None or asked.size != len(content):
            raise Internal(f"the server answered {len(content)} bytes at {place}, which were not sent", "INTERNAL")
        if asked.target is None:
            return self.answered(asked, _tensors.received(asked.operand.kind, asked.operand.view.dtype, asked.shape, content))
        ctypes.memmove(asked.target, _tensors.address_of(content), asked.size)
        return self.answered(asked, None)

    def answered(self, chunk: Chunk, rows: Any) -> RotatedRows[Any]:
        """Notes that a chunk is answered. `rows`: None if they are at the chunk's target."""
        operand = chunk.operand
        del self.waiting[operand.number, chunk.begin]
        begin = chunk.begin // operand.row
        if operand.out is not None:
            rows = operand.out.reshape(-1, operand.width)[begin:begin + chunk.shape[0]]
        return RotatedRows(self.info, operand.name, begin, rows)

    def result(self) -> Any:
        """Returns the whole result as an ApplyRotaryResponse."""
        answer = new_message(d.api().rpcs["ApplyRotary"].response, memoryview(b""), _tensors.NUMPY)
        answer.put("info", self.info)
        for operand in self.operands:
            answer.put(operand.name, operand.result())
        return answer

    def check_complete(self) -> None:
        if self.waiting:
            raise Internal(f"the server ended the stream before it answered {len(self.waiting)} chunks", "INTERNAL")


def _bytes(value: int | memoryview) -> memoryview:
    if not isinstance(value, memoryview):
        raise ValueError("a number in place of a message")
    return value

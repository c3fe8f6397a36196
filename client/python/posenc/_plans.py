"""The bytes of requests, kept for requests that differ from an earlier one only in tensors' data and in the position.

Most calls of a program repeat the settings, types and shapes of a call before. Their bytes are looked up by these instead of
being encoded again, which takes most of the time of a small call.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from posenc import _descriptors as d
from posenc import _tensors
from posenc._model import SHORTHANDS
from posenc._wire import Encoded, Encoder
from posenc.errors import InvalidArgument

_MOST_PLANS, _MOST_BYTES = 256, 65536


class Plan:
    """The bytes of requests without the data of their tensors, and without a position that changes from call to call."""
    __slots__ = ("pieces", "paths", "prepared")

    def __init__(self, pieces: Sequence[bytes | int], paths: tuple[str, ...]):
        self.pieces = pieces  # an int: the data of this tensor
        self.paths = paths  # of the tensors
        self.prepared: list[Any] = []  # what a client keeps for its next call


class Request(NamedTuple):
    """An encoded request."""
    plan: Plan
    position: bytes  # the field `positions`, or nothing; it may go first or last
    views: Sequence[_tensors.View]  # of the plan's tensors
    regions: int  # parts of shared memory that the request names

    def pieces(self) -> list[Any]:
        """Returns the message's bytes and Views."""
        return [self.position, *(self.views[piece] if isinstance(piece, int) else piece for piece in self.plan.pieces)]


_PLANS: dict[Any, Plan] = {}


def encode(schema: d.MessageType, request: Mapping[str, Any], inline: bool) -> Request:
    """Encodes a request. `inline`: tensors' data are part of the message; otherwise they lie beside it."""
    key: list[Any] = [schema, inline]
    views: list[_tensors.View] = []
    position = b""
    for name, item in request.items():
        kind = type(item)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            key += name, item
            continue
        if item is None:
            continue
        if kind is int and name == "positions" and 0 <= item < 1 << 31 and (tags := _position_tags(schema)):
            position = tags[1] + d.varint(item)
            position = tags[0] + d.varint(len(position)) + position
            continue
        inner, only = "", item
        if kind is dict and len(item) == 1:
            [(inner, only)] = item.items()
        kind = type(only)  # pyright: ignore[reportUnknownVariableType]
        if kind is Encoded:
            key += name, inner, only
        elif kind is np.ndarray and inner in ("", "tensor"):
            try:
                view = _tensors.NUMPY.view(only, name)
            except InvalidArgument:  # the encoder names the field
                return _encoded(schema, request, inline)
            views.append(view)
            key += name, inner, view.dtype, view.shape
        else:
            part = _plain(item)
            if part is None:
                return _encoded(schema, request, inline)
            key += name, part
    found = tuple(key)
    plan = _PLANS.get(found)
    if plan is not None:
        return Request(plan, position, views, 0)
    if position:
        request = {name: item for name, item in request.items() if name != "positions"}
    encoder = Encoder(SHORTHANDS, inline)
    plan = _plan_of(encoder, schema, request)
    if _may_be_kept(encoder, plan, len(views)):
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        _PLANS[found] = plan
    return Request(plan, position, [view for _, view in encoder.tensors], encoder.regions)


def _encoded(schema: d.MessageType, request: Mapping[str, Any], inline: bool) -> Request:
    encoder = Encoder(SHORTHANDS, inline)
    return Request(_plan_of(encoder, schema, request), b"", [view for _, view in encoder.tensors], encoder.regions)


def _plan_of(encoder: Encoder, schema: d.MessageType, request: Mapping[str, Any]) -> Plan:
    pieces: list[bytes | int] = []
    places: dict[int, int] = {}
    for piece in encoder.message(schema, request, "")[0]:
        if isinstance(piece, _tensors.View):
            places = places or {id(view): n for n, (_, view) in enumerate(encoder.tensors)}
            pieces.append(places[id(piece)])
        elif pieces and isinstance(before := pieces[-1], bytes):
            pieces[-1] = before + piece
        else:
            pieces.append(piece)
    return Plan(pieces, tuple(path for path, _ in encoder.tensors))


def _may_be_kept(encoder: Encoder, plan: Plan, tensors: int) -> bool:
    """`tensors`: how many of the plan's tensors the key describes, which must be all."""
    size = sum(len(piece) for piece in plan.pieces if isinstance(piece, bytes))
    return not encoder.reads_files and not encoder.regions and len(plan.paths) == tensors and size <= _MOST_BYTES


@functools.cache
def _position_tags(schema: d.MessageType) -> tuple[bytes, bytes] | None:
    """Returns the tags of the request's positions and of their offset, or None if it has none."""
    field = schema.fields.get("positions")
    offset = field and field.message and field.message.fields.get("offset")
    return (field.tag, offset.tag) if field and offset else None


def _plain(value: Any) -> Any:
    """Returns a hashable copy of nested dicts and lists of Python's own numbers and texts; None if there is anything else.

    Equal copies have equal bytes on the wire: True is not 1 there, and -0.0 is not 0.0.
    """
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return value
    if kind is int or kind is bool:
        return kind, value
    if kind is float:
        return kind, value or repr(value)
    if kind is Encoded:
        return value
    if kind is dict:
        parts: list[Any] = [kind, *value]
        values = value.values()
    elif kind is list or kind is tuple:
        parts, values = [kind], value
    else:
        return None
    for item in values:
        part = _plain(item)
        if part is None:
            return None
        parts.append(part)
    return tuple(parts)

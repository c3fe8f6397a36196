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


class Request(NamedTuple):
    """An encoded request."""
    pieces: Sequence[Any]  # bytes, and Views if tensors are inline
    tensors: Sequence[tuple[str, _tensors.View]]  # with their paths
    regions: int  # parts of shared memory that the request names


class _Plan(NamedTuple):
    pieces: tuple[bytes | None, ...]  # None in place of a tensor's data
    paths: tuple[str, ...]


_PLANS: dict[Any, _Plan] = {}


def encode(schema: d.MessageType, request: Mapping[str, Any], inline: bool) -> Request:
    """Encodes a request. `inline`: tensors' data are part of the message; otherwise they lie beside it."""
    key: list[Any] = [schema.full_name, inline]
    tensors: list[tuple[str, _tensors.View]] = []
    position = b""
    for name, item in request.items():
        kind = type(item)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            part: Any = item
        elif item is None:
            continue
        elif kind is int and name == "positions" and 0 <= item < 1 << 31 and (tags := _position_tags(schema)):
            position = tags[1] + d.varint(item)
            position = tags[0] + d.varint(len(position)) + position
            continue
        else:
            tensor, path = item, "positions.ids" if name == "positions" else name
            if kind is dict and len(item) == 1 and "tensor" in item:
                tensor, path = item["tensor"], f"{name}.tensor"
            if type(tensor) is np.ndarray:
                try:
                    view = _tensors.NUMPY.view(tensor, path)
                except InvalidArgument:  # the encoder names the field
                    return _encoded(schema, request, inline)
                tensors.append((path, view))
                part = (view.dtype, view.shape)
            else:
                part = _plain(item)
                if part is None:
                    return _encoded(schema, request, inline)
        key += name, part
    found = tuple(key)
    plan = _PLANS.get(found)
    if plan is None:
        encoder = Encoder(SHORTHANDS, inline)
        if position:
            request = {name: item for name, item in request.items() if name != "positions"}
        pieces, _ = encoder.message(schema, request, "")
        plan = _plan_of(encoder, pieces)
        if plan.paths != tuple(path for path, _ in tensors) or not _may_be_kept(encoder, plan):
            return Request([position, *pieces], encoder.tensors, encoder.regions)
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        _PLANS[found] = plan
    data = iter(tensors)
    return Request([position, *(next(data)[1] if piece is None else piece for piece in plan.pieces)], tensors, 0)


def _encoded(schema: d.MessageType, request: Mapping[str, Any], inline: bool) -> Request:
    encoder = Encoder(SHORTHANDS, inline)
    pieces, _ = encoder.message(schema, request, "")
    return Request(pieces, encoder.tensors, encoder.regions)


def _plan_of(encoder: Encoder, pieces: Sequence[Any]) -> _Plan:
    kept: list[bytes | None] = []
    for piece in pieces:
        if isinstance(piece, _tensors.View):
            kept.append(None)
        elif kept and kept[-1] is not None:
            kept[-1] += piece
        else:
            kept.append(piece)
    return _Plan(tuple(kept), tuple(path for path, _ in encoder.tensors))


def _may_be_kept(encoder: Encoder, plan: _Plan) -> bool:
    empty = any(not view.size for _, view in encoder.tensors)  # these have no piece for their data
    return not (encoder.reads_files or encoder.regions or empty) and sum(len(p or b"") for p in plan.pieces) <= _MOST_BYTES


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
        return kind, value.data
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

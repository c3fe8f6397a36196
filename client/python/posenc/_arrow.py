"""Columns of Arrow whose rows are tensors: their elements as one NumPy array, without a copy, and back."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from posenc.errors import InvalidArgument

try:
    pa: Any = importlib.import_module("pyarrow")
except ImportError as missing:
    raise ImportError("posenc.arrow needs pyarrow: pip install 'posenc[arrow]'") from missing

_FLOATS = {pa.float32(): "<f4", pa.float16(): "<f2", pa.float64(): "<f8"}
_UNKNOWN = -1  # the size of an inner axis of a row without tokens


def located(column: str, row: int, text: str) -> InvalidArgument:
    """Returns the error of a column's row."""
    field = f"column {column!r}, row {row}"
    return InvalidArgument(f"{field}: {text}", "INVALID_ARGUMENT", "UNSUPPORTED", field, "", text)


class Column:
    """A column of one record batch. A row's tensor has as many axes as `rank`; rank 0: a number."""

    def __init__(self, name: str, array: Any, dtype: str | None = None, integers: bool = False):
        """Raises an error for a type that has no tensors. `dtype`: "BF16", the meaning of uint16. `integers`: are allowed."""
        self.name, self.array, self.type, self._options = name, array, array.type, (dtype, integers)
        self.length = len(array)
        self.valid = np.ones(self.length, bool) if not array.null_count else np.asarray(array.is_valid(), bool)
        self.problems: dict[int, str] = {}
        self._ends = [np.arange(self.length + 1)]  # for each axis, where a row's elements of it begin
        self._sizes: list[Any] = []  # for each axis: a size, or offsets
        inner = self._unwrapped(array)
        while pa.types.is_list(inner.type) or pa.types.is_large_list(inner.type) or pa.types.is_fixed_size_list(inner.type):
            inner = self._enter(inner)
        self._check_nulls(inner)
        self.values = self._elements(inner)
        self.rank = len(self._sizes)
        self.shapes = self._shapes()

    @property
    def outer(self) -> Any:
        """The size of the first axis if all rows have the same by their type, or the rows' offsets."""
        return self._sizes[0]

    @property
    def begins(self) -> Any:
        """Where each row's tokens, its first axis, begin; and the end."""
        return self._ends[min(1, self.rank)]

    def take(self, rows: Any) -> Column:
        """Returns a column of some rows."""
        rows = np.asarray(rows)
        if len(rows) == self.length:
            return self
        begin, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        some = self.array.slice(begin, end - begin) if end - begin == len(rows) else self.array.take(pa.array(rows))
        return Column(self.name, some, *self._options)

    def made(self, values: Any) -> Any:
        """Returns an array of this column's type and shapes with other elements."""
        return build(self.type, [*self._sizes], self.length, values)

    def _unwrapped(self, array: Any) -> Any:
        """Returns the elements of an extension type with a shape: Arrow's FixedShapeTensor, or Ray's tensors."""
        if not isinstance(array.type, pa.BaseExtensionType):
            return array
        shape = getattr(array.type, "shape", None)
        if shape is None or list(getattr(array.type, "permutation", None) or range(len(shape))) != list(range(len(shape))):
            raise self._wrong_type()
        flat = self._enter(array.storage)
        if not isinstance(self._sizes[0], int):
            if (self._sizes[0] != np.arange(self.length + 1) * math.prod(shape)).any():
                raise self._wrong_type()
        self._sizes, rows = list(shape), self._ends[0]
        self._ends = [rows, *(rows * math.prod(shape[:axis + 1]) for axis in range(len(shape)))]
        return flat

    def _enter(self, lists: Any) -> Any:
        """Returns the items of lists, and notes where each row's begin."""
        self._check_nulls(lists)
        if pa.types.is_fixed_size_list(lists.type):
            size = lists.type.list_size
            self._sizes.append(size)
            self._ends.append(self._ends[-1] * size)
            return lists.values.slice(lists.offset * size, len(lists) * size)
        offsets = np.asarray(lists.offsets, np.int64)
        begin, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        offsets = offsets - begin if len(offsets) else np.zeros(1, np.int64)
        self._sizes.append(offsets)
        self._ends.append(offsets[self._ends[-1]])
        return lists.values.slice(begin, end - begin)

    def _check_nulls(self, inner: Any) -> None:
        """Notes rows with a null within their tensor."""
        if len(self._ends) == 1 or not inner.null_count:
            return
        rows = np.searchsorted(self._ends[-1], np.flatnonzero(np.asarray(inner.is_null(), bool)), "right") - 1
        for row in np.unique(rows):
            self.problems[int(row)] = "has a null within its tensor; must have none"

    def _elements(self, inner: Any) -> Any:
        (dtype, integers), name = self._options, _FLOATS.get(inner.type)
        if integers and pa.types.is_integer(inner.type):
            name = str(inner.type)
        elif inner.type == pa.uint16() and (dtype or "").upper() == "BF16":
            name = importlib.import_module("ml_dtypes").bfloat16
        if name is None:
            raise self._wrong_type()
        kind = np.dtype(name)
        data = inner.buffers()[1]
        if data is None or not len(inner):
            return np.zeros(0, kind)
        return np.frombuffer(data, kind, len(inner), inner.offset * kind.itemsize)

    def _shapes(self) -> Any:
        """Returns the shape of each row, [rows, rank]. Rows whose lists differ in length are problems."""
        shapes = np.zeros((self.length, self.rank), np.int64)
        for axis, sizes in enumerate(self._sizes):
            if isinstance(sizes, int):
                shapes[:, axis] = sizes
                continue
            lengths, ends = np.diff(sizes), self._ends[axis]
            if axis == 0:
                shapes[:, 0] = lengths
            elif len(lengths) and lengths.min() == lengths.max():
                shapes[:, axis] = lengths[0]
            else:
                for row in range(self.length):
                    found = np.unique(lengths[ends[row]:ends[row + 1]])
                    shapes[row, axis] = found[0] if len(found) else _UNKNOWN
                    if len(found) > 1 and self.valid[row]:
                        self.problems.setdefault(row, f"has lists of {found[0]} and of {found[-1]} items on axis {axis}; must "
                                                 "have one length")
        for axis in range(1, self.rank):  # a row without tokens goes with any other
            known = shapes[shapes[:, axis] != _UNKNOWN, axis]
            shapes[shapes[:, axis] == _UNKNOWN, axis] = known[0] if len(known) else 0
        return shapes

    def _wrong_type(self) -> InvalidArgument:
        kinds = "integers or floats" if self._options[1] else "float32, float16, or bfloat16 as uint16 with dtype='BF16'"
        return located(self.name, 0, f"is {self.type}; must be numbers, lists of them or fixed-shape tensors, of {kinds}")


def build(kind: Any, sizes: Sequence[Any], length: int, values: Any) -> Any:
    """Returns an array of a type. `sizes`: for each axis, one size or offsets. `values`: the elements in order."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, build(kind.storage_type, [math.prod(sizes)], length, values))
    if not sizes:
        values = np.ascontiguousarray(values).reshape(-1)
        if kind == pa.uint16():
            values = values.view(np.uint16)
        return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(values)])
    size = sizes[0]
    count = length * size if isinstance(size, int) else int(size[-1])
    child = build(kind.value_type, sizes[1:], count, values)
    if pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, length, [None], children=[child])
    offsets = np.arange(length + 1) * size if isinstance(size, int) else size
    width = np.int64 if pa.types.is_large_list(kind) else np.int32
    return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(offsets.astype(width))], children=[child])


def scattered(pieces: Sequence[tuple[Any, Any]], length: int) -> Any:
    """Returns an array of so many rows from pieces with their rows; the other rows are null."""
    if len(pieces) == 1 and len(pieces[0][0]) == length:
        return pieces[0][1]
    kind = pieces[0][1].type
    arrays = [array.storage if isinstance(kind, pa.BaseExtensionType) else array for _, array in pieces]
    places = np.full(length, -1)
    places[np.concatenate([np.asarray(rows, np.int64) for rows, _ in pieces])] = np.arange(sum(map(len, arrays)))
    whole = pa.concat_arrays(arrays).take(pa.array(places, mask=places < 0))
    return pa.ExtensionArray.from_storage(kind, whole) if isinstance(kind, pa.BaseExtensionType) else whole

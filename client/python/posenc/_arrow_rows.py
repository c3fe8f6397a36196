"""Calls for the rows of record batches: rows that fit together in one call, and the error of a row beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from posenc._arrow import located, pa, scattered
from posenc.errors import InvalidArgument, TooLarge, invalid

_MOST_ROWS, _MOST_BYTES = 16384, 64 << 20  # of one call; a server has limits of its own


class Rows:
    """A function of some columns of record batches.

    `read`: makes columns of arrays, by name. `compute`: makes the results of columns whose rows have equal rows of `key`.
    `into`: names of the results. `fields`: the columns by the beginnings of the names of a request's fields.
    """

    def __init__(self, read: Callable[[Mapping[str, Any]], dict[str, Any]], compute: Callable[[dict[str, Any]], list[Any]],
                 into: Sequence[str], fields: Mapping[str, str], key: Callable[[dict[str, Any]], Any] | None,
                 nulls: str = "null", errors: str = "raise", error_column: str = "error"):
        for name, value, allowed in (("nulls", nulls, ("null", "error")), ("errors", errors, ("raise", "column"))):
            if value not in allowed:
                raise invalid(name, value, f"must be one of {', '.join(allowed)}", "UNKNOWN_VALUE")
        self._read, self._compute, self._fields, self._key = read, compute, fields, key
        self._nulls_are_errors, self._raises, self._into = nulls == "error", errors == "raise", list(into)
        self._error_column = [] if self._raises else [error_column]
        self._bad: dict[int, InvalidArgument] = {}
        self._base = 0  # rows of the batches before

    def mapped(self, data: Any) -> Any:
        if not isinstance(data, (pa.RecordBatch, pa.Table)):
            data = pa.table(data)
        for name in self._fields.values():
            if len(data.schema.get_all_field_indices(name)) != 1:
                raise invalid(f"column {name!r}", f"there {len(data.schema.get_all_field_indices(name))} times",
                              f"must be there once; the columns are {', '.join(data.schema.names)}", "MISSING")
        is_table = isinstance(data, pa.Table)
        batches = data.to_batches() if is_table else [data]
        results = [self._batch(batch) for batch in batches or [_empty(data.schema)]]
        fields, arrays = [*data.schema], [*data.columns]
        for n, name in enumerate(self._into + self._error_column):
            parts = [result[n] for result in results]
            array, field = pa.chunked_array(parts) if is_table else parts[0], pa.field(name, parts[0].type)
            if (at := data.schema.get_field_index(name)) < 0:
                fields, arrays = [*fields, field], [*arrays, array]
            else:
                fields[at] = fields[at].with_type(field.type).with_nullable(fields[at].nullable or not self._raises)
                arrays[at] = array
        kind: Any = pa.Table if is_table else pa.RecordBatch
        return kind.from_arrays(arrays, schema=pa.schema(fields, data.schema.metadata))

    def _batch(self, batch: Any) -> list[Any]:
        """Returns the results of one record batch, and the column of messages."""
        columns = self._read({name: batch.column(name) for name in self._fields.values()})
        length, self._bad = batch.num_rows, {}
        good = np.all([column.valid for column in columns.values()], 0)
        for column in columns.values():
            for row in np.flatnonzero(~column.valid) if self._nulls_are_errors else ():
                self._bad.setdefault(int(row), self._located(column.name, row, "is null; must have a value"))
            for row, text in column.problems.items():
                if good[row]:
                    self._bad.setdefault(row, self._located(column.name, row, text))
        if self._bad and self._raises:
            raise self._bad[min(self._bad)]
        good[list(self._bad)] = False
        rows, pieces = np.flatnonzero(good), list[tuple[Any, list[Any]]]()
        for group in self._groups(columns, rows):
            self._attempt({name: column.take(group) for name, column in columns.items()}, group, pieces)
        if not pieces:
            none = np.zeros(0, np.int64)
            pieces.append((none, self._compute({name: column.take(none) for name, column in columns.items()})))
        results = [scattered([(rows, arrays[n]) for rows, arrays in pieces], length) for n in range(len(self._into))]
        if not self._raises:
            results.append(pa.array([str(self._bad[n]) if n in self._bad else None for n in range(length)], pa.string()))
        self._base += length
        return results

    def _groups(self, columns: dict[str, Any], rows: Any) -> list[Any]:
        if self._key is None or not len(rows):
            return [rows] if len(rows) else []
        keys, group = np.unique(self._key(columns)[rows], axis=0, return_inverse=True)
        return [rows] if len(keys) == 1 else [rows[group.reshape(-1) == n] for n in range(len(keys))]

    def _attempt(self, columns: dict[str, Any], rows: Any, pieces: list[tuple[Any, list[Any]]]) -> None:
        """Computes rows, in several calls if they are many, or if one of them is at fault."""
        size = sum(column.values.nbytes for column in columns.values() if hasattr(column, "values"))
        found: InvalidArgument | TooLarge | None = None
        if len(rows) == 1 or len(rows) <= _MOST_ROWS and size <= _MOST_BYTES:
            try:
                pieces.append((rows, self._compute(columns)))
                return
            except (InvalidArgument, TooLarge) as error:
                found = error
        if found is not None and (len(rows) == 1 or not (found.field.startswith("positions.") or isinstance(found, TooLarge))):
            name = next((name for field, name in self._fields.items() if found.field.startswith(field)), "")
            name = name or next(iter(self._fields.values()))
            if self._raises:
                raise self._located(name, rows[0], found.message) from found
            self._bad.update({int(row): self._located(name, row, found.message) for row in rows})
            return
        for half in (np.arange(len(rows) // 2), np.arange(len(rows) // 2, len(rows))):
            self._attempt({name: column.take(half) for name, column in columns.items()}, rows[half], pieces)

    def _located(self, name: str, row: Any, text: str) -> InvalidArgument:
        return located(name, self._base + int(row), text)


def _empty(schema: Any) -> Any:
    arrays: list[Any] = []
    for kind in schema.types:
        extends = isinstance(kind, pa.BaseExtensionType)
        array = pa.array([], kind.storage_type if extends else kind)
        arrays.append(pa.ExtensionArray.from_storage(kind, array) if extends else array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

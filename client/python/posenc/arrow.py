"""Positional encodings of columns: a pyarrow.RecordBatch or Table in, the same with the results out.

    import posenc, posenc.arrow
    client = posenc.local()  # or posenc.connect("host:50051")
    batch = posenc.arrow.rope(client, batch, "q", "k", model="config.json", positions="position")

A row is a sequence. Its tensor is a fixed-shape tensor, or (fixed-size) lists within each other; sequences of other lengths are
lists, which are sent together as packed tokens. A row's result does not depend on the other rows.

All functions also take: `nulls`: "null" (a row with a null in a column that is read gives nulls) or "error" (it is an error);
`errors`: "raise" (a row that cannot be computed raises posenc.InvalidArgument, which names column and row) or "column" (such
rows give nulls, and the column `error_column`, "error", has their messages). Results replace a column of the same name, or are added.
Anything else that Arrow can read as a table (a DataFrame of Polars, a relation of DuckDB) is a Table in the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posenc._arrow import Column, build, located, pa
from posenc._arrow_rows import Rows
from posenc.errors import invalid

if TYPE_CHECKING:
    from posenc._model import ModelLike
    from posenc.client import Client

__all__ = ["bias", "diagnose", "embedding", "explain", "rope", "table"]
_AXES = {"SHD": "THD", "HD": "THD", "SD": "THD", "D": "THD", "HSD": "BHSD"}
_LEAVES = {"float32": pa.float32(), "float16": pa.float16(), "float64": pa.float64(), "bfloat16": pa.uint16(),
           "int32": pa.int32()}
_VERDICT = pa.struct([("kind", pa.string()), ("sentence", pa.string())])


def rope(client: Client, data: Any, q: str, k: str | None = None, *, positions: str | int | Mapping[str, Any],
         into: Sequence[str] | str | None = None, axes: str = "SHD", dtype: str | None = None,
         model: ModelLike | None = None, settings: Any = None, layer: int | str | None = None, component: str | None = None,
         **fields: Any) -> Any:
    """Rotates the columns q and, optionally, k.

    `positions`: the position of each row's first token, or a column that has it; or a column with a list of one position, or of
    one position per axis, for each token; or fields of Positions whose "ids" or "offset" is one of these. `axes`: the
    axes of a row: "SHD" (tokens, heads, elements), "HSD", "HD" (one token), "SD" (one head) or "D". `into`: the columns that
    get the results, by default q and k. Lengths that set frequencies ("dynamic") are each row's own.
    """
    options = _options(fields)
    given, spec = _given(positions)
    if axes not in _AXES:
        raise invalid("axes", axes, f"must be one of {', '.join(_AXES)}")
    if model is not None:
        spec.setdefault("scaling_length_rule", "PER_SEQUENCE")
    tensors = [q] if k is None else [q, k]

    def read(arrays: Mapping[str, Any]) -> dict[str, Column]:
        columns = {name: _tensor(name, arrays[name], axes, dtype) for name in tensors}
        counts = _tokens(columns[q], axes)
        for name in tensors[1:]:
            _check_counts(columns[name], _tokens(columns[name], axes), counts, q)
        if isinstance(given, str):
            columns[given] = _positions(given, arrays[given], counts, q)
        return columns

    def compute(columns: Mapping[str, Column]) -> list[Any]:
        operands = [_operand(columns[name], axes) for name in tensors]
        if not operands[0].size:
            return [columns[name].made(columns[name].values) for name in tensors]
        counts = _tokens(columns[q], axes)
        where: dict[str, Any] = {"offset": given} if isinstance(given, int) else {}
        if isinstance(given, str):
            where = _ids(columns[given], counts)
        if axes != "HSD":
            where["cu_seqlens"] = np.concatenate([[0], np.cumsum(counts)])
        elif "ids" in where:
            where["ids"] = where["ids"].reshape(len(counts), counts[0], *where["ids"].shape[1:])
        request: Any = {**fields, "positions": {**where, **spec}, "layout": _AXES[axes]}
        answer: Any = client.rope(*operands, model=model, settings=settings, layer=layer, component=component, **request)
        return [columns[name].made(tensor) for name, tensor in zip(tensors, answer)]

    inner = [n for n, axis in enumerate(axes) if axis != "S" or axes == "HSD"]
    names = {"q": q, "k": k or q, "positions": given if isinstance(given, str) else q}
    return Rows(read, compute, _names(into, tensors), names,
                lambda columns: np.concatenate([columns[name].shapes[:, inner] for name in tensors], 1), **options).mapped(data)


def table(client: Client, data: Any, positions: str, *, into: Sequence[str] | str = ("cos", "sin"), **fields: Any) -> Any:
    """Adds columns with the cosines and sines at the positions, numbers or lists of numbers, of a column.

    `fields`: as of client.table: model or settings, dtype (BF16 gives uint16) and form.
    """
    options = _options(fields)
    def compute(columns: Mapping[str, Column]) -> list[Any]:
        request: Any = {**fields, "positions": _every(columns[positions])}
        answer: Any = client.table(**request)
        return [_per_token(columns[positions], tensor) for tensor in answer]

    return Rows(lambda arrays: {positions: _positions(positions, arrays[positions])}, compute, _names(into, []),
                {"positions": positions}, None, **options).mapped(data)


def embedding(client: Client, data: Any, positions: str, *, add_to: str | None = None, into: str | None = None,
              axes: str = "SD", dtype: str | None = None, **fields: Any) -> Any:
    """Adds a column, "embedding" or `into`, with the encoding at the positions of a column, or adds it to the column `add_to`.

    `fields`: as of client.embedding, e.g. sinusoidal. `axes`: those of add_to's rows, "SD" or "D".
    """
    options = _options(fields)
    def read(arrays: Mapping[str, Any]) -> dict[str, Column]:
        if add_to is None:
            return {positions: _positions(positions, arrays[positions])}
        column = _tensor(add_to, arrays[add_to], axes, dtype)
        return {add_to: column, positions: _positions(positions, arrays[positions], _tokens(column, axes), add_to)}

    def compute(columns: Mapping[str, Column]) -> list[Any]:
        if add_to is None:
            request: Any = {**fields, "positions": _every(columns[positions]), "dtype": dtype}
            return [_per_token(columns[positions], client.embedding(**request).embedding)]
        column = columns[add_to]
        tokens = _operand(column, axes)[:, 0]
        if not tokens.size:
            return [column.made(column.values)]
        request = {**fields, "positions": _ids(columns[positions], _tokens(column, axes)), "add_to": tokens}
        return [column.made(client.embedding(**request).embedding)]

    return Rows(read, compute, _names(into, [add_to or "embedding"]), {"add_to": add_to or positions, "positions": positions},
                None if add_to is None else lambda columns: columns[add_to].shapes[:, -1:], **options).mapped(data)


def bias(client: Client, data: Any, geometry: Mapping[str, str | int], *, into: str = "bias", **fields: Any) -> Any:
    """Adds a column with each row's dense attention bias, lists [heads, queries, keys].

    `geometry`: fields of BiasGeometry, each a number or the name of a column: {"query_length": "n", "key_length": "n"}.
    `fields`: as of client.bias: model or method, mask, dtype (BF16 gives uint16).
    """
    options = _options(fields)
    names = {field: name for field, name in geometry.items() if isinstance(name, str)}

    def compute(columns: Mapping[str, Column]) -> list[Any]:
        if not all(column.length for column in columns.values()):
            leaf = _LEAVES[{"FP16": "float16", "BF16": "bfloat16"}.get(str(fields.get("dtype")).upper(), "float32")]
            return [pa.array([], pa.list_(pa.list_(pa.list_(leaf))))]
        values = {field: int(columns[name].values[0]) for field, name in names.items()}
        request: Any = {**fields, "geometry": {**geometry, **values}, "form": "DENSE"}
        made: Any = client.bias(**request).bias
        made = made.reshape(-1, *made.shape[-2:])
        kind, rows = pa.list_(pa.list_(pa.list_(_LEAVES[made.dtype.name]))), len(columns[next(iter(names.values()))].array)
        return [build(kind, [*made.shape], rows, np.broadcast_to(made, (rows, *made.shape)))]

    def read(arrays: Mapping[str, Any]) -> dict[str, Column]:
        return {name: _positions(name, arrays[name], np.ones(len(arrays[name]), int)) for name in names.values()}

    return Rows(read, compute, [into], {f"geometry.{field}": name for field, name in names.items()},
                lambda columns: np.stack([columns[name].values for name in names.values()], 1), **options).mapped(data)


def explain(client: Client, data: Any, model: str, *, into: str = "explanation", **fields: Any) -> Any:
    """Adds a column with what each row's config.json, a text, says: a list of sentences."""
    options = _options(fields)
    def compute(columns: Mapping[str, Any]) -> list[Any]:
        made: list[list[str]] = []
        for text in columns[model].array.to_pylist():
            answer: Any = client.call("Explain", {"model": {"config_json": text.encode()}, **fields})
            made.append([sentence for layer in answer.layers for part in layer.text for sentence in part.sentence])
        return [pa.array(made, pa.list_(pa.string()))]

    return Rows(lambda arrays: {model: _Texts(model, arrays[model])}, compute, [into], {"model": model}, _each_row,
                **options).mapped(data)


def diagnose(client: Client, data: Any, before: str, after: str, *, positions: str | int | Mapping[str, Any],
             into: str = "diagnosis", axes: str = "SHD", dtype: str | None = None, **fields: Any) -> Any:
    """Adds a column with the verdict on each row's rotation: a struct of kind ("MATCHES", "DIFFERS", ...) and sentence.

    `positions`, `axes`, `dtype`: as of rope(). `fields`: as of client.diagnose: model or settings.
    """
    options = _options(fields)
    given, spec = _given(positions)

    def read(arrays: Mapping[str, Any]) -> dict[str, Column]:
        columns = {name: _tensor(name, arrays[name], axes, dtype) for name in (before, after)}
        counts = _tokens(columns[before], axes)
        _check_counts(columns[after], _tokens(columns[after], axes), counts, before)
        if isinstance(given, str):
            columns[given] = _positions(given, arrays[given], counts, before)
        return columns

    def compute(columns: Mapping[str, Column]) -> list[Any]:
        if not columns[before].length:
            return [pa.array([], _VERDICT)]
        operands = [_operand(columns[name], axes) for name in (before, after)]
        where = _ids(columns[given], _tokens(columns[before], axes)) if isinstance(given, str) else {"offset": given}
        request: Any = {**fields, "positions": {**where, **spec}, "layout": _AXES[axes]}
        verdict: Any = client.diagnose(*operands, **request).verdict
        return [pa.array([{"kind": verdict.kind, "sentence": verdict.sentence}], _VERDICT)]

    names = {"rotation.q.before": before, "rotation.q.after": after, "positions": given if isinstance(given, str) else before}
    return Rows(read, compute, [into], names, _each_row, **options).mapped(data)


def _options(fields: dict[str, Any]) -> dict[str, Any]:
    """Takes the arguments that are not fields of a request."""
    return {name: fields.pop(name) for name in ("nulls", "errors", "error_column") if name in fields}


def _given(positions: str | int | Mapping[str, Any]) -> tuple[str | int | None, dict[str, Any]]:
    """Returns the column of positions, or the first token's, and the other fields of Positions."""
    spec: dict[str, Any] = dict(positions) if isinstance(positions, Mapping) else {"ids": positions}
    ids, offset = spec.pop("ids", None), spec.pop("offset", None)
    return (offset if ids is None else ids), spec


class _Texts:
    """A column of texts."""

    def __init__(self, name: str, array: Any):
        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            raise located(name, 0, f"is {array.type}; must be a string, the text of a config.json")
        self.name, self.array, self.length, self.problems = name, array, len(array), dict[int, str]()
        self.valid = np.asarray(array.is_valid(), bool)

    def take(self, rows: Any) -> _Texts:
        return _Texts(self.name, self.array.take(pa.array(rows, pa.int64())))


def _tensor(name: str, array: Any, axes: str, dtype: str | None) -> Column:
    column = Column(name, array, dtype)
    if column.rank != len(axes):
        raise located(name, 0, f"is {array.type}; must have {len(axes)} axes, as axes={axes!r} says")
    return column


def _tokens(column: Column, axes: str) -> Any:
    """Returns the number of tokens of each row."""
    return column.shapes[:, axes.index("S")] if "S" in axes else np.ones(column.length, np.int64)


def _check_counts(column: Column, counts: Any, expected: Any, other: str) -> None:
    for row in np.flatnonzero(counts != expected):
        column.problems.setdefault(int(row), f"has {counts[row]} tokens; must have {expected[row]}, as column {other!r}")


def _operand(column: Column, axes: str) -> Any:
    """Returns the tensor of a call: [tokens, heads, elements] or [rows, heads, tokens, elements]."""
    sizes = dict(zip(axes, column.shapes[0] if column.length else (0,) * len(axes)))
    if axes == "HSD":
        return column.values.reshape(column.length, sizes["H"], sizes["S"], sizes["D"])
    tokens = int(_tokens(column, axes).sum())
    return column.values.reshape(tokens, sizes.get("H", 1), sizes["D"])


def _positions(name: str, array: Any, counts: Any = None, other: str = "") -> Column:
    """Returns a column of numbers, or of a list with a number, or with a list of numbers, for each token."""
    column = Column(name, array, None, integers=True)
    if column.rank > 2:
        raise located(name, 0, f"is {array.type}; must be a position, or a list of one position for each token")
    if column.rank and counts is not None:
        _check_counts(column, column.shapes[:, 0], counts, other)
    return column


def _ids(column: Column, counts: Any) -> dict[str, Any]:
    """Returns Positions with one position per token. `counts`: tokens of each row."""
    if column.rank:
        return _every(column)
    begins = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum())) - np.repeat(begins, counts)
    return {"ids": np.repeat(_numbers(column.values), counts) + steps}


def _every(column: Column) -> dict[str, Any]:
    values = _numbers(column.values)
    if column.rank < 2:
        return {"ids": values}
    return {"ids": values.reshape(-1, int(column.shapes[0, 1]) if column.length else 0), "axis_dimension": "LAST"}


def _numbers(values: Any) -> Any:
    return values.astype(np.int64) if values.dtype.kind in "iu" else values.astype(np.float64)


def _per_token(column: Column, tensor: Any) -> Any:
    """Returns rows with a vector, or a list of vectors, for each of a column of positions."""
    kind, sizes = _LEAVES[tensor.dtype.name], [*tensor.shape[1:]]
    for size in reversed(sizes):
        kind = pa.list_(kind, size)
    if column.rank:
        outer = column.outer
        sizes = [outer, *sizes]
        large = pa.types.is_large_list(column.type)
        kind = pa.list_(kind, outer) if isinstance(outer, int) else pa.large_list(kind) if large else pa.list_(kind)
    return build(kind, sizes, column.length, tensor)


def _names(into: Sequence[str] | str | None, default: Sequence[str]) -> list[str]:
    return list(default) if into is None else [into] if isinstance(into, str) else list(into)


def _each_row(columns: Mapping[str, Any]) -> Any:
    length: int = next(iter(columns.values())).length
    return np.arange(length)[:, None]

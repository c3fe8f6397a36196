"""Models: the text of a config.json from whatever describes it, and the arguments that stand for messages."""

from __future__ import annotations

import json
import marshal
import os
import pathlib
import stat
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from posenc._descriptors import api
from posenc._files import open_file, read_all
from posenc._tensors import NUMPY
from posenc._wire import Encoded, Encoder, join, new_message
from posenc.errors import Error, InvalidArgument, invalid

if TYPE_CHECKING:
    from typing import TypeAlias

_GGUF = b"GGUF"  # the first bytes of such a file
_MOST_CONFIG = 16 << 20  # bytes; the service has a lower limit and reports it


class PretrainedConfig(Protocol):
    """transformers' configurations."""

    def to_json_string(self, use_diff: bool = ...) -> str: ...


class Model:
    """A model's config.json or GGUF, read once. Pass it instead of a path in a loop.

    `source` is a path of a config.json, of a GGUF (read without its tokenizer and weights) or of a folder that holds one
    of them, a config.json's contents as a dict, or a transformers.PretrainedConfig. `layer` is an index or one of the file's
    layer types, `component` a part of the file: see posenc.v1.ModelConfig. Further fields of that message, such as
    input_pairing, are keyword arguments.
    """

    def __init__(self, source: ModelLike, *, layer: int | str | None = None, component: str | None = None, **fields: Any):
        if isinstance(source, Model):
            kept = {name: value for name, value in source._fields.items()
                    if layer is None or name not in ("layer_type", "layer_index")}
            self._fields = {**kept, **_choice(layer, component), **fields}
        else:
            self._fields = {**_file(source), **_choice(layer, component), **fields}
        pieces, _ = Encoder({}, True).message(api().messages["posenc.v1.ModelConfig"], self._fields, "model")
        self.encoded = Encoded(join(pieces))

    @property
    def config(self) -> dict[str, Any]:
        """The contents of the config.json."""
        if "config_json" not in self._fields:
            raise ValueError("a GGUF has no config.json")
        try:
            return cast("dict[str, Any]", json.loads(self._fields["config_json"]))
        except RecursionError:
            raise invalid("model", "", "must be at most 64 levels deep") from None


ModelLike: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | PretrainedConfig | Model"


def _choice(layer: int | str | None, component: str | None) -> dict[str, Any]:
    chosen: dict[str, Any] = {} if component is None else {"component": component}
    if layer is not None:
        chosen["layer_type" if isinstance(layer, str) else "layer_index"] = layer
    return chosen


def _file(source: Any) -> dict[str, Any]:
    """Returns the field of ModelConfig that holds a model's file."""
    if isinstance(source, Mapping):
        try:
            return {"config_json": json.dumps(dict(cast("Mapping[str, Any]", source))).encode()}
        except RecursionError:
            raise invalid("model", "", "must be at most 64 levels deep") from None
    if isinstance(source, (str, os.PathLike)):
        return _read(pathlib.Path(cast("str | os.PathLike[str]", source)))
    if hasattr(source, "to_json_string"):
        return {"config_json": cast(PretrainedConfig, source).to_json_string(use_diff=False).encode()}
    raise invalid("model", type(source).__name__, "must be a path, a folder, a dict, a PretrainedConfig or a posenc.Model")


def _read(path: pathlib.Path) -> dict[str, Any]:
    """Reads a config.json here, and by the library what only that can read: a GGUF, the Hugging Face cache's folders."""
    config = path
    if path.is_dir() and (path / "config.json").exists() and not any(path.glob("*.gguf")):
        config = path / "config.json"
    if not config.is_dir():
        try:
            with open_file(config) as file:
                if file.read(len(_GGUF)) != _GGUF and config.suffix not in (".gguf", ".onnx"):
                    file.seek(0)
                    return {"config_json": read_all(file, _MOST_CONFIG)}
        except OSError as error:
            raise invalid("model", path, f"must be a readable file or folder: {error.strerror}", "NOT_FOUND") from error
    from posenc._library import read_model
    try:
        read = new_message(api().messages["posenc.v1.ModelConfig"], memoryview(read_model(os.fspath(path))), NUMPY)
    except Error as error:
        field, reason = (f"model.{error.field}", error.reason) if error.field else ("model", "UNSUPPORTED")
        if error.code == "NOT_FOUND":
            reason = error.code
        raise InvalidArgument(f"model: {error.message}", "INVALID_ARGUMENT", reason, field, error.value or str(path),
                              error.limit or error.message) from error
    return read.to_dict()


_CACHE: dict[tuple[Any, ...], tuple[Any, Model]] = {}  # by contents or path, and by choice; with the file's stamp
_CACHE_SIZE = 64
_MOST_CONTENTS = 1 << 20  # bytes
_TICK = 50_000_000  # nanoseconds; file systems may give two writes in this time the same time


def model_of(source: ModelLike, layer: int | str | None = None, component: str | None = None) -> Model:
    """Returns the Model of a source. A dict is encoded again only if its contents change, a file if its stamp does."""
    if isinstance(source, Model):
        return source if layer is None and component is None else Model(source, layer=layer, component=component)
    contents: Any = None
    stamp: Any = None
    if isinstance(source, (str, os.PathLike)):
        contents = os.fspath(source)
        stamp = _stamp(contents)
    elif not hasattr(source, "to_json_string"):
        try:
            # Takes less time than JSON. Version 2 does not depend on the objects' identity.
            contents = marshal.dumps(cast(Any, source), 2)
        except ValueError:
            pass
    key = (contents, layer, component)
    found = _CACHE.get(key)
    if found is not None and found[0] == stamp:
        return found[1]
    model = Model(source, layer=layer, component=component)
    if _may_be_kept(source, contents, stamp, model):
        if len(_CACHE) >= _CACHE_SIZE:
            _CACHE.clear()
        _CACHE[key] = (stamp, model)
    return model


def _stamp(path: str) -> tuple[int, ...] | None:
    """Returns numbers that differ if a file, or a folder's config.json, was changed or replaced. None: there is no such file."""
    try:
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            return found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino
        inner = os.stat(os.path.join(path, "config.json"))
        # The folder's time changes with the files that it has, and a GGUF would be read instead.
        return max(inner.st_ctime_ns, found.st_ctime_ns), inner.st_mtime_ns, inner.st_size, inner.st_ino, found.st_mtime_ns
    except OSError:
        return None


def _may_be_kept(source: Any, contents: Any, stamp: Any, model: Model) -> bool:
    if stamp is None:
        if type(source) is not dict or contents is None or len(contents) > _MOST_CONTENTS:
            return False
        # marshal writes the bytes of whatever has the buffer protocol: NumPy's numbers could be mistaken for others.
        return marshal.loads(contents) == source
    if time.time_ns() - stamp[0] < _TICK:
        return False
    return "config_json" in model._fields or not os.path.isdir(contents)  # pyright: ignore[reportPrivateUsage]


def _positions(value: Any, path: str) -> Mapping[str, Any]:
    """A whole number is the offset of every sequence's first token; anything else is one position per token."""
    return {"offset": value} if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else {"ids": value}


def _precision(value: Any, path: str) -> Mapping[str, Any]:
    return {"preset": value.upper() if isinstance(value, str) else value}


def _model_config(value: Any, path: str) -> Encoded:
    try:
        return model_of(value).encoded
    except InvalidArgument as error:
        raise invalid(path, error.value, error.limit, error.reason) from error


def _source(value: Any, path: str) -> Mapping[str, Any]:
    return {"model": value}


# What may stand for a message, by the message's name.
SHORTHANDS: Mapping[str, Callable[[Any, str], Any]] = {
    "posenc.v1.ModelConfig": _model_config,
    "posenc.v1.RotarySource": _source,
    "posenc.v1.BiasMethod": _source,
    "posenc.v1.ComparedSettings": _source,
    "posenc.v1.Positions": _positions,
    "posenc.v1.Precision": _precision,
    "posenc.v1.RotaryOperand": lambda value, path: {"tensor": value},
}

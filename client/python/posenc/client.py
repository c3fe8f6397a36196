"""The methods, the same on a server (posenc.connect) and in this process (posenc.local).

posenc/aio.py is made from this file by client/python/generate.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from posenc import messages as m
from posenc._descriptors import api
from posenc._model import ModelLike, model_of
from posenc._streams import CHUNK_BYTES, RotatedRows, Rotation
from posenc._tensors import destination, kind_of, outputs
from posenc._wire import Message

if TYPE_CHECKING:
    from typing import Self, Unpack

    import numpy as np

    from posenc import fields as f
    from posenc._retry import RetryPolicy
    from posenc._tensors import TensorLike
    from posenc._tls import TLS
    from posenc._token import Token

    Array = np.ndarray[Any, Any]

T = TypeVar("T")


def source(model: ModelLike | None, settings: Any, layer: int | str | None, component: str | None) -> dict[str, Any] | None:
    """Returns a source of settings: a model's config.json, or the settings themselves."""
    if settings is not None:
        return {"settings": settings}
    return None if model is None else {"model": model_of(model, layer, component).encoded}


def operand(tensor: Any, fields: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if tensor is None else {**(fields or {}), "tensor": tensor}


class Client(abc.ABC):
    """Computes positional encodings. Thread-safe.

    Keyword arguments are fields of the RPC's request (proto/posenc/v1/service.proto), with the same names, values,
    defaults and limits; a mapping stands for a message, and a name without its type for an enum's value
    (layout="BSHD"). Short forms: `model`, with `layer` and `component`, is a path of a config.json or a GGUF, a folder,
    a dict, a PretrainedConfig or a posenc.Model; `positions` is the first token's position or one position per token;
    `precision` is a preset.

    Tensors are NumPy arrays, torch tensors on the CPU, or anything with DLPack or the buffer protocol. An answer's tensors
    are of the request's kind; without a tensor in the request, NumPy's, or `like`'s. The answer also says what was
    computed (`answer.info`). Iterating over it gives its tensors.

    A client can be pickled, as what made it. The process that unpickles it has one such client, which all copies share, and
    which close() does not end. TLS and tokens must then be files or variables.

    `timeout` limits the whole call, in seconds, with all retries. All methods raise posenc.Error.
    """

    def rope(self, q: T, k: T | None = None, *, model: ModelLike | None = None, settings: f.RotarySettings | None = None,
                   layer: int | str | None = None, component: str | None = None,
                   q_fields: f.RotaryOperand | None = None, k_fields: f.RotaryOperand | None = None,
                   out: Sequence[T] | T | None = None, timeout: float | None = None,
                   **fields: Unpack[f.ApplyRotaryFields]) -> m.ApplyRotaryResponse[T]:
        """Rotates q and, optionally, k.

            q, k = client.rope(q, k, model="config.json", positions=0, layout="BSHD")

        `out`: tensors of the same shapes and types that get the results, or a single one. They may be q and k themselves.
        """
        request = {"rotary": source(model, settings, layer, component), **fields, "q": operand(q, q_fields),
                   "k": operand(k, k_fields)}
        return self._call("ApplyRotary", request, q, timeout, ("q.tensor", "k.tensor"), out)

    def move_keys(self, k: T, *, from_positions: f.Positions | TensorLike | int, model: ModelLike | None = None,
                        settings: f.RotarySettings | None = None, layer: int | str | None = None,
                        component: str | None = None, from_model: ModelLike | None = None,
                        from_settings: f.RotarySettings | None = None, pages: f.KvPages | None = None,
                        k_fields: f.RotaryOperand | None = None, out: T | None = None, timeout: float | None = None,
                        **fields: Unpack[f.ApplyRotaryFields]) -> m.ApplyRotaryResponse[T]:
        """Turns keys of a KV cache, rotated at `from_positions`, to `positions`, in one exact rotation.

            (k,) = client.move_keys(k, model="config.json", from_positions=4096, positions=0, layout="BSHD")

        `from_model`, `from_settings`: by which they were rotated, if not by `model` or `settings`. `pages`: k is the whole
        cache, B pages of S tokens, and these pages turn in place (local clients only). `out`: a tensor of k's shape and
        type that gets the result; it may be k.
        """
        origin = {"positions": from_positions, "rotary": source(from_model, from_settings, layer, component), "pages": pages}
        request = {"rotary": source(model, settings, layer, component), **fields, "cached_keys": origin,
                   "k": operand(k, k_fields)}
        into = k if pages is not None and out is None else out
        if into is not None:
            destination(kind_of(into), into, "k" if into is k else "out")
        return self._call("ApplyRotary", request, k, timeout, ("q.tensor", "k.tensor"), None if into is None else (None, into))

    def rope_in_chunks(self, q: T, k: T | None = None, *, model: ModelLike | None = None,
                             settings: f.RotarySettings | None = None, layer: int | str | None = None,
                             component: str | None = None, q_fields: f.RotaryOperand | None = None,
                             k_fields: f.RotaryOperand | None = None, out: Sequence[T] | T | None = None,
                             chunk_bytes: int = CHUNK_BYTES, timeout: float | None = None,
                             **fields: Unpack[f.ApplyRotaryFields]) -> m.ApplyRotaryResponse[T]:
        """Rotates q and k of any size, also above the server's limits: in chunks of about `chunk_bytes`, by a stream.

        With np.memmap arrays and `out`, only a few chunks are in memory at a time. `out` may be q and k themselves, but must
        not overlap them otherwise. If a stream ends early, the chunks without an answer go into a new one. `timeout` is for
        all of them.
        """
        rotation = Rotation({"rotary": source(model, settings, layer, component), **fields}, operand(q, q_fields),
                            operand(k, k_fields), out, chunk_bytes, whole=True)
        for _ in self._rows(rotation, timeout):
            pass
        return rotation.result()

    def stream_rope(self, q: T, k: T | None = None, *, model: ModelLike | None = None,
                    settings: f.RotarySettings | None = None, layer: int | str | None = None, component: str | None = None,
                    q_fields: f.RotaryOperand | None = None, k_fields: f.RotaryOperand | None = None,
                    out: Sequence[T] | T | None = None, chunk_bytes: int = CHUNK_BYTES, timeout: float | None = None,
                    **fields: Unpack[f.ApplyRotaryFields]) -> Iterator[RotatedRows[T]]:
        """Yields the rows of rope_in_chunks() as they are rotated, in any order.

            for part in client.stream_rope(q, k, model="config.json", positions=0, layout="BSHD"):
                use(part.operand, part.begin, part.rows)
        """
        rotation = Rotation({"rotary": source(model, settings, layer, component), **fields}, operand(q, q_fields),
                            operand(k, k_fields), out, chunk_bytes, whole=False)
        return self._rows(rotation, timeout)

    @overload
    def table(self, *, like: T, model: ModelLike | None = ..., settings: f.RotarySettings | None = ...,
                    layer: int | str | None = ..., component: str | None = ..., timeout: float | None = ...,
                    **fields: Unpack[f.GenerateTableRequest]) -> m.GenerateTableResponse[T]: ...
    @overload
    def table(self, *, like: None = None, model: ModelLike | None = ..., settings: f.RotarySettings | None = ...,
                    layer: int | str | None = ..., component: str | None = ..., timeout: float | None = ...,
                    **fields: Unpack[f.GenerateTableRequest]) -> m.GenerateTableResponse[Array]: ...
    def table(self, *, like: Any = None, model: ModelLike | None = None, settings: f.RotarySettings | None = None,
                    layer: int | str | None = None, component: str | None = None, timeout: float | None = None,
                    **fields: Unpack[f.GenerateTableRequest]) -> m.GenerateTableResponse[Any]:
        """Returns the cosines and sines of a rotary embedding.

            cos, sin = client.table(model="config.json", positions=0, count=4096, dtype="FP32", form="HALF_WIDTH")
        """
        request = {"rotary": source(model, settings, layer, component), **fields}
        return self._call("GenerateTable", request, like, timeout)

    def stream_table(self, *, like: Any = None, rows_per_tile: int | None = None, model: ModelLike | None = None,
                     settings: f.RotarySettings | None = None, layer: int | str | None = None, component: str | None = None,
                     timeout: float | None = None,
                     **fields: Unpack[f.GenerateTableRequest]) -> Iterator[m.StreamTableResponse[Any]]:
        """Yields a table of any size in tiles of rows. Only the first has `info`.

            for tile in client.stream_table(model=path, positions=0, count=1 << 24, dtype="FP32", form="HALF_WIDTH"):
                use(tile.row_begin, tile.cos, tile.sin)
        """
        table = {"rotary": source(model, settings, layer, component), **fields}
        return self._tiles("StreamTable", {"table": table, "rows_per_tile": rows_per_tile}, like, timeout)

    @overload
    def bias(self, *, like: T, model: ModelLike | None = ..., layer: int | str | None = ..., component: str | None = ...,
                   timeout: float | None = ..., **fields: Unpack[f.GenerateBiasRequest]) -> m.GenerateBiasResponse[T]: ...
    @overload
    def bias(self, *, like: None = None, model: ModelLike | None = ..., layer: int | str | None = ...,
                   component: str | None = ..., timeout: float | None = ...,
                   **fields: Unpack[f.GenerateBiasRequest]) -> m.GenerateBiasResponse[Array]: ...
    def bias(self, *, like: Any = None, model: ModelLike | None = None, layer: int | str | None = None,
                   component: str | None = None, timeout: float | None = None,
                   **fields: Unpack[f.GenerateBiasRequest]) -> m.GenerateBiasResponse[Any]:
        """Returns an attention bias.

            bias = client.bias(model="bloom", geometry={"query_length": 128, "key_length": 128}, form="DENSE",
                               dtype="FP32").bias
        """
        return self._call("GenerateBias", {"method": source(model, None, layer, component), **fields}, like, timeout)

    def stream_bias(self, *, like: Any = None, rows_per_tile: int | None = None, model: ModelLike | None = None,
                    layer: int | str | None = None, component: str | None = None, timeout: float | None = None,
                    **fields: Unpack[f.GenerateBiasRequest]) -> Iterator[m.StreamBiasResponse[Any]]:
        """Yields an attention bias of any size in tiles of query rows. Only the first has `info`."""
        bias = {"method": source(model, None, layer, component), **fields}
        return self._tiles("StreamBias", {"bias": bias, "rows_per_tile": rows_per_tile}, like, timeout)

    def add_bias(self, scores: T, *, model: ModelLike | None = None, layer: int | str | None = None,
                       component: str | None = None, out: Sequence[T] | T | None = None, timeout: float | None = None,
                       **fields: Unpack[f.AddBiasFields]) -> m.AddBiasResponse[T]:
        """Adds an attention bias to the scores. `out` is a tensor that gets them; it may hold the scores themselves."""
        request = {"method": source(model, None, layer, component), **fields, "scores": scores}
        return self._call("AddBias", request, scores, timeout, ("scores",), out)

    def scores(self, q: T, k: T | None = None, *, timeout: float | None = None,
                     **fields: Unpack[f.RelativeScoresFields]) -> m.RelativeScoresResponse[T]:
        """Returns the positional term of the scores, for methods that need q and k."""
        return self._call("RelativeScores", {**fields, "q": q, "k": k}, q, timeout)

    def values(self, probabilities: T, *, timeout: float | None = None,
                     **fields: Unpack[f.RelativeValuesFields]) -> m.RelativeValuesResponse[T]:
        """Returns the positional term of the values (Shaw)."""
        return self._call("RelativeValues", {**fields, "probabilities": probabilities}, probabilities, timeout)

    @overload
    def embedding(self, *, like: T, timeout: float | None = ...,
                        **fields: Unpack[f.GenerateEmbeddingRequest]) -> m.GenerateEmbeddingResponse[T]: ...
    @overload
    def embedding(self, *, like: None = None, timeout: float | None = ...,
                        **fields: Unpack[f.GenerateEmbeddingRequest]) -> m.GenerateEmbeddingResponse[Array]: ...
    def embedding(self, *, like: Any = None, timeout: float | None = None,
                        **fields: Unpack[f.GenerateEmbeddingRequest]) -> m.GenerateEmbeddingResponse[Any]:
        """Returns an absolute encoding, alone or added to the tensor `add_to`.

            client.embedding(sinusoidal={"convention": "INTERLEAVED", "dim": 512}, positions=0, count=64, dtype="FP32")
        """
        add_to = fields.get("add_to")
        return self._call("GenerateEmbedding", fields, like if add_to is None else add_to, timeout,
                          ("add_to",) if add_to is not None else ())

    def explain(self, model: ModelLike | None = None, *, layer: int | str | None = None, component: str | None = None,
                      timeout: float | None = None, **fields: Unpack[f.ExplainFields]) -> m.ExplainResponse:
        """Explains a config.json or settings: frequencies, scaling, slopes, notes."""
        return self._call("Explain", {"model": _subject(model, layer, component), **fields}, None, timeout)

    def analyze(self, *, model: ModelLike | None = None, settings: f.RotarySettings | None = None,
                      layer: int | str | None = None, component: str | None = None, timeout: float | None = None,
                      **fields: Unpack[f.AnalyzeRequest]) -> m.AnalyzeResponse[Array]:
        """Analyzes how settings change attention over distance, as the numbers that plots show."""
        return self._call("Analyze", {"rotary": source(model, settings, layer, component), **fields}, None, timeout)

    def compare(self, a: ModelLike | f.ComparedSettings, b: ModelLike | f.ComparedSettings, *,
                      timeout: float | None = None, **fields: Unpack[f.CompareFields]) -> m.CompareResponse:
        """Tells whether two models give the same positional encoding. Settings: {"rotary": {...}}, {"bias": {...}}."""
        return self._call("Compare", {"a": _side(a), "b": _side(b), **fields}, None, timeout)

    def positions(self, *, model: ModelLike | None = None, component: str | None = None,
                        latents: f.LatentDescription | None = None, given: f.GivenPositions | None = None,
                        token_begin: int | None = None, token_count: int | None = None, timeout: float | None = None,
                        **tokens: Unpack[f.TokenDescription]) -> m.PositionsResponse[Array]:
        """Computes position ids as the model's class does, from a description of text, images, videos and audio.

            client.positions(model="config.json", mm_token_type_ids=types, image_grid_thw=grids).ids  # [axes, B, S]

        `latents`: the description for a diffusion model. `given`: ids of another system, to be compared.
        """
        if latents is not None and tokens:
            raise ValueError(f"{next(iter(tokens))}: must be absent with latents, which have no tokens")
        request = {"model": _subject(model, None, component), "tokens": None if latents is not None else tokens,
                   "latents": latents, "given": given, "token_begin": token_begin, "token_count": token_count}
        return self._call("Positions", request, None, timeout)

    def diagnose(self, before: Any = None, after: Any = None, *, model: ModelLike | None = None,
                       settings: f.RotarySettings | None = None, layer: int | str | None = None,
                       component: str | None = None, timeout: float | None = None,
                       **fields: Unpack[f.DiagnoseRequest]) -> m.DiagnoseResponse:
        """Finds which rotary encoding turned `before` into `after`, and where it departs from the model's.

        Tables and frequencies: table={"cos": cos, "sin": sin, "form": "HALF_WIDTH"}, inv_freq=frequencies.
        """
        rotation = None if before is None and after is None else {"q": {"before": before, "after": after}}
        request = {"expected": source(model, settings, layer, component), "rotation": rotation, **fields}
        return self._call("Diagnose", request, None, timeout)

    def diagnose_bias(self, bias: T, *, model: ModelLike | None = None, layer: int | str | None = None,
                            component: str | None = None, timeout: float | None = None,
                            **fields: Unpack[f.DiagnoseBiasFields]) -> m.DiagnoseBiasResponse[T]:
        """Finds which method produced an attention bias, and how the bias is masked."""
        request = {"expected": source(model, None, layer, component), **fields, "bias": bias}
        return self._call("DiagnoseBias", request, bias, timeout)

    def info(self, *, timeout: float | None = None) -> m.GetServerInfoResponse:
        """Returns version, devices, methods, limits and counters."""
        return self._call("GetServerInfo", {}, None, timeout)

    def call(self, rpc: str, request: Mapping[str, Any], *, like: Any = None, timeout: float | None = None) -> Message:
        """Calls any unary RPC by its name, with the fields of its request."""
        return self._call(rpc, request, like, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the connection or the threads. Tensors of answers remain valid."""

    def _call(self, name: str, request: Mapping[str, Any], like: Any, timeout: float | None,
                    shapes: Sequence[str] = (), out: Any = None) -> Any:
        """Makes a call. `shapes`: paths of the request's tensors whose shapes and types the answer's tensors have."""
        rpc = api().rpcs.get(name)
        if rpc is None or name.startswith("Stream"):
            raise ValueError(f"rpc: is {name!r}; must be a unary RPC")
        return self._run(rpc, request, like, timeout, shapes, outputs(out))

    @abc.abstractmethod
    def _run(self, rpc: Any, request: Mapping[str, Any], like: Any, timeout: float | None, shapes: Sequence[str],
                   out: Sequence[Any] | None) -> Any:
        ...

    @abc.abstractmethod
    def _tiles(self, name: str, request: Mapping[str, Any], like: Any, timeout: float | None) -> Iterator[Any]:
        ...

    @abc.abstractmethod
    def _rows(self, rotation: Rotation, timeout: float | None) -> Iterator[RotatedRows[Any]]:
        ...


def _subject(model: ModelLike | None, layer: int | str | None, component: str | None) -> Any:
    return None if model is None else model_of(model, layer, component).encoded


def _side(side: Any) -> Any:
    """Returns one side of a comparison: a dict is settings if it has a field of ComparedSettings, else a config.json."""
    if isinstance(side, Mapping) and cast("Mapping[str, Any]", side).keys() <= api().messages["posenc.v1.ComparedSettings"].fields.keys():
        return cast(Any, side)
    return {"model": model_of(cast(Any, side)).encoded}


def connect(address: str, *, tls: TLS | bool = False, timeout: float = 60.0, retry: RetryPolicy | None = None,
            shared_memory: str | bool | None = None, token: str | Token | None = None, wait_for_ready: bool = False) -> Client:
    """Returns a client of a posenc-server: "host:50051", "unix:/run/posenc.sock", "dns:///posenc.example:443".

    `tls`: True to check the server's certificate by the system's authorities, or a posenc.TLS. `timeout`: seconds a call,
    unless it says otherwise. A server is not needed until the first call. `wait_for_ready`: a call that reaches no server
    is tried again until its timeout, not only as often as `retry` says; posenc.RetryPolicy(total=600) waits for a server that
    comes back. `shared_memory`: the --shared-memory-socket of a
    server on this host; tensors of 1 MiB and more of rope and add_bias are then passed in shared memory. By default, a
    client of a local address looks for it at $POSENC_SHARED_MEMORY_SOCKET or /run/posenc/memory.sock; False: never.
    `token`: the bearer token of an identity, for a server with a policy; it takes tokens over TLS and Unix sockets only. A
    client with a posenc.Token can be pickled, one with a str cannot.
    """
    from posenc._remote import RemoteClient
    from posenc._token import Secret
    secret = (Secret(token) if token else None) if isinstance(token, str) else token
    return RemoteClient(address, tls, timeout, retry, shared_memory, secret, wait_for_ready).opened()


def local(*, threads: int = 0, max_request_bytes: int = 0, max_output_bytes: int = 0) -> Client:
    """Returns a client that computes in this process, to the same bytes as a server.

    `threads`: 0 for $OMP_NUM_THREADS, one in a worker of torch's DataLoader, or as many as this process may
    use. Limits of a call's tensors in bytes; 0 for half of the memory.
    """
    from posenc._local import LocalClient
    return LocalClient(threads, max_request_bytes, max_output_bytes).opened()

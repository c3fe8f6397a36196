"""Tensors of NumPy, torch, and whatever has DLPack or the buffer protocol, as bytes on the wire and back.

The API's elements are little-endian and row-major. Strided and big-endian arrays are converted here, by a copy; anything
else that cannot be sent as it is is refused.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from posenc._descriptors import varint
from posenc.errors import invalid

if TYPE_CHECKING:
    from typing import TypeAlias

class SupportsDLPack(Protocol):
    def __dlpack__(self) -> Any: ...


Buffer: TypeAlias = "bytes | bytearray | memoryview"
TensorLike: TypeAlias = "np.ndarray[Any, Any] | SupportsDLPack | Buffer"

# Numbers of posenc.v1.DataType.
FP32, FP16, BF16, FP64, INT32, INT64, BOOL = range(1, 8)
_NUMPY = {FP32: "<f4", FP16: "<f2", FP64: "<f8", INT32: "<i4", INT64: "<i8", BOOL: "?"}
_NUMBERS = {np.dtype(name): number for number, name in _NUMPY.items()}
_TORCH = {FP32: "float32", FP16: "float16", BF16: "bfloat16", FP64: "float64", INT32: "int32", INT64: "int64",
          BOOL: "bool"}
BYTES = {FP32: 4, FP16: 2, BF16: 2, FP64: 8, INT32: 4, INT64: 8, BOOL: 1}
_COPIED = 32 << 10  # up to these bytes, a copy takes less time than a view
_DTYPES = "must be float32, float16, bfloat16, float64, int32, int64 or bool"


class View:
    """A dense tensor in memory. `owner` keeps the memory alive."""
    __slots__ = ("dtype", "shape", "address", "size", "owner")

    def __init__(self, dtype: int, shape: tuple[int, ...], address: int, size: int, owner: object):
        self.dtype, self.shape, self.address, self.size, self.owner = dtype, shape, address, size, owner

    def bytes(self) -> memoryview:
        return memoryview((ctypes.c_char * self.size).from_address(self.address)).cast("B") if self.size else memoryview(b"")

    def overlaps(self, other: View) -> bool:
        """True if the tensors have a byte of memory in common."""
        return max(self.address, other.address) < min(self.address + self.size, other.address + other.size)


@functools.lru_cache(maxsize=4096)
def header(dtype: int, shape: tuple[int, ...]) -> bytes:
    """Returns the fields dtype and shape of a posenc.v1.Tensor."""
    sizes = b"".join(varint(size) for size in shape)
    return b"\x08" + varint(dtype) + (b"\x12" + varint(len(sizes)) + sizes if shape else b"")


def address_of(memory: Any) -> int:
    """Returns the address of a buffer's first byte."""
    return np.frombuffer(memory, np.uint8).__array_interface__["data"][0] if len(memory) else 0


def _address(array: Any) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # in half of the other's time
    except (TypeError, ValueError):  # read-only, empty, or of a type without a buffer's format
        return array.__array_interface__["data"][0]


class NumPyKind:
    """NumPy arrays; also what is converted to them: buffers, lists and numbers."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _kind_named, ("numpy",)

    def view(self, tensor: Any, field: str) -> View:
        array: np.ndarray[Any, Any] = tensor if type(tensor) is np.ndarray else np.asarray(tensor)
        dtype = _NUMBERS.get(array.dtype)
        if dtype is None:
            if array.dtype.byteorder == ">":
                array = array.astype(array.dtype.newbyteorder("<"))
            dtype = _NUMBERS.get(array.dtype) or (BF16 if array.dtype.name == "bfloat16" else 0)
            if not dtype:
                raise invalid(f"{field}.dtype", array.dtype, _DTYPES)
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        return View(dtype, array.shape, _address(array), array.nbytes, array)

    def new(self, like: View) -> tuple[Any, int] | None:
        """Returns a tensor of the same type and shape, whose contents are undefined, and its address."""
        array = np.empty(like.shape, _numpy_dtype(like.dtype))
        return array, _address(array)

    def wrap(self, dtype: int, shape: tuple[int, ...], memory: Any) -> Any:
        """Returns a tensor over a writable buffer of the tensor's size, aligned to its elements."""
        return np.frombuffer(memory, _numpy_dtype(dtype)).reshape(shape)


class TorchKind:
    """torch's tensors on the CPU."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _kind_named, ("torch",)

    def __init__(self) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._dtypes = {number: getattr(self._torch, name) for number, name in _TORCH.items()}
        self._numbers = {dtype: number for number, dtype in self._dtypes.items()}

    def view(self, tensor: Any, field: str) -> View:
        if tensor.device.type != "cpu":
            raise invalid(f"{field}.device", tensor.device, "must be cpu: use tensor.cpu()")
        if tensor.requires_grad and self._torch.is_grad_enabled():
            raise invalid(f"{field}.requires_grad", True, "must be False: use tensor.detach()")
        dtype = self._numbers.get(tensor.dtype)
        if dtype is None:
            raise invalid(f"{field}.dtype", tensor.dtype, _DTYPES)
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if not tensor.is_contiguous():
            tensor = tensor.contiguous()
        return View(dtype, tuple(tensor.shape), tensor.data_ptr(), tensor.numel() * BYTES[dtype], tensor)

    def empty(self, dtype: int, shape: tuple[int, ...]) -> Any:
        return self._torch.empty(shape, dtype=self._dtypes[dtype])

    def new(self, like: View) -> tuple[Any, int] | None:
        tensor = self.empty(like.dtype, like.shape)
        return tensor, tensor.data_ptr()

    def wrap(self, dtype: int, shape: tuple[int, ...], memory: Any) -> Any:
        if 0 in shape:
            return self.empty(dtype, shape)
        return self._torch.frombuffer(memory, dtype=self._dtypes[dtype]).reshape(shape)


class NamespaceKind:
    """Arrays of another library of the array API standard, e.g. JAX, by DLPack."""

    def __init__(self, namespace: Any):
        self._namespace = namespace
        self._numpy = NumPyKind()

    def __reduce__(self) -> tuple[Any, ...]:
        return _kind_named, (self._namespace.__name__,)

    def view(self, tensor: Any, field: str) -> View:
        return _dlpack_view(tensor, field)

    def new(self, like: View) -> tuple[Any, int] | None:
        return None  # its arrays may be immutable: the answer gets memory of its own

    def wrap(self, dtype: int, shape: tuple[int, ...], memory: Any) -> Any:
        return self._namespace.from_dlpack(self._numpy.wrap(dtype, shape, memory))


class DLPackKind(NumPyKind):
    """Other objects with DLPack. Answers are NumPy arrays."""

    def view(self, tensor: Any, field: str) -> View:
        return _dlpack_view(tensor, field)


Kind: TypeAlias = "NumPyKind | TorchKind | NamespaceKind"
NUMPY = NumPyKind()
_torch = functools.cache(TorchKind)
_namespace = functools.cache(NamespaceKind)
_DLPACK = DLPackKind()


def _kind_named(name: str) -> Kind:
    """Returns the kind of a pickled answer. `name`: a module that gives arrays."""
    return NUMPY if name == "numpy" else _torch() if name == "torch" else _namespace(importlib.import_module(name))


def _dlpack_view(tensor: Any, field: str) -> View:
    try:
        array: np.ndarray[Any, Any] = np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError) as error:
        raise invalid(field, type(tensor).__name__, f"must give its memory by DLPack to the CPU: {error}") from error
    return NUMPY.view(array, field)


def kind_of(tensor: Any) -> Kind:
    """Returns the kind of a tensor, or NumPy's for None and what is converted to it."""
    if tensor is None or isinstance(tensor, (np.ndarray, np.generic)):
        return NUMPY
    torch: Any = sys.modules.get("torch")  # a caller with a tensor of torch has imported it
    if torch is not None and isinstance(tensor, torch.Tensor):
        return _torch()
    if hasattr(tensor, "__array_namespace__"):
        return _namespace(tensor.__array_namespace__())
    return _DLPACK if hasattr(tensor, "__dlpack__") else NUMPY


def destination(kind: Kind, tensor: Any, field: str) -> View:
    """Returns the view of a tensor that is to be written to."""
    if isinstance(kind, (NamespaceKind, DLPackKind)):
        raise invalid(field, type(tensor).__name__, "must be a NumPy array or a tensor of torch")
    view = kind.view(tensor, field)
    if view.owner is not tensor and not (isinstance(tensor, np.ndarray) and view.address == _address(tensor)):
        raise invalid(field, "strided or big-endian", "must be contiguous and little-endian")
    if isinstance(tensor, np.ndarray) and not tensor.flags.writeable:
        raise invalid(field, "read-only", "must be writable")
    return view


def outputs(out: Any) -> Sequence[Any] | None:
    """Returns the tensors that a caller gave as `out`: a list of them, None where there is none, or a single one. Raises an
    error if two of them have memory in common: one result would overwrite the other."""
    given = cast("Sequence[Any] | None", out if out is None or isinstance(out, (list, tuple)) else [out])
    several: Sequence[Any] = given if given is not None and len(given) > 1 else []
    views = [destination(kind_of(tensor), tensor, f"out[{n}]") for n, tensor in enumerate(several) if tensor is not None]
    for (n, one), (m, other) in itertools.combinations(enumerate(views), 2):
        if one.overlaps(other):
            raise invalid(f"out[{m}]", f"in the memory of out[{n}]", "must not overlap another output", "CONFLICT")
    return given


def check_same(to: View, answer: View, field: str) -> None:
    """Raises an error unless a destination has the type and the shape of an answer's tensor."""
    if (to.dtype, to.shape) != (answer.dtype, answer.shape):
        raise invalid(field, f"{_TORCH[to.dtype]} {to.shape}",
                      f"must be {_TORCH[answer.dtype]} {answer.shape}, as the answer", "MISMATCH")


def copy_into(tensor: Any, answer: Any, field: str) -> Any:
    """Copies an answer's tensor to a caller's memory and returns that."""
    if answer is None:
        raise invalid(field, "present", "must be left out: the answer has no such tensor", "NOT_READ")
    to, source = destination(kind_of(tensor), tensor, field), kind_of(answer).view(answer, field)
    check_same(to, source, field)
    ctypes.memmove(to.address, source.address, to.size)
    return tensor


@functools.cache
def _numpy_dtype(dtype: int) -> np.dtype[Any]:
    if dtype != BF16:
        return np.dtype(_NUMPY[dtype])
    try:
        ml_dtypes = importlib.import_module("ml_dtypes")
    except ImportError as error:
        raise invalid("dtype", "BF16", "must be another type without ml_dtypes: pip install ml_dtypes") from error
    return np.dtype(ml_dtypes.bfloat16)


def received(kind: Kind, dtype: int, shape: tuple[int, ...], data: memoryview) -> Any:
    """Returns a tensor of an answer: a view of the received bytes, or a copy if its elements are not aligned there.

    The bytes belong to this answer alone, so the view may be written to.
    """
    if math.prod(shape) * BYTES[dtype] != len(data):
        raise ValueError(f"an answer has {len(data)} bytes for shape {shape}")
    if len(data) <= _COPIED:
        return kind.wrap(dtype, shape, bytearray(data))
    address = address_of(data)
    if address % BYTES[dtype] == 0:
        memory: Any = (ctypes.c_char * len(data)).from_address(address)
        memory.owner = data
    else:
        memory = bytearray(data)
    return kind.wrap(dtype, shape, memory)

"""Converts between numpy and posenc.v1.Tensor. numpy has no bfloat16: its values are float32 here."""

import numpy
from posenc.v1 import tensor_pb2

FP32, FP16, BF16, FP64, INT32, INT64, BOOL = (
    getattr(tensor_pb2, f"DATA_TYPE_{name}") for name in ("FP32", "FP16", "BF16", "FP64", "INT32", "INT64", "BOOL"))

NUMPY = {FP32: "<f4", FP16: "<f2", BF16: "<u2", FP64: "<f8", INT32: "<i4", INT64: "<i8", BOOL: "?"}


def to_bf16(values):
    """Converts float32 to bfloat16's bits, to nearest, ties to even. NaN is not supported."""
    bits = numpy.asarray(values, "<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def from_bf16(bits):
    return (numpy.asarray(bits, "<u4") << 16).view("<f4")


def rounded(values, dtype):
    """Rounds float32 values to a narrower type and returns them as float32."""
    values = numpy.asarray(values, "<f4")
    return from_bf16(to_bf16(values)) if dtype == BF16 else values.astype(NUMPY[dtype]).astype("<f4")


def tensor(values, dtype):
    values = numpy.asarray(values)
    stored = to_bf16(values) if dtype == BF16 else values.astype(NUMPY[dtype])
    return tensor_pb2.Tensor(dtype=dtype, shape=values.shape, data=stored.tobytes())


def array(message):
    """Returns a view of the tensor's elements; for BF16 a copy as float32."""
    values = numpy.frombuffer(message.data, NUMPY[message.dtype]).reshape(tuple(message.shape))
    return from_bf16(values) if message.dtype == BF16 else values

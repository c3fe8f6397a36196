"""Modules like those that protoc writes, from api.binpb."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper


@functools.cache
def _pool() -> Any:
    """Returns protobuf's pool with the API's files. A file that is there already, from other stubs, stays."""
    pool = descriptor_pool.Default()
    contents = importlib.resources.files("posenc").joinpath("api.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(contents).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _class_of(message: Any) -> Any:
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(message)
    return message_factory.MessageFactory(_pool()).GetPrototype(message)  # before protobuf 4.22


def messages_of(file: str) -> dict[str, Any]:
    """Returns a proto file's messages and enums, and the enums' values, by name."""
    descriptor = _pool().FindFileByName(file)
    found = {"DESCRIPTOR": descriptor}
    for name, message in descriptor.message_types_by_name.items():
        found[name] = _class_of(message)
    for name, enum in descriptor.enum_types_by_name.items():
        found[name] = enum_type_wrapper.EnumTypeWrapper(enum)
        found.update({value.name: value.number for value in enum.values})
    return found


def _serialize(message: Any) -> bytes:
    return message.SerializeToString()


def stub_of(service_name: str) -> type:
    """Returns the class of the service's stubs: an object of it has a callable for each RPC, with grpcio's arguments."""
    service = _pool().FindServiceByName(service_name)

    class Stub:
        """Calls the service by a grpc.Channel, which may be one of grpc.aio."""

        def __init__(self, channel: grpc.Channel):
            for method in service.methods:
                described = descriptor_pb2.MethodDescriptorProto()
                method.CopyToProto(described)
                sent, answered = ("stream" if one else "unary" for one in (described.client_streaming, described.server_streaming))
                call: Callable[..., Any] = getattr(channel, f"{sent}_{answered}")
                setattr(self, method.name, call(f"/{service_name}/{method.name}", request_serializer=_serialize,
                                                response_deserializer=_class_of(method.output_type).FromString))

    Stub.__name__ = Stub.__qualname__ = f"{service.name}Stub"
    return Stub

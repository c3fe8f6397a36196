"""Writes the descriptors of a Python client's stubs, from which protoc makes code: descriptors.py MODULE FILE"""

import importlib
import pathlib
import sys

from google.protobuf import descriptor_pb2


def add(file, into):
    for needed in file.dependencies:
        add(needed, into)
    if file.name not in [one.name for one in into.file]:
        file.CopyToProto(into.file.add())


files = descriptor_pb2.FileDescriptorSet()
add(importlib.import_module(sys.argv[1]).DESCRIPTOR, files)
pathlib.Path(sys.argv[2]).write_bytes(files.SerializeToString())
print(*(file.name for file in files.file))

"""The API's messages for google.protobuf and its service for grpcio, as protoc's stubs have them: for code that has such
requests already. It needs the package protobuf.

    from posenc.v1 import rotary_pb2, service_pb2, service_pb2_grpc

The modules are made from the protos' descriptors, so they work with every release of protobuf since 4.21.
"""

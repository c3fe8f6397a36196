// Conversion between small protobuf messages and gRPC buffers, for services that are not posenc's own.
#pragma once

#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace posenc::server {

inline bool ParseMessage(grpc::ByteBuffer* bytes, google::protobuf::MessageLite* message) {
  if (!bytes->Valid()) return false;
  grpc::ProtoBufferReader reader(bytes);
  return message->ParseFromZeroCopyStream(&reader);
}

inline grpc::ByteBuffer SerializeMessage(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

}  // namespace posenc::server

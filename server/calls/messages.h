// Conversion between small protobuf messages and gRPC buffers, for services that are not posenc's own.
#pragma once

#include <cstddef>

#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace posenc::server {

// Returns false if there is no message, it has more than `most` bytes, or it is malformed. The size is checked first.
// The bytes are released in any case: a caller can delay the end of its call.
inline bool ParseMessage(grpc::ByteBuffer* given, size_t most, google::protobuf::MessageLite* message) {
  grpc::ByteBuffer bytes;
  bytes.Swap(given);
  if (!bytes.Valid() || bytes.Length() > most) return false;
  grpc::ProtoBufferReader reader(&bytes);
  return message->ParseFromZeroCopyStream(&reader);
}

inline grpc::ByteBuffer SerializeMessage(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

}  // namespace posenc::server

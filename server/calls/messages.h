// Messages of gRPC: those of services that are not posenc's own, and compressed ones.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace posenc::server {

// True if the message is compressed with gzip. gRPC hands compressed messages over as they come, because it would
// decompress them whatever their size.
bool IsCompressed(grpc::ByteBuffer* message);
// Decompresses a message in place. Errors and `go_on` as those of Inflate().
absl::Status Decompress(grpc::ByteBuffer* message, size_t most, const std::function<absl::Status()>& go_on);

// Returns false if there is no message, it has more than `most` bytes, or it is malformed. The size is checked first.
// The bytes are released in any case: a caller can delay the end of its call.
bool ParseMessage(grpc::ByteBuffer* given, size_t most, google::protobuf::MessageLite* message);

grpc::ByteBuffer SerializeMessage(const google::protobuf::MessageLite& message);

}  // namespace posenc::server

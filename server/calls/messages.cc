#include "server/calls/messages.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "grpcpp/support/proto_buffer_reader.h"
#include "posenc/base/status.h"
#include "server/core/compression.h"

namespace posenc::server {
namespace {

// A buffer of one slice, which owns the text.
grpc::ByteBuffer BufferOf(std::string text) {
  auto owned = std::make_unique<std::string>(std::move(text));
  const auto release = [](void* given) { delete static_cast<std::string*>(given); };
  const grpc::Slice slice(owned->data(), owned->size(), release, owned.get());
  owned.release();
  return {&slice, 1};
}

}  // namespace

bool IsCompressed(grpc::ByteBuffer* message) {
  if (!message->Valid()) return false;
  grpc::ProtoBufferReader reader(message);
  std::string begin;
  const void* data = nullptr;
  for (int size = 0; begin.size() < 2 && reader.Next(&data, &size);) {
    begin.append(static_cast<const char*>(data), static_cast<size_t>(std::min(size, 2)));
  }
  return IsGzip({reinterpret_cast<const std::byte*>(begin.data()), begin.size()});
}

absl::Status Decompress(grpc::ByteBuffer* message, size_t most, const std::function<absl::Status()>& go_on) {
  std::string text;
  {
    grpc::ProtoBufferReader reader(message);
    POSENC_ASSIGN_OR_RETURN(text, Inflate(&reader, most, kWholeRequest, go_on));
  }
  grpc::ByteBuffer buffer = BufferOf(std::move(text));
  message->Swap(&buffer);
  return absl::OkStatus();
}

bool ParseMessage(grpc::ByteBuffer* given, size_t most, google::protobuf::MessageLite* message) {
  grpc::ByteBuffer bytes;
  bytes.Swap(given);
  if (!bytes.Valid() || bytes.Length() > most) return false;
  if (IsCompressed(&bytes) && !Decompress(&bytes, most, [] { return absl::OkStatus(); }).ok()) return false;
  grpc::ProtoBufferReader reader(&bytes);
  return message->ParseFromZeroCopyStream(&reader);
}

grpc::ByteBuffer SerializeMessage(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

}  // namespace posenc::server

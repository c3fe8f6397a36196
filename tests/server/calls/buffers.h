// Strings as gRPC's byte buffers.
#pragma once

#include <string>
#include <vector>

#include "grpcpp/support/byte_buffer.h"

namespace posenc::server {

// The bytes of a buffer.
inline std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  static_cast<void>(buffer.Dump(&slices));
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(slice.begin(), slice.end());
  return bytes;
}

// The bytes in slices of `most`, as gRPC delivers a message in frames.
inline grpc::ByteBuffer BufferOf(const std::string& bytes, size_t most) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += most) slices.emplace_back(bytes.substr(at, most));
  return {slices.data(), slices.size()};
}

}  // namespace posenc::server

// Serializes a message without copying its tensors' bytes: the inverse of the walker.
//
//   0a 8a01 (q { 78.. (shape)  7a 8001 | <the caller's bytes> | 12 ..
//   piece of a header                    piece by reference     piece of a header
//
// The pieces, put together, are what protobuf serializes: its own code writes every field, and hands over large strings
// by reference.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/wire/payloads.h"

namespace posenc::wire {

struct Gathered {
  struct Piece {
    absl::Span<const std::byte> bytes;
    bool lent;  // refers to the message or to a view; else to `headers`
  };
  std::vector<Piece> pieces;
  std::vector<std::unique_ptr<std::byte[]>> headers;
  size_t size = 0;  // of all pieces
};

// What is shorter is copied: a piece of its own would cost more.
inline constexpr size_t kSmallestLent = 4096;

// Each view's bytes stand for the data of its tensor or chunk, which is part of the message and has none of its own
// (CheckViews). The message and the bytes must outlive the result. RESOURCE_EXHAUSTED when the message would be too
// large for gRPC, whose sizes are ints.
absl::StatusOr<Gathered> Gather(const google::protobuf::Message& message, absl::Span<const TensorView> views);

}  // namespace posenc::wire

// Serializes a message without copying its tensors' bytes: the inverse of the walker.
//
//   0a 8a01 (q { 78.. (shape)  7a 8001 | <the caller's bytes> | 12 ..
//   piece of a header                    piece by reference     piece of a header
//
// The concatenated pieces equal protobuf's serialization: protobuf's own code writes every field and passes large
// strings by reference.
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
    bool lent;  // points into the message or a view; else into `headers`
  };
  std::vector<Piece> pieces;
  std::vector<std::unique_ptr<std::byte[]>> headers;
  size_t size = 0;  // bytes of all pieces
};

// Bytes. Shorter strings are copied, which is cheaper than a separate piece.
inline constexpr size_t kSmallestLent = 4096;

// Serializes `message`. Each view supplies the data of its tensor or chunk, which must be part of the message and have
// no data itself. The message and the views' bytes must outlive the result. RESOURCE_EXHAUSTED if the message is too
// large for gRPC, whose sizes are ints.
absl::StatusOr<Gathered> Gather(const google::protobuf::Message& message, absl::Span<const TensorView> views);

}  // namespace posenc::wire

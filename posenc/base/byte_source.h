// Bytes that may lie in several places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/types/span.h"

namespace posenc {

// A message that came over a network lies in pieces of some kilobytes, which end anywhere. Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // What lies together in memory from `offset` on: at least one byte, wherever there is one.
  virtual absl::Span<const std::byte> From(size_t offset) const = 0;
};

// Copies `size` bytes from `offset` on to `out`, which may be where they are.
inline void Copy(const ByteSource& from, size_t offset, size_t size, std::byte* out) {
  for (size_t done = 0; done < size;) {
    const absl::Span<const std::byte> piece = from.From(offset + done);
    const size_t bytes = std::min(piece.size(), size - done);
    if (piece.data() != out + done) std::memcpy(out + done, piece.data(), bytes);
    done += bytes;
  }
}

// All in one place.
class ContiguousBytes final : public ByteSource {
 public:
  ContiguousBytes(const std::byte* data, size_t size) : bytes_(data, size) {}
  absl::Span<const std::byte> From(size_t offset) const override { return bytes_.subspan(offset); }

 private:
  absl::Span<const std::byte> bytes_;
};

}  // namespace posenc

// Read-only byte sequences that may consist of several memory chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/types/span.h"
#include "posenc/base/interruption.h"

namespace posenc {

// A message received over a network consists of chunks of some kilobytes, with arbitrary boundaries. Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Returns the contiguous bytes from `offset` on, up to the end of their chunk: at least one, unless at the end.
  virtual absl::Span<const std::byte> From(size_t offset) const = 0;
};

// Bytes that are copied between two interruption points.
inline constexpr size_t kCopiedTogether = size_t{1} << 20;

// Copies `size` bytes from `offset` on to `out`. In place is allowed: bytes that are already at `out` are skipped.
inline void Copy(const ByteSource& from, size_t offset, size_t size, std::byte* out) {
  for (size_t done = 0; done < size;) {
    if (done > 0 && done % kCopiedTogether == 0) InterruptionPoint();
    const absl::Span<const std::byte> piece = from.From(offset + done);
    const size_t bytes = std::min({piece.size(), size - done, kCopiedTogether - done % kCopiedTogether});
    if (piece.data() != out + done) std::memcpy(out + done, piece.data(), bytes);
    done += bytes;
  }
}

// ByteSource over one contiguous buffer, which it does not own.
class ContiguousBytes final : public ByteSource {
 public:
  ContiguousBytes(const std::byte* data, size_t size) : bytes_(data, size) {}
  absl::Span<const std::byte> From(size_t offset) const override { return bytes_.subspan(offset); }

 private:
  absl::Span<const std::byte> bytes_;
};

}  // namespace posenc

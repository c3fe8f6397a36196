// Bytes that may lie in several places.
#pragma once

#include <cstddef>

#include "absl/types/span.h"

namespace posenc {

// A message that came over a network lies in pieces of some kilobytes, which end anywhere. Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // What lies together in memory from `offset` on: at least one byte, wherever there is one.
  virtual absl::Span<const std::byte> From(size_t offset) const = 0;
};

// All in one place.
class ContiguousBytes final : public ByteSource {
 public:
  ContiguousBytes(const std::byte* data, size_t size) : bytes_(data, size) {}
  absl::Span<const std::byte> From(size_t offset) const override { return bytes_.subspan(offset); }

 private:
  absl::Span<const std::byte> bytes_;
};

}  // namespace posenc

// Where the bytes of a request's tensors are.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "absl/types/span.h"
#include "posenc/byte_source.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::wire {

// In process, a tensor's bytes are in the message. In the server they stay in the call's slices, and Tensor.data holds
// only a ticket (walker.h). Code that reads requests sees this interface and does not know which. Thread-safe.
class Payloads {
 public:
  virtual ~Payloads() = default;
  virtual size_t Size(const v1::Tensor& tensor) const = 0;
  // What lies together in memory from `offset` on, which is less than Size(tensor): at least one byte.
  virtual absl::Span<const std::byte> From(const v1::Tensor& tensor, size_t offset) const = 0;
  // The same of a piece of a tensor.
  virtual size_t Size(const v1::TensorChunk& chunk) const = 0;
  virtual absl::Span<const std::byte> From(const v1::TensorChunk& chunk, size_t offset) const = 0;

  // Copies all Size(tensor) bytes to `out`.
  void CopyTo(const v1::Tensor& tensor, std::byte* out) const {
    const size_t size = Size(tensor);
    for (size_t done = 0; done < size;) {
      const absl::Span<const std::byte> piece = From(tensor, done);
      std::memcpy(out + done, piece.data(), piece.size());
      done += piece.size();
    }
  }
};

class InMessage final : public Payloads {
 public:
  size_t Size(const v1::Tensor& tensor) const override { return tensor.data().size(); }
  size_t Size(const v1::TensorChunk& chunk) const override { return chunk.data().size(); }
  absl::Span<const std::byte> From(const v1::Tensor& tensor, size_t offset) const override {
    return From(tensor.data(), offset);
  }
  absl::Span<const std::byte> From(const v1::TensorChunk& chunk, size_t offset) const override {
    return From(chunk.data(), offset);
  }

 private:
  static absl::Span<const std::byte> From(const std::string& data, size_t offset) {
    return {reinterpret_cast<const std::byte*>(data.data()) + offset, data.size() - offset};
  }
};

// The bytes of one Tensor or TensorChunk. It and the payloads must outlive this.
template <typename Message>
class BytesOf final : public ByteSource {
 public:
  BytesOf(const Payloads& payloads, const Message& message) : payloads_(payloads), message_(message) {}
  absl::Span<const std::byte> From(size_t offset) const override { return payloads_.From(message_, offset); }

 private:
  const Payloads& payloads_;
  const Message& message_;
};
using TensorBytes = BytesOf<v1::Tensor>;
using ChunkBytes = BytesOf<v1::TensorChunk>;

}  // namespace posenc::wire

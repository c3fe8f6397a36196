// Where the bytes of a request's tensors are.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/base/byte_source.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc {
class Device;  // posenc/device/device.h
}

namespace posenc::wire {

// In process, a tensor's bytes are in the message. In the server they stay in the call's slices, and Tensor.data holds
// only a ticket (walker.h), or they are in a region (shared_memory.h). Code that reads requests sees this interface and
// does not know which. Thread-safe.
class Payloads {
 public:
  virtual ~Payloads() = default;
  virtual size_t Size(const v1::Tensor& tensor) const = 0;
  // What lies together in memory from `offset` on, which is less than Size(tensor): at least one byte.
  virtual absl::Span<const std::byte> From(const v1::Tensor& tensor, size_t offset) const = 0;
  // The first byte of one of the request's regions. Null where there is no shared memory: tensors in it cannot be read.
  virtual std::byte* At(const v1::Region&) const { return nullptr; }
  // Whose addresses those are; null: this host's.
  virtual Device* DeviceOf(const v1::Region&) const { return nullptr; }
  // The same of a piece of a tensor. Those that do not come in slices have it in the message.
  virtual size_t Size(const v1::TensorChunk& chunk) const { return chunk.data().size(); }
  virtual absl::Span<const std::byte> From(const v1::TensorChunk& chunk, size_t offset) const {
    return {reinterpret_cast<const std::byte*>(chunk.data().data()) + offset, chunk.data().size() - offset};
  }

  // Copies all Size() bytes to `out`, which may be where they are.
  void CopyTo(const v1::Tensor& tensor, std::byte* out) const;
  void CopyTo(const v1::TensorChunk& chunk, std::byte* out) const;
};

class InMessage final : public Payloads {
 public:
  size_t Size(const v1::Tensor& tensor) const override { return tensor.data().size(); }
  absl::Span<const std::byte> From(const v1::Tensor& tensor, size_t offset) const override {
    return {reinterpret_cast<const std::byte*>(tensor.data().data()) + offset, tensor.data().size() - offset};
  }
};

// Bytes that stand for the data of a tensor (a v1::Tensor or v1::TensorChunk of a message), which has none of its own.
struct TensorView {
  const google::protobuf::Message* tensor;
  absl::Span<const std::byte> bytes;
};

// In process, but that some tensors' bytes are beside the message. The views must outlive it.
class BesideMessage final : public Payloads {
 public:
  explicit BesideMessage(absl::Span<const TensorView> views) : views_(views) {}
  size_t Size(const v1::Tensor& tensor) const override { return BytesOf(tensor).size(); }
  absl::Span<const std::byte> From(const v1::Tensor& tensor, size_t offset) const override {
    return BytesOf(tensor).subspan(offset);
  }

 private:
  absl::Span<const std::byte> BytesOf(const v1::Tensor& tensor) const {
    for (const TensorView& view : views_) {
      if (view.tensor == &tensor) return view.bytes;
    }
    return {reinterpret_cast<const std::byte*>(tensor.data().data()), tensor.data().size()};
  }

  const absl::Span<const TensorView> views_;
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

inline void Payloads::CopyTo(const v1::Tensor& tensor, std::byte* out) const {
  Copy(TensorBytes(*this, tensor), 0, Size(tensor), out);
}
inline void Payloads::CopyTo(const v1::TensorChunk& chunk, std::byte* out) const {
  Copy(ChunkBytes(*this, chunk), 0, Size(chunk), out);
}

}  // namespace posenc::wire

// Access to the bytes of a request's tensors, wherever they are stored.
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

// Interface that hides where tensor bytes are stored. In process they are in the message. In the server they stay in
// the call's slices, and Tensor.data holds only a ticket (walker.h), or they are in a region (shared_memory.h).
// Thread-safe.
class Payloads {
 public:
  virtual ~Payloads() = default;
  virtual size_t Size(const v1::Tensor& tensor) const = 0;
  // Returns contiguous bytes from `offset` on, at least one. Requires offset < Size(tensor).
  virtual absl::Span<const std::byte> From(const v1::Tensor& tensor, size_t offset) const = 0;
  // Returns the first byte of one of the request's regions; null if shared memory is not supported here.
  virtual std::byte* At(const v1::Region&) const { return nullptr; }
  // Returns the device that owns the addresses of At(); null for host memory.
  virtual Device* DeviceOf(const v1::Region&) const { return nullptr; }
  // Size() and From() of a tensor's chunk. By default its bytes are in the message.
  virtual size_t Size(const v1::TensorChunk& chunk) const { return chunk.data().size(); }
  virtual absl::Span<const std::byte> From(const v1::TensorChunk& chunk, size_t offset) const {
    return {reinterpret_cast<const std::byte*>(chunk.data().data()) + offset, chunk.data().size() - offset};
  }

  // Copies all Size() bytes to `out`, in place if they are already there.
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

// Bytes outside a message that are the data of one of its tensors (v1::Tensor or v1::TensorChunk), whose data is empty.
struct TensorView {
  const google::protobuf::Message* tensor;
  absl::Span<const std::byte> bytes;
};

// Payloads in process, with some tensors' bytes in views instead of in the message. The views must outlive it.
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

// ByteSource of one Tensor or TensorChunk. The message and the payloads must outlive it.
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

// Zero-copy reading of gRPC messages, shared by server and client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "google/protobuf/io/zero_copy_stream.h"
#include "grpcpp/support/byte_buffer.h"
#include "posenc/wire/payloads.h"
#include "posenc/wire/shared_memory.h"
#include "posenc/wire/walker.h"

namespace posenc::transport {

// Returns the bytes of the array in which gRPC lists the slices of a received message: up to 48 for each DATA frame,
// also where a frame has one byte. They come on top of the message's Length(), and gRPC's memory quota does not count
// them. 0 for a message of few slices, whose array is part of its object.
size_t SliceListBytes(grpc::ByteBuffer* message);

// Returns the slices of a message, which share its bytes; nullopt if it cannot be read. Throws std::bad_alloc before
// the vector takes memory that the thread's memory account (memory_account.h) refuses.
std::optional<std::vector<grpc::Slice>> SlicesOf(grpc::ByteBuffer* message);

// Input stream over the bytes of gRPC slices, in order. The slices must outlive it.
class SliceStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit SliceStream(const std::vector<grpc::Slice>& slices) : slices_(slices) {}
  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  int64_t ByteCount() const override { return consumed_; }

 private:
  const std::vector<grpc::Slice>& slices_;
  size_t slice_ = 0;   // index of the slice with the next byte
  size_t within_ = 0;  // the next byte's offset in that slice
  int64_t consumed_ = 0;
};

// Payloads of a stripped message: tensor bytes stay in the received slices or in shared memory. Owns the slices.
class SlicedPayloads final : public wire::Payloads {
 public:
  // Throws std::bad_alloc like SlicesOf().
  SlicedPayloads(std::vector<grpc::Slice> slices, std::vector<wire::ByteRange> ranges);

  // Sets the request's regions, which must outlive this. Before that, tensors in regions have size 0.
  void SetRegions(const wire::RequestRegions* regions) { regions_ = regions; }

  size_t Size(const v1::Tensor& tensor) const override;
  absl::Span<const std::byte> From(const v1::Tensor& tensor, size_t offset) const override;
  std::byte* At(const v1::Region& region) const override {
    return regions_ == nullptr ? nullptr : regions_->At(region);
  }
  Device* DeviceOf(const v1::Region& region) const override {
    return regions_ == nullptr ? nullptr : regions_->DeviceOf(region);
  }
  size_t Size(const v1::TensorChunk& chunk) const override;
  absl::Span<const std::byte> From(const v1::TensorChunk& chunk, size_t offset) const override;

  // Adds bytes that are not part of the message, as the data of a tensor. Returns the ticket for its data.
  std::string Add(std::string bytes);

  // Access by ticket: size and contiguous bytes of the data with ticket n < count().
  size_t count() const { return ranges_.size(); }
  size_t SizeOf(size_t n) const { return ranges_[n].length; }
  absl::Span<const std::byte> PieceOf(size_t n, size_t offset) const { return From(ranges_[n], offset); }

 private:
  absl::Span<const std::byte> From(wire::ByteRange range, size_t offset) const;

  std::vector<grpc::Slice> slices_;
  std::vector<size_t> begins_;  // byte offset of each slice in the message
  std::vector<wire::ByteRange> ranges_;
  const wire::RequestRegions* regions_ = nullptr;
};

}  // namespace posenc::transport

// gRPC's buffers, read and made without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "google/protobuf/io/zero_copy_stream.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/admission.h"
#include "wire/payloads.h"
#include "wire/walker.h"

namespace posenc::server {

// The bytes of the slices, in order. The slices must outlive it.
class SliceStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit SliceStream(const std::vector<grpc::Slice>& slices) : slices_(slices) {}
  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  int64_t ByteCount() const override { return consumed_; }

 private:
  const std::vector<grpc::Slice>& slices_;
  size_t slice_ = 0;   // the one that the next byte is in
  size_t within_ = 0;  // where in it
  int64_t consumed_ = 0;
};

// The tensors of a stripped request, whose bytes stay in the slices that they came in.
class SlicedPayloads final : public wire::Payloads {
 public:
  SlicedPayloads(std::vector<grpc::Slice> slices, std::vector<wire::ByteRange> ranges);

  size_t Size(const v1::Tensor& tensor) const override;
  absl::Span<const std::byte> From(const v1::Tensor& tensor, size_t offset) const override;
  size_t Size(const v1::TensorChunk& chunk) const override;
  absl::Span<const std::byte> From(const v1::TensorChunk& chunk, size_t offset) const override;

 private:
  absl::Span<const std::byte> From(wire::ByteRange range, size_t offset) const;

  std::vector<grpc::Slice> slices_;
  std::vector<size_t> begins_;  // of each slice in the request
  std::vector<wire::ByteRange> ranges_;
};

// Memory for an answer, not initialised, so that its pages are first touched by those who compute it. The charge is
// returned when the last slice of it is released, which may be long after the call.
class AnswerBuffer {
 public:
  // Throws std::bad_alloc.
  AnswerBuffer(size_t size, std::shared_ptr<Charge> charge);

  std::byte* data() { return block_->memory.get(); }
  // One slice of the first `size` bytes; ends the buffer.
  grpc::ByteBuffer Release() &&;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Block {
    std::unique_ptr<std::byte, Free> memory;
    std::shared_ptr<Charge> charge;
  };
  size_t size_;
  std::unique_ptr<Block> block_;
};

}  // namespace posenc::server

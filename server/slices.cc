#include "server/slices.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace posenc::server {

bool SliceStream::Next(const void** data, int* size) {
  if (slice_ == slices_.size()) return false;
  const grpc::Slice& slice = slices_[slice_];
  *data = slice.begin() + within_;
  *size = static_cast<int>(slice.size() - within_);
  consumed_ += *size;
  ++slice_;
  within_ = 0;
  return true;
}

void SliceStream::BackUp(int count) {
  --slice_;
  within_ = slices_[slice_].size() - count;
  consumed_ -= count;
}

bool SliceStream::Skip(int count) {
  const void* data;
  for (int size; Next(&data, &size); count -= size) {
    if (size >= count) {
      if (size > count) BackUp(size - count);
      return true;
    }
  }
  return count == 0;
}

SlicedPayloads::SlicedPayloads(std::vector<grpc::Slice> slices, std::vector<wire::ByteRange> ranges)
    : slices_(std::move(slices)), ranges_(std::move(ranges)) {
  size_t begin = 0;
  for (const grpc::Slice& slice : slices_) {
    begins_.push_back(begin);
    begin += slice.size();
  }
}

size_t SlicedPayloads::Size(const v1::Tensor& tensor) const { return wire::RangeOf(tensor.data(), ranges_).length; }

size_t SlicedPayloads::Size(const v1::TensorChunk& chunk) const { return wire::RangeOf(chunk.data(), ranges_).length; }

absl::Span<const std::byte> SlicedPayloads::From(const v1::Tensor& tensor, size_t offset) const {
  return From(wire::RangeOf(tensor.data(), ranges_), offset);
}

absl::Span<const std::byte> SlicedPayloads::From(const v1::TensorChunk& chunk, size_t offset) const {
  return From(wire::RangeOf(chunk.data(), ranges_), offset);
}

absl::Span<const std::byte> SlicedPayloads::From(wire::ByteRange range, size_t offset) const {
  const size_t at = range.offset + offset;
  // The last slice that begins at or before it; empty ones that begin there too come before that one.
  const size_t n = std::upper_bound(begins_.begin(), begins_.end(), at) - begins_.begin() - 1;
  const size_t skip = at - begins_[n];
  return {reinterpret_cast<const std::byte*>(slices_[n].begin()) + skip,
          std::min(range.length - offset, slices_[n].size() - skip)};
}

AnswerBuffer::AnswerBuffer(size_t size, std::shared_ptr<Charge> charge)
    : size_(size), block_(std::make_unique<Block>()) {
  block_->memory.reset(static_cast<std::byte*>(std::malloc(std::max<size_t>(size, 1))));
  if (block_->memory == nullptr) throw std::bad_alloc();
  block_->charge = std::move(charge);
}

grpc::ByteBuffer AnswerBuffer::Release() && {
  std::byte* const memory = data();
  // Called on a gRPC thread.
  const auto destroy = [](void* block) { delete static_cast<Block*>(block); };
  const grpc::Slice slice(memory, size_, destroy, block_.release());
  return grpc::ByteBuffer(&slice, 1);
}

void AnswerBuffer::Free::operator()(std::byte* memory) const { std::free(memory); }

}  // namespace posenc::server

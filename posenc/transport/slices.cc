#include "posenc/transport/slices.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "grpcpp/support/proto_buffer_reader.h"
#include "posenc/base/memory_account.h"

namespace posenc::transport {
namespace {

// Number of slices of a message. grpc::ByteBuffer does not tell it; this class of gRPC's has access.
class SliceCounter final : public grpc::ProtoBufferReader {
 public:
  explicit SliceCounter(grpc::ByteBuffer* message) : ProtoBufferReader(message), valid_(message->Valid()) {}
  size_t count() { return valid_ ? reader()->buffer_in->data.raw.slice_buffer.count : 0; }

 private:
  const bool valid_;
};

}  // namespace

size_t SliceListBytes(grpc::ByteBuffer* message) {
  const size_t count = SliceCounter(message).count();
  // gRPC lets a full array grow by half.
  return count <= GRPC_SLICE_BUFFER_INLINE_ELEMENTS ? 0 : count * sizeof(grpc_slice) * 3 / 2;
}

std::optional<std::vector<grpc::Slice>> SlicesOf(grpc::ByteBuffer* message) {
  std::vector<grpc::Slice> slices;
  {
    const LargeBlocksMayBeRefused scope;
    slices.reserve(SliceCounter(message).count());
  }
  if (!message->Valid() || !message->Dump(&slices).ok()) return std::nullopt;
  return slices;
}

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
  const LargeBlocksMayBeRefused scope;
  begins_.reserve(slices_.size());
  size_t begin = 0;
  for (const grpc::Slice& slice : slices_) {
    begins_.push_back(begin);
    begin += slice.size();
  }
}

std::string SlicedPayloads::Add(std::string bytes) {
  if (bytes.empty()) return "";
  const size_t begin = slices_.empty() ? 0 : begins_.back() + slices_.back().size();
  begins_.push_back(begin);
  ranges_.push_back({begin, bytes.size()});
  auto kept = std::make_unique<std::string>(std::move(bytes));
  slices_.emplace_back(
      kept->data(), kept->size(), [](void* text) { delete static_cast<std::string*>(text); }, kept.get());
  kept.release();
  return wire::TicketText(ranges_.size() - 1);
}

size_t SlicedPayloads::Size(const v1::Tensor& tensor) const {
  if (regions_ != nullptr && tensor.has_region()) return static_cast<size_t>(tensor.region().byte_size());
  return wire::RangeOf(tensor.data(), ranges_).length;
}

size_t SlicedPayloads::Size(const v1::TensorChunk& chunk) const { return wire::RangeOf(chunk.data(), ranges_).length; }

absl::Span<const std::byte> SlicedPayloads::From(const v1::Tensor& tensor, size_t offset) const {
  if (regions_ != nullptr && tensor.has_region()) return regions_->BytesOf(tensor.region()).subspan(offset);
  return From(wire::RangeOf(tensor.data(), ranges_), offset);
}

absl::Span<const std::byte> SlicedPayloads::From(const v1::TensorChunk& chunk, size_t offset) const {
  return From(wire::RangeOf(chunk.data(), ranges_), offset);
}

absl::Span<const std::byte> SlicedPayloads::From(wire::ByteRange range, size_t offset) const {
  const size_t at = range.offset + offset;
  // The last slice that begins at or before `at`. Empty slices with the same begin precede it, so it is not empty.
  const size_t n = std::upper_bound(begins_.begin(), begins_.end(), at) - begins_.begin() - 1;
  const size_t skip = at - begins_[n];
  return {reinterpret_cast<const std::byte*>(slices_[n].begin()) + skip,
          std::min(range.length - offset, slices_[n].size() - skip)};
}

}  // namespace posenc::transport

#include "posenc/wire/gather.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/wire_format.h"
#include "posenc/base/status.h"

namespace posenc::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::internal::WireFormat;
using google::protobuf::io::CodedOutputStream;

constexpr int kBlockBytes = 4096;  // size of a header block
constexpr uint32_t kDataNumber = v1::Tensor::kDataFieldNumber;
static_assert(kDataNumber == v1::TensorChunk::kDataFieldNumber);
constexpr size_t kMaxBytes = std::numeric_limits<int32_t>::max() - (size_t{64} << 10);

constexpr uint32_t LengthTag(uint32_t number) { return number << 3 | 2; }

size_t FieldBytes(uint32_t number, size_t length) {
  return CodedOutputStream::VarintSize32(LengthTag(number)) + CodedOutputStream::VarintSize64(length) + length;
}

class PieceStream final : public google::protobuf::io::ZeroCopyOutputStream {
 public:
  explicit PieceStream(Gathered* to) : to_(to) {}

  bool Next(void** data, int* size) override {
    if (used_ == kBlockBytes) {
      EndPiece();
      to_->headers.push_back(std::make_unique_for_overwrite<std::byte[]>(kBlockBytes));
      begin_ = used_ = 0;
    }
    *data = to_->headers.back().get() + used_;
    *size = kBlockBytes - used_;
    to_->size += *size;
    used_ = kBlockBytes;
    return true;
  }
  void BackUp(int count) override {
    used_ -= count;
    to_->size -= count;
  }
  int64_t ByteCount() const override { return static_cast<int64_t>(to_->size); }
  bool AllowsAliasing() const override { return true; }

  bool WriteAliasedRaw(const void* data, int size) override {
    const auto* from = static_cast<const std::byte*>(data);
    if (static_cast<size_t>(size) >= kSmallestLent) {
      EndPiece();
      to_->pieces.push_back({{from, static_cast<size_t>(size)}, true});
      to_->size += size;
      return true;
    }
    while (size != 0) {
      void* block;
      int room;
      Next(&block, &room);
      const int count = std::min(size, room);
      std::memcpy(block, from, count);
      BackUp(room - count);
      from += count;
      size -= count;
    }
    return true;
  }

  void EndPiece() {
    if (used_ != begin_) {
      const std::byte* block = to_->headers.back().get();
      to_->pieces.push_back({{block + begin_, static_cast<size_t>(used_ - begin_)}, false});
    }
    begin_ = used_;
  }

 private:
  Gathered* to_;
  int begin_ = kBlockBytes;  // start of the current piece in the last block
  int used_ = kBlockBytes;
};

// Sizes and writes messages that contain views: their cached protobuf size lacks the views' bytes.
class Gatherer {
 public:
  explicit Gatherer(absl::Span<const TensorView> views) : views_(views) {}

  // Returns the message's size with views. Requires cached sizes of all its parts (ByteSizeLong).
  size_t Measure(const Message& message) {
    size_t size = message.GetCachedSize();
    bool grows = false;
    if (const TensorView* view = ViewOf(message); view != nullptr && !view->bytes.empty()) {
      size += FieldBytes(kDataNumber, view->bytes.size());
      grows = true;
    }
    ForEachPart(message, [&](const FieldDescriptor* field, const Message& part) {
      const size_t own = part.GetCachedSize(), grown = Measure(part);
      size += FieldBytes(field->number(), grown) - FieldBytes(field->number(), own);
      grows = grows || grown != own;
    });
    if (grows) sizes_[&message] = size;
    return size;
  }

  void Write(const Message& message, CodedOutputStream* out) const {
    if (!sizes_.contains(&message)) return message.SerializeWithCachedSizes(out);
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        WireFormat::SerializeFieldWithCachedSizes(field, message, out);
      }
      ForEachPart(message, field, [&](const Message& part) {
        const auto found = sizes_.find(&part);
        const size_t size = found == sizes_.end() ? part.GetCachedSize() : found->second;
        out->WriteTag(LengthTag(field->number()));
        out->WriteVarint32(static_cast<uint32_t>(size));
        Write(part, out);
      });
    }
    // data has the highest field number of a Tensor and of a TensorChunk, so it comes last.
    if (const TensorView* view = ViewOf(message); view != nullptr && !view->bytes.empty()) {
      out->WriteTag(LengthTag(kDataNumber));
      out->WriteVarint32(static_cast<uint32_t>(view->bytes.size()));
      out->WriteRawMaybeAliased(view->bytes.data(), static_cast<int>(view->bytes.size()));
    }
    WireFormat::SerializeUnknownFields(reflection.GetUnknownFields(message), out);
  }

 private:
  const TensorView* ViewOf(const Message& message) const {
    const auto found =
        std::find_if(views_.begin(), views_.end(), [&](const TensorView& view) { return view.tensor == &message; });
    return found == views_.end() ? nullptr : &*found;
  }

  template <typename Visit>
  static void ForEachPart(const Message& message, const FieldDescriptor* field, const Visit& visit) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
    const Reflection& reflection = *message.GetReflection();
    if (!field->is_repeated()) return visit(reflection.GetMessage(message, field));
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      visit(reflection.GetRepeatedMessage(message, field, i));
    }
  }

  template <typename Visit>
  static void ForEachPart(const Message& message, const Visit& visit) {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      ForEachPart(message, field, [&](const Message& part) { visit(field, part); });
    }
  }

  const absl::Span<const TensorView> views_;
  absl::flat_hash_map<const Message*, size_t> sizes_;
};

}  // namespace

absl::StatusOr<Gathered> Gather(const Message& message, absl::Span<const TensorView> views) {
  Gatherer gatherer(views);
  // ByteSizeLong also caches the size of every sub-message.
  size_t size = message.ByteSizeLong();
  if (size <= kMaxBytes && !views.empty()) size = gatherer.Measure(message);
  if (size > kMaxBytes) {
    return TooLarge("", absl::StrCat(size, " bytes"), absl::StrCat("must be at most ", kMaxBytes, " bytes"));
  }
  Gathered gathered;
  PieceStream stream(&gathered);
  {
    CodedOutputStream out(&stream);
    out.EnableAliasing(true);
    gatherer.Write(message, &out);
  }
  stream.EndPiece();
  return gathered;
}

}  // namespace posenc::wire

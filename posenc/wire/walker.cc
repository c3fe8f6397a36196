#include "posenc/wire/walker.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/wire/carriers.h"

namespace posenc::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kStartGroup = 3, kEndGroup = 4, kFixed32 = 5 };

constexpr int kMaxDepth = 100;      // protobuf's own default
constexpr size_t kLengthBytes = 5;  // a rewritten length: a varint padded to protobuf's maximum
constexpr size_t kTicketBytes = 4;  // little-endian
// Bytes and ranges of a decode step's stripped message, for which memory is reserved.
constexpr size_t kUsualMessage = 256, kUsualRanges = 4;
constexpr uint64_t kNoEnd = std::numeric_limits<uint64_t>::max();          // for the whole input
constexpr uint64_t kMaxLength = std::numeric_limits<int32_t>::max() - 16;  // protobuf refuses longer fields

bool HoldsTensorData(const FieldDescriptor& field) {
  const Descriptor* type = field.containing_type();
  return (type == v1::Tensor::descriptor() && field.number() == v1::Tensor::kDataFieldNumber) ||
         (type == v1::TensorChunk::descriptor() && field.number() == v1::TensorChunk::kDataFieldNumber);
}

class Walk {
 public:
  Walk(google::protobuf::io::ZeroCopyInputStream* input, const Descriptor* root,
       const std::vector<std::vector<StrippedField>>& types, size_t max_copied_bytes)
      : input_(input), root_(root), types_(types), max_copied_bytes_(max_copied_bytes) {
    result_.message.reserve(kUsualMessage);
    result_.ranges.reserve(kUsualRanges);
  }

  // Walks a message with the fields types_[type] up to input position `end`. All functions that return bool return
  // false after an error, which failure() then holds.
  bool Message(size_t type, uint64_t end, int depth) {
    while (!AtEnd(end)) {
      uint64_t tag = 0;
      if (!ReadTag(end, &tag)) return false;
      const uint32_t number = static_cast<uint32_t>(tag) >> 3;
      const uint32_t wire_type = tag & 7;
      if (wire_type == kEndGroup) return Malformed("end of a group that did not begin");
      const auto& fields = types_[type];
      const auto field =
          wire_type != kLength
              ? fields.end()
              : std::find_if(fields.begin(), fields.end(), [number](const auto& one) { return one.number == number; });
      const bool done = field == fields.end() ? SkipValue(number, wire_type, end, depth)
                        : field->type         ? SubMessage(*field->type, end, depth)
                                              : TakeData(end);
      if (!done) return false;
    }
    return (end == kNoEnd && failure_.ok()) || position_ == end || Malformed("truncated");
  }

  Stripped&& result() { return std::move(result_); }
  const absl::Status& failure() const { return failure_; }

 private:
  bool SubMessage(size_t type, uint64_t end, int depth) {
    uint64_t length = 0;
    if (!PauseCopy() || !ReadLength(end, &length)) return false;
    ResumeCopy();
    if (depth == kMaxDepth) return Malformed("nested too deeply");
    const size_t at = result_.message.size();
    if (!Put(std::string_view("\0\0\0\0\0", kLengthBytes))) return false;
    if (!Message(type, position_ + length, depth + 1) || !Flush()) return false;
    size_t rewritten = result_.message.size() - at - kLengthBytes;
    for (size_t i = 0; i < kLengthBytes; ++i, rewritten >>= 7) {
      const bool last = i + 1 == kLengthBytes;
      result_.message[at + i] = static_cast<char>((rewritten & 0x7f) | (last ? 0 : 0x80));
    }
    return true;
  }

  bool TakeData(uint64_t end) {
    uint64_t length = 0;
    if (!PauseCopy() || !ReadLength(end, &length)) return false;
    const char size = static_cast<char>(length == 0 ? 0 : kTicketBytes);
    if (!Put({&size, 1})) return false;
    if (length != 0) {
      if (!Put(TicketText(result_.ranges.size()))) return false;
      result_.ranges.push_back({static_cast<size_t>(position_), static_cast<size_t>(length)});
      if (!Consume(length, end)) return false;
    }
    ResumeCopy();
    return true;
  }

  bool SkipValue(uint32_t number, uint32_t wire_type, uint64_t end, int depth) {
    uint64_t value = 0;
    switch (wire_type) {
      case kVarint: return ReadVarint(10, end, &value);
      case kFixed64: return Consume(8, end);
      case kFixed32: return Consume(4, end);
      case kLength: return ReadLength(end, &value) && Consume(value, end);
      case kStartGroup: return SkipGroup(number, end, depth);
      default: return Malformed("unknown wire type");
    }
  }

  // Like protobuf, counts groups and the messages around them together.
  bool SkipGroup(uint32_t number, uint64_t end, int depth) {
    if (depth == kMaxDepth) return Malformed("nested too deeply");
    while (true) {
      uint64_t tag = 0;
      if (!ReadTag(end, &tag)) return false;
      const uint32_t inner = static_cast<uint32_t>(tag) >> 3;
      const uint32_t wire_type = tag & 7;
      if (wire_type == kEndGroup) return inner == number || Malformed("end of another group");
      if (!SkipValue(inner, wire_type, end, depth + 1)) return false;
    }
  }

  bool ReadTag(uint64_t end, uint64_t* tag) {
    if (!ReadVarint(5, end, tag)) return false;
    *tag &= 0xffffffff;  // like protobuf, ignore further bits of the fifth byte
    return *tag >> 3 != 0 || Malformed("field number 0");
  }

  // Reads the length of a field; fails if the field extends beyond `end`.
  bool ReadLength(uint64_t end, uint64_t* length) {
    if (!ReadVarint(5, end, length)) return false;
    if (*length > kMaxLength) return Malformed("length above 2 GiB");
    return *length <= end - position_ || Malformed("length beyond the end");
  }

  // Adds to *value, which is 0.
  bool ReadVarint(size_t max_bytes, uint64_t end, uint64_t* value) {
    for (size_t n = 0; n < max_bytes; ++n) {
      if (AtEnd(end)) return Malformed("truncated");
      const uint8_t byte = static_cast<uint8_t>(chunk_.front());
      chunk_.remove_prefix(1);
      ++position_;
      *value |= static_cast<uint64_t>(byte & 0x7f) << (7 * n);
      if (byte < 0x80) return true;
    }
    return Malformed("overlong varint");
  }

  bool Consume(uint64_t count, uint64_t end) {
    if (count > end - position_) return Malformed("truncated");
    while (count != 0) {
      if (AtEnd(end)) return Malformed("truncated");
      const size_t size = std::min<uint64_t>(count, chunk_.size());
      chunk_.remove_prefix(size);
      position_ += size;
      count -= size;
    }
    return true;
  }

  // Bytes that are read are copied, in runs that are as long as possible, unless copying is paused.
  bool Flush() {
    if (!copying_) return true;
    const std::string_view run(copy_from_, chunk_.data() - copy_from_);
    copy_from_ = chunk_.data();
    return Put(run);
  }
  bool PauseCopy() {
    const bool flushed = Flush();
    copying_ = false;
    return flushed;
  }
  void ResumeCopy() {
    copying_ = true;
    copy_from_ = chunk_.data();
  }

  bool Put(std::string_view bytes) {
    if (bytes.size() > max_copied_bytes_ - result_.message.size()) {
      failure_ = TooLarge(kWholeRequest, absl::StrCat(result_.message.size() + bytes.size(), " bytes or more"),
                          absl::StrCat("must be at most ", max_copied_bytes_, " bytes besides the tensors' data"));
      return false;
    }
    result_.message.append(bytes);
    return true;
  }

  // Returns true if no byte is left before `end`, or the copy is too large. If false, chunk_ is not empty.
  bool AtEnd(uint64_t end) {
    if (position_ == end) return true;
    while (chunk_.empty()) {
      if (!Flush()) return true;
      const void* data;
      int size;
      if (!input_->Next(&data, &size)) return true;
      chunk_ = {static_cast<const char*>(data), static_cast<size_t>(size)};
      copy_from_ = chunk_.data();
    }
    return false;
  }

  // Keeps an earlier failure.
  bool Malformed(const char* what) {
    if (!failure_.ok()) return false;
    failure_ = InvalidArgument("MALFORMED", kWholeRequest, absl::StrCat(what, " at byte ", position_),
                               absl::StrCat("must be a ", root_->full_name()));
    return false;
  }

  google::protobuf::io::ZeroCopyInputStream* input_;
  const Descriptor* root_;
  const std::vector<std::vector<StrippedField>>& types_;
  const size_t max_copied_bytes_;
  std::string_view chunk_ = "";  // unconsumed rest of the current input chunk
  bool copying_ = true;
  const char* copy_from_ = chunk_.data();  // first byte of the chunk that is not copied yet, while copying
  uint64_t position_ = 0;                  // input position of chunk_'s first byte
  Stripped result_;
  absl::Status failure_;
};

}  // namespace

Stripper::Stripper(const Descriptor* type, const FieldDescriptor* more) : type_(type) {
  absl::flat_hash_set<const Descriptor*> holders = {v1::Tensor::descriptor(), v1::TensorChunk::descriptor()};
  if (more != nullptr) holders.insert(more->containing_type());
  std::vector<const Descriptor*> types = TypesWithin(type);
  const absl::flat_hash_set<const Descriptor*> carriers = Carriers(types, std::move(holders));
  std::erase_if(types, [&](const Descriptor* each) { return each != type && !carriers.contains(each); });
  for (const Descriptor* each : types) {
    std::vector<StrippedField>& fields = types_.emplace_back();
    for (int n = 0; n < each->field_count(); ++n) {
      const FieldDescriptor* field = each->field(n);
      const auto number = static_cast<uint32_t>(field->number());
      if (field == more || HoldsTensorData(*field)) {
        fields.push_back({number, std::nullopt});
      } else if (field->type() == FieldDescriptor::TYPE_MESSAGE && carriers.contains(field->message_type())) {
        const auto inner = std::find(types.begin(), types.end(), field->message_type());
        fields.push_back({number, static_cast<size_t>(inner - types.begin())});
      }
    }
  }
}

absl::StatusOr<Stripped> Stripper::Strip(google::protobuf::io::ZeroCopyInputStream* input,
                                         size_t max_copied_bytes) const {
  const LargeBlocksMayBeRefused scope;  // a ticket and its range take ten times the bytes of a tensor of one byte
  Walk walk(input, type_, types_, max_copied_bytes);
  if (!walk.Message(0, kNoEnd, 0)) return walk.failure();
  return walk.result();
}

size_t TicketOf(const std::string& data) {
  size_t ticket = 0;
  for (size_t i = 0; i < kTicketBytes; ++i) {
    ticket |= static_cast<size_t>(static_cast<uint8_t>(data[i])) << (8 * i);
  }
  return ticket;
}

std::string TicketText(size_t ticket) {
  std::string text(kTicketBytes, '\0');
  for (size_t i = 0; i < kTicketBytes; ++i) text[i] = static_cast<char>(ticket >> (8 * i));
  return text;
}

ByteRange RangeOf(const std::string& data, const std::vector<ByteRange>& ranges) {
  return data.empty() ? ByteRange{0, 0} : ranges[TicketOf(data)];
}

}  // namespace posenc::wire

#include "posenc/wire/walker.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"

namespace posenc::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kStartGroup = 3, kEndGroup = 4, kFixed32 = 5 };

constexpr int kMaxDepth = 100;      // protobuf's own default
constexpr size_t kLengthBytes = 5;  // a rewritten length: a varint padded to protobuf's maximum
constexpr size_t kTicketBytes = 4;  // little-endian
constexpr uint64_t kNoEnd = std::numeric_limits<uint64_t>::max();          // for the whole input
constexpr uint64_t kMaxLength = std::numeric_limits<int32_t>::max() - 16;  // protobuf refuses longer fields

bool HoldsTensorData(const FieldDescriptor& field) {
  const Descriptor* type = field.containing_type();
  return (type == v1::Tensor::descriptor() && field.number() == v1::Tensor::kDataFieldNumber) ||
         (type == v1::TensorChunk::descriptor() && field.number() == v1::TensorChunk::kDataFieldNumber);
}

// A varint: its value and its bytes on the wire.
struct Varint {
  uint64_t value = 0;
  std::array<char, 10> bytes;
  size_t size = 0;
  std::string_view text() const { return {bytes.data(), size}; }
};

class Walk {
 public:
  Walk(google::protobuf::io::ZeroCopyInputStream* input, const Descriptor* root,
       const absl::flat_hash_set<const Descriptor*>& carriers, const FieldDescriptor* more, size_t max_copied_bytes)
      : input_(input), root_(root), carriers_(carriers), more_(more), max_copied_bytes_(max_copied_bytes) {}

  // Walks a message of `type` up to input position `end`. All functions that return bool return false after an error,
  // which failure() then holds.
  bool Message(const Descriptor* type, uint64_t end, int depth) {
    while (!AtEnd(end)) {
      Varint tag;
      if (!ReadTag(end, &tag)) return false;
      const uint32_t number = static_cast<uint32_t>(tag.value) >> 3;
      const uint32_t wire_type = tag.value & 7;
      if (wire_type == kEndGroup) return Malformed("end of a group that did not begin");
      if (!Put(tag.text())) return false;
      const FieldDescriptor* field = wire_type == kLength ? type->FindFieldByNumber(number) : nullptr;
      if (field == nullptr) {
        if (!CopyValue(number, wire_type, end)) return false;
      } else if (field == more_ || HoldsTensorData(*field)) {
        if (!TakeData(end)) return false;
      } else if (field->type() == FieldDescriptor::TYPE_MESSAGE && carriers_.contains(field->message_type())) {
        if (!SubMessage(field->message_type(), end, depth)) return false;
      } else if (!CopyValue(number, wire_type, end)) {
        return false;
      }
    }
    return end == kNoEnd || position_ == end || Malformed("truncated");
  }

  Stripped&& result() { return std::move(result_); }
  const absl::Status& failure() const { return failure_; }

 private:
  bool SubMessage(const Descriptor* type, uint64_t end, int depth) {
    Varint length;
    if (!ReadLength(end, &length)) return false;
    if (depth == kMaxDepth) return Malformed("nested too deeply");
    const size_t at = result_.message.size();
    if (!Put(std::string_view("\0\0\0\0\0", kLengthBytes))) return false;
    if (!Message(type, position_ + length.value, depth + 1)) return false;
    size_t rewritten = result_.message.size() - at - kLengthBytes;
    for (size_t i = 0; i < kLengthBytes; ++i, rewritten >>= 7) {
      const bool last = i + 1 == kLengthBytes;
      result_.message[at + i] = static_cast<char>((rewritten & 0x7f) | (last ? 0 : 0x80));
    }
    return true;
  }

  bool TakeData(uint64_t end) {
    Varint length;
    if (!ReadLength(end, &length)) return false;
    if (length.value == 0) return Put(length.text());
    const size_t ticket = result_.ranges.size();
    const char size = static_cast<char>(kTicketBytes);
    if (!Put({&size, 1}) || !Put(TicketText(ticket))) return false;
    result_.ranges.push_back({static_cast<size_t>(position_), static_cast<size_t>(length.value)});
    return Consume(length.value, end, /*copy=*/false);
  }

  bool CopyValue(uint32_t number, uint32_t wire_type, uint64_t end) {
    switch (wire_type) {
      case kVarint: {
        Varint value;
        return ReadVarint(10, end, &value) && Put(value.text());
      }
      case kFixed64: return Consume(8, end, /*copy=*/true);
      case kFixed32: return Consume(4, end, /*copy=*/true);
      case kLength: {
        Varint length;
        return ReadLength(end, &length) && Put(length.text()) && Consume(length.value, end, /*copy=*/true);
      }
      case kStartGroup: return CopyGroup(number, end);
      default: return Malformed("unknown wire type");
    }
  }

  bool CopyGroup(uint32_t number, uint64_t end) {
    std::vector<uint32_t> open = {number};
    while (!open.empty()) {
      Varint tag;
      if (!ReadTag(end, &tag) || !Put(tag.text())) return false;
      const uint32_t inner = static_cast<uint32_t>(tag.value) >> 3;
      const uint32_t wire_type = tag.value & 7;
      if (wire_type == kStartGroup) {
        open.push_back(inner);
      } else if (wire_type == kEndGroup) {
        if (inner != open.back()) return Malformed("end of another group");
        open.pop_back();
      } else if (!CopyValue(inner, wire_type, end)) {
        return false;
      }
    }
    return true;
  }

  bool ReadTag(uint64_t end, Varint* tag) {
    if (!ReadVarint(5, end, tag)) return false;
    tag->value &= 0xffffffff;  // like protobuf, ignore further bits of the fifth byte
    return tag->value >> 3 != 0 || Malformed("field number 0");
  }

  // Reads the length of a field; fails if the field extends beyond `end`.
  bool ReadLength(uint64_t end, Varint* length) {
    if (!ReadVarint(5, end, length)) return false;
    if (length->value > kMaxLength) return Malformed("length above 2 GiB");
    return length->value <= end - position_ || Malformed("length beyond the end");
  }

  bool ReadVarint(size_t max_bytes, uint64_t end, Varint* varint) {
    while (varint->size < max_bytes) {
      if (AtEnd(end)) return Malformed("truncated");
      const uint8_t byte = static_cast<uint8_t>(chunk_.front());
      chunk_.remove_prefix(1);
      ++position_;
      varint->value |= static_cast<uint64_t>(byte & 0x7f) << (7 * varint->size);
      varint->bytes[varint->size++] = static_cast<char>(byte);
      if (byte < 0x80) return true;
    }
    return Malformed("overlong varint");
  }

  // Skips or copies `count` bytes.
  bool Consume(uint64_t count, uint64_t end, bool copy) {
    if (count > end - position_) return Malformed("truncated");
    while (count != 0) {
      if (AtEnd(end)) return Malformed("truncated");
      const size_t size = std::min<uint64_t>(count, chunk_.size());
      if (copy && !Put(chunk_.substr(0, size))) return false;
      chunk_.remove_prefix(size);
      position_ += size;
      count -= size;
    }
    return true;
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

  // Returns true if no byte is left before `end`. If false, chunk_ is not empty.
  bool AtEnd(uint64_t end) {
    if (position_ == end) return true;
    while (chunk_.empty()) {
      const void* data;
      int size;
      if (!input_->Next(&data, &size)) return true;
      chunk_ = {static_cast<const char*>(data), static_cast<size_t>(size)};
    }
    return false;
  }

  bool Malformed(const char* what) {
    failure_ = InvalidArgument("MALFORMED", kWholeRequest, absl::StrCat(what, " at byte ", position_),
                               absl::StrCat("must be a ", root_->full_name()));
    return false;
  }

  google::protobuf::io::ZeroCopyInputStream* input_;
  const Descriptor* root_;
  const absl::flat_hash_set<const Descriptor*>& carriers_;
  const FieldDescriptor* const more_;
  const size_t max_copied_bytes_;
  std::string_view chunk_;  // unconsumed rest of the current input chunk
  uint64_t position_ = 0;   // input position of chunk_'s first byte
  Stripped result_;
  absl::Status failure_;
};

}  // namespace

Stripper::Stripper(const Descriptor* type, const FieldDescriptor* more) : type_(type), more_(more) {
  std::vector<const Descriptor*> types = {type};
  absl::flat_hash_set<const Descriptor*> seen = {type};
  for (size_t i = 0; i < types.size(); ++i) {
    for (int n = 0; n < types[i]->field_count(); ++n) {
      const Descriptor* inner = types[i]->field(n)->message_type();
      if (inner != nullptr && seen.insert(inner).second) types.push_back(inner);
    }
  }
  carriers_ = {v1::Tensor::descriptor(), v1::TensorChunk::descriptor()};
  if (more != nullptr) carriers_.insert(more->containing_type());
  for (bool grew = true; grew;) {
    grew = false;
    for (const Descriptor* outer : types) {
      for (int n = 0; n < outer->field_count() && !carriers_.contains(outer); ++n) {
        if (carriers_.contains(outer->field(n)->message_type())) grew = carriers_.insert(outer).second;
      }
    }
  }
}

absl::StatusOr<Stripped> Stripper::Strip(google::protobuf::io::ZeroCopyInputStream* input,
                                         size_t max_copied_bytes) const {
  Walk walk(input, type_, carriers_, more_, max_copied_bytes);
  if (!walk.Message(type_, kNoEnd, 0)) return walk.failure();
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

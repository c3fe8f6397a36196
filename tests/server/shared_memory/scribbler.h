// Requests encoded as no serializer writes them.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "google/protobuf/descriptor.h"
#include "posenc/v1/service.pb.h"
#include "tests/wire/readings.h"

namespace posenc {

// Wire bytes of a message type as no serializer writes them: fields in any order, repeated, padded varints. Wild ones
// have unknown fields anywhere, including groups, and wrong wire types. Tame ones have them only in CallHints, where
// they are legal, and their enum values are declared ones.
class Scribbler {
 public:
  Scribbler(std::mt19937_64& random, bool wild) : random_(random), wild_(wild) {}

  std::string Write(const google::protobuf::Descriptor* type, int depth = 0) {
    const bool may_be_unknown = wild_ || type == v1::CallHints::descriptor();
    std::string out;
    for (size_t n = Below(type == v1::Tensor::descriptor() ? 4 : 6); n > 0; --n) {
      if (type->field_count() == 0 || Below(8) == 0) {
        if (may_be_unknown) Unknown(&out, depth);
      } else {
        Field(*type->field(static_cast<int>(Below(type->field_count()))), may_be_unknown, &out, depth);
      }
    }
    return out;
  }

 private:
  using FieldDescriptor = google::protobuf::FieldDescriptor;

  size_t Below(size_t bound) { return random_() % bound; }
  std::string Bytes(size_t bound) {
    std::string bytes(Below(bound), '\0');
    for (char& c : bytes) c = static_cast<char>('a' + Below(26));
    return bytes;
  }
  void Varint(uint64_t value, std::string* out) {
    for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
    if (Below(20) == 0) {  // padded varint
      out->push_back(static_cast<char>(value | 0x80));
      value = 0;
    }
    out->push_back(static_cast<char>(value));
  }
  void Tag(uint64_t number, uint64_t wire_type, std::string* out) { Varint(number << 3 | wire_type, out); }
  void LengthDelimited(int number, const std::string& bytes, std::string* out) {
    Tag(number, 2, out);
    Varint(bytes.size(), out);
    out->append(bytes);
  }

  void Field(const FieldDescriptor& field, bool may_be_anything, std::string* out, int depth) {
    const int number = field.number();
    if (may_be_anything && Below(16) == 0) return Anything(number, out, depth);
    const bool packed = field.is_packable() ? Below(2) == 0 : wild_ && Below(16) == 0;
    switch (field.type()) {
      case FieldDescriptor::TYPE_MESSAGE:
        return LengthDelimited(number, depth > 6 ? "" : Write(field.message_type(), depth + 1), out);
      case FieldDescriptor::TYPE_BYTES:
      case FieldDescriptor::TYPE_STRING: return LengthDelimited(number, Bytes(40), out);
      case FieldDescriptor::TYPE_DOUBLE:
        if (packed) return LengthDelimited(number, std::string(8 * Below(3), 'd'), out);
        Tag(number, 1, out);
        out->append("8 bytes.");
        return;
      default: break;
    }
    if (!packed) {
      Tag(number, 0, out);
      return Varint(Value(field), out);
    }
    std::string values;
    for (size_t n = Below(4); n > 0; --n) Varint(Value(field), &values);
    LengthDelimited(number, values, out);
  }

  uint64_t Value(const FieldDescriptor& field) {
    if (!wild_ && field.enum_type() != nullptr) {
      return field.enum_type()->value(static_cast<int>(Below(field.enum_type()->value_count())))->number();
    }
    return Below(4) == 0 ? random_() : Below(12);
  }

  void Anything(int number, std::string* out, int depth) {
    switch (Below(5)) {
      case 0: Tag(number, 0, out); return Varint(random_() >> Below(64), out);
      case 1:
        Tag(number, 1, out);
        out->append("12345678");
        return;
      case 2: return LengthDelimited(number, Bytes(10), out);
      case 3:
        Tag(number, 5, out);
        out->append("1234");
        return;
      default:
        Tag(number, 3, out);
        if (depth < 6) Unknown(out, depth + 1);
        // A tensor field within an unknown group is not a tensor.
        if (Below(2) == 0) LengthDelimited(15, Bytes(10), out);
        Tag(wild_ && Below(20) == 0 ? number + 1 : number, 4, out);
    }
  }
  void Unknown(std::string* out, int depth) { Anything(static_cast<int>(100 + Below(5000)), out, depth); }

  std::mt19937_64& random_;
  const bool wild_;
};

}  // namespace posenc

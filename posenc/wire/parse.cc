#include "posenc/wire/parse.h"

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/unknown_field_set.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"
#include "posenc/v1/shared_memory.pb.h"

namespace posenc::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Cached properties of a message type. Every request is checked, and looking them up by reflection is slow.
struct Type {
  struct Field {
    const FieldDescriptor* descriptor;
    const Type* type;  // the sub-message's type; null for an enum
  };
  const Reflection* reflection;
  bool is_region;
  std::vector<Field> fields;  // enum and message fields, in declaration order
};
using Types = absl::flat_hash_map<const google::protobuf::Descriptor*, std::unique_ptr<Type>>;

const Type* AddType(const google::protobuf::Descriptor* descriptor, Types* types) {
  std::unique_ptr<Type>& added = (*types)[descriptor];
  if (added != nullptr) return added.get();
  added = std::make_unique<Type>();
  Type* const type = added.get();  // `added` may move
  type->reflection = google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor)->GetReflection();
  type->is_region = descriptor == v1::Region::descriptor();
  for (int n = 0; n < descriptor->field_count(); ++n) {
    const FieldDescriptor* field = descriptor->field(n);
    if (field->message_type() == v1::CallHints::descriptor()) continue;
    if (field->message_type() != nullptr) {
      type->fields.push_back({field, AddType(field->message_type(), types)});
    } else if (field->enum_type() != nullptr) {
      type->fields.push_back({field, nullptr});
    }
  }
  return type;
}

const Type& TypeOf(const Message& message) {
  // Types of all requests: those in the service's file and in the shared-memory socket's file.
  static const Types* types = [] {
    auto* all = new Types;
    for (const auto* file :
         {v1::ApplyRotaryRequest::descriptor()->file(), v1::SharedMemoryRequest::descriptor()->file()}) {
      for (int n = 0; n < file->message_type_count(); ++n) AddType(file->message_type(n), all);
    }
    return all;
  }();
  return *types->at(message.GetDescriptor());
}

std::string Element(const FieldDescriptor& field, int index) { return absl::StrCat(field.name(), "[", index, "]"); }

absl::Status CheckEnum(const FieldDescriptor& field, std::string_view name, int value) {
  if (field.enum_type()->FindValueByNumber(value) != nullptr) return absl::OkStatus();
  return InvalidArgument("UNKNOWN_VALUE", name, absl::StrCat(value),
                         absl::StrCat("must be a value of ", field.enum_type()->full_name()));
}

// Names the field by its number, as text format prints unknown fields.
absl::Status RefuseUnknown(const google::protobuf::UnknownField& field, const google::protobuf::Descriptor& message) {
  using google::protobuf::UnknownField;
  const std::string value = field.type() == UnknownField::TYPE_VARINT    ? absl::StrCat(field.varint())
                            : field.type() == UnknownField::TYPE_FIXED32 ? absl::StrCat(field.fixed32())
                            : field.type() == UnknownField::TYPE_FIXED64 ? absl::StrCat(field.fixed64())
                            : field.type() == UnknownField::TYPE_GROUP
                                ? "a group"
                                : absl::StrCat(field.length_delimited().size(), " bytes");
  return InvalidArgument("UNKNOWN_FIELD", absl::StrCat(field.number()), value,
                         absl::StrCat("must be a field of ", message.full_name()));
}

absl::Status Check(const Message& message, const Type& type, bool* has_regions);

absl::Status CheckRepeated(const Message& message, const Reflection& reflection, const Type::Field& field,
                           bool* has_regions) {
  const int count = reflection.FieldSize(message, field.descriptor);
  for (int i = 0; i < count; ++i) {
    InterruptionPointOfStep(i);
    if (field.type == nullptr) {
      const int value = reflection.GetRepeatedEnumValue(message, field.descriptor, i);
      POSENC_RETURN_IF_ERROR(CheckEnum(*field.descriptor, Element(*field.descriptor, i), value));
      continue;
    }
    const absl::Status status =
        Check(reflection.GetRepeatedMessage(message, field.descriptor, i), *field.type, has_regions);
    if (!status.ok()) return Within(Element(*field.descriptor, i), status);
  }
  return absl::OkStatus();
}

absl::Status Check(const Message& message, const Type& type, bool* has_regions) {
  if (type.is_region && has_regions == nullptr) {
    return InvalidArgument("UNSUPPORTED", "", "", "must be absent: shared memory is not available");
  }
  if (type.is_region) *has_regions = true;
  const Reflection& reflection = *type.reflection;
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return RefuseUnknown(unknown.field(0), *message.GetDescriptor());
  }
  for (const Type::Field& field : type.fields) {
    if (field.descriptor->is_repeated()) {
      POSENC_RETURN_IF_ERROR(CheckRepeated(message, reflection, field, has_regions));
    } else if (!reflection.HasField(message, field.descriptor)) {
      continue;
    } else if (field.type == nullptr) {
      const int value = reflection.GetEnumValue(message, field.descriptor);
      POSENC_RETURN_IF_ERROR(CheckEnum(*field.descriptor, field.descriptor->name(), value));
    } else {
      const absl::Status status = Check(reflection.GetMessage(message, field.descriptor), *field.type, has_regions);
      if (!status.ok()) return Within(field.descriptor->name(), status);
    }
  }
  return absl::OkStatus();
}

// protobuf makes up to half a MiB of this many bytes.
constexpr int kPieceBytes = 16 << 10;

// Reads bytes in pieces. It ends early once the thread's memory account was refused.
class Pieces final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit Pieces(const std::string& bytes) : pieces_(bytes.data(), static_cast<int>(bytes.size()), kPieceBytes) {}

  bool Next(const void** data, int* size) override {
    if (account_ != nullptr && account_->refused()) ended_early_ = true;
    return !ended_early_ && pieces_.Next(data, size);
  }
  void BackUp(int count) override { pieces_.BackUp(count); }
  bool Skip(int count) override { return pieces_.Skip(count); }
  int64_t ByteCount() const override { return pieces_.ByteCount(); }

  bool ended_early() const { return ended_early_; }

 private:
  google::protobuf::io::ArrayInputStream pieces_;
  const MemoryAccount* const account_ = CurrentMemoryAccount();
  bool ended_early_ = false;
};

// Returns false if the bytes are malformed. protobuf's small blocks can take 34 times the bytes, and cannot be refused
// one by one: an exception there would leave a oneof without its message. So the account is checked between pieces.
bool Parse(const std::string& bytes, Message* message) {
  const LargeBlocksMayBeRefused scope;
  if (bytes.size() <= kPieceBytes) return message->ParseFromString(bytes);  // saves 40 ns
  Pieces pieces(bytes);
  const bool legal = message->ParseFromZeroCopyStream(&pieces);
  if (pieces.ended_early()) throw std::bad_alloc();
  return legal;
}

}  // namespace

absl::Status RejectUnknownFields(const Message& message) {
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  return unknown.empty() ? absl::OkStatus() : RefuseUnknown(unknown.field(0), *message.GetDescriptor());
}

absl::Status RejectUnknown(const Message& message, bool* has_regions) {
  return Check(message, TypeOf(message), has_regions);
}

absl::Status ParseStripped(const std::string& stripped, google::protobuf::Message* request, bool* has_regions) {
  if (!Parse(stripped, request)) {
    return InvalidArgument("MALFORMED", kWholeRequest, "",
                           absl::StrCat("must be a ", request->GetDescriptor()->full_name()));
  }
  return RejectUnknown(*request, has_regions);
}

absl::StatusOr<std::vector<ByteRange>> ParseRequest(const Stripper& stripper,
                                                    google::protobuf::io::ZeroCopyInputStream* input,
                                                    google::protobuf::Message* request) {
  POSENC_ASSIGN_OR_RETURN(Stripped stripped, stripper.Strip(input, kMaxStrippedBytes));
  POSENC_RETURN_IF_ERROR(ParseStripped(stripped.message, request));
  return std::move(stripped.ranges);
}

}  // namespace posenc::wire

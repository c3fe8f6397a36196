#include "wire/strict.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "posenc/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A message's fields that can hold what is unknown, as they are declared. Looked up once for each type: every
// request is checked.
using Holders = std::vector<const FieldDescriptor*>;

const Holders& HoldersOf(const google::protobuf::Descriptor* type) {
  static const auto* all = [] {
    auto* found = new absl::flat_hash_map<const google::protobuf::Descriptor*, Holders>;
    const auto add = [found](const google::protobuf::FileDescriptor* file) {
      for (int n = 0; n < file->message_type_count(); ++n) {
        Holders& holders = (*found)[file->message_type(n)];
        for (int f = 0; f < file->message_type(n)->field_count(); ++f) {
          const FieldDescriptor* field = file->message_type(n)->field(f);
          const auto kind = field->cpp_type();
          if (kind == FieldDescriptor::CPPTYPE_ENUM || kind == FieldDescriptor::CPPTYPE_MESSAGE) {
            holders.push_back(field);
          }
        }
      }
    };
    const google::protobuf::FileDescriptor* service = v1::ApplyRotaryRequest::descriptor()->file();
    add(service);
    for (int n = 0; n < service->dependency_count(); ++n) add(service->dependency(n));
    return found;
  }();
  return all->at(type);
}

std::string Element(const FieldDescriptor& field, int index) { return absl::StrCat(field.name(), "[", index, "]"); }

absl::Status CheckEnum(const FieldDescriptor& field, const std::string& name, int value) {
  if (field.enum_type()->FindValueByNumber(value) != nullptr) return absl::OkStatus();
  return InvalidArgument("UNKNOWN_VALUE", name, absl::StrCat(value),
                         absl::StrCat("not a value of ", field.enum_type()->full_name()));
}

absl::Status CheckField(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const int count = field.is_repeated() ? reflection.FieldSize(message, &field) : 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      if (!field.is_repeated()) return CheckEnum(field, field.name(), reflection.GetEnumValue(message, &field));
      for (int i = 0; i < count; ++i) {
        const int value = reflection.GetRepeatedEnumValue(message, &field, i);
        POSENC_RETURN_IF_ERROR(CheckEnum(field, Element(field, i), value));
      }
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (!field.is_repeated()) {
        return Within(field.name(), RejectUnknown(reflection.GetMessage(message, &field)));
      }
      for (int i = 0; i < count; ++i) {
        const absl::Status status = RejectUnknown(reflection.GetRepeatedMessage(message, &field, i));
        if (!status.ok()) return Within(Element(field, i), status);
      }
      return absl::OkStatus();
    default: return absl::OkStatus();
  }
}

}  // namespace

absl::Status RejectUnknown(const Message& message) {
  if (message.GetDescriptor() == v1::CallHints::descriptor()) return absl::OkStatus();
  if (message.GetDescriptor() == v1::Region::descriptor()) {
    return InvalidArgument("UNSUPPORTED", "", "", "shared memory is off");
  }
  const Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return InvalidArgument(
        "UNKNOWN_FIELD", "", "",
        absl::StrCat(message.GetDescriptor()->full_name(), " has no field ", unknown.field(0).number()));
  }
  for (const FieldDescriptor* field : HoldersOf(message.GetDescriptor())) {
    if (field->is_repeated() || reflection.HasField(message, field))
      POSENC_RETURN_IF_ERROR(CheckField(message, *field));
  }
  return absl::OkStatus();
}

}  // namespace posenc::wire

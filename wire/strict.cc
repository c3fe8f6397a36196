#include "wire/strict.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "posenc/status.h"
#include "posenc/v1/info.pb.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string Element(const FieldDescriptor& field, int index) { return absl::StrCat(field.name(), "[", index, "]"); }

absl::Status CheckEnum(const FieldDescriptor& field, const std::string& name, int value) {
  if (field.enum_type()->FindValueByNumber(value) != nullptr) return absl::OkStatus();
  return InvalidArgument("UNKNOWN_VALUE", name, absl::StrCat(value),
                         absl::StrCat("not a value of ", field.enum_type()->full_name()));
}

absl::Status CheckField(const Message& message, const FieldDescriptor& field, bool* has_regions) {
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
        return Within(field.name(), RejectUnknown(reflection.GetMessage(message, &field), has_regions));
      }
      for (int i = 0; i < count; ++i) {
        const absl::Status status = RejectUnknown(reflection.GetRepeatedMessage(message, &field, i), has_regions);
        if (!status.ok()) return Within(Element(field, i), status);
      }
      return absl::OkStatus();
    default: return absl::OkStatus();
  }
}

}  // namespace

absl::Status RejectUnknown(const Message& message, bool* has_regions) {
  if (message.GetDescriptor() == v1::CallHints::descriptor()) return absl::OkStatus();
  if (message.GetDescriptor() == v1::Region::descriptor()) {
    if (has_regions == nullptr) return InvalidArgument("UNSUPPORTED", "", "", "there is no shared memory here");
    *has_regions = true;
  }
  const Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return InvalidArgument(
        "UNKNOWN_FIELD", "", "",
        absl::StrCat(message.GetDescriptor()->full_name(), " has no field ", unknown.field(0).number()));
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) POSENC_RETURN_IF_ERROR(CheckField(message, *field, has_regions));
  return absl::OkStatus();
}

}  // namespace posenc::wire

#include "posenc/mapping/field_differences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>

#include "posenc/base/status.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Differences = google::protobuf::RepeatedPtrField<v1::FieldDifference>;

// Text of element `index` of a repeated field, or of a singular field if index is -1.
std::string TextOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& get = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return fmt::format("{}", one ? get.GetInt32(message, &field) : get.GetRepeatedInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_INT64:
      return fmt::format("{}", one ? get.GetInt64(message, &field) : get.GetRepeatedInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT32:
      return fmt::format("{}", one ? get.GetUInt32(message, &field) : get.GetRepeatedUInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT64:
      return fmt::format("{}", one ? get.GetUInt64(message, &field) : get.GetRepeatedUInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return fmt::format("{}", one ? get.GetFloat(message, &field) : get.GetRepeatedFloat(message, &field, index));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return fmt::format("{}", one ? get.GetDouble(message, &field) : get.GetRepeatedDouble(message, &field, index));
    case FieldDescriptor::CPPTYPE_BOOL:
      return fmt::format("{}", one ? get.GetBool(message, &field) : get.GetRepeatedBool(message, &field, index));
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = one ? get.GetEnumValue(message, &field) : get.GetRepeatedEnumValue(message, &field, index);
      return std::string(field.enum_type()->FindValueByNumber(number)->name());
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return Quote(one ? get.GetString(message, &field) : get.GetRepeatedString(message, &field, index));
    case FieldDescriptor::CPPTYPE_MESSAGE: break;
  }
  return "";
}

// Returns "" for a tensor that is absent.
std::string TextOf(const v1::Tensor& tensor) {
  if (tensor.dtype() == v1::DATA_TYPE_UNSPECIFIED) return "";
  return fmt::format("{} [{}]", v1::DataType_Name(tensor.dtype()), fmt::join(tensor.shape(), ", "));
}

void AppendTensors(const std::string& path, const Message& a, const Message& b, Differences* differences) {
  const auto &tensor_a = static_cast<const v1::Tensor&>(a), &tensor_b = static_cast<const v1::Tensor&>(b);
  const std::string text_a = TextOf(tensor_a), text_b = TextOf(tensor_b);
  if (text_a != text_b) {
    AppendDifference(path, text_a, text_b, differences);
  } else if (tensor_a.data() != tensor_b.data()) {
    AppendDifference(path + ".data", text_a, text_b + " with other values", differences);
  }
}

void AppendLists(const std::string& path, const Message& a, const Message& b, const FieldDescriptor& field,
                 Differences* differences) {
  const Reflection& get = *a.GetReflection();
  const int size = get.FieldSize(a, &field);
  if (const int size_b = get.FieldSize(b, &field); size != size_b) {
    const auto text = [](int n) { return n == 0 ? "" : fmt::format("{} values", n); };
    return AppendDifference(path, text(size), text(size_b), differences);
  }
  for (int n = 0; n < size; ++n) {
    const std::string element = fmt::format("{}[{}]", path, n);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      AppendFieldDifferences(get.GetRepeatedMessage(a, &field, n), get.GetRepeatedMessage(b, &field, n), element + ".",
                             differences);
      continue;
    }
    const std::string text_a = TextOf(a, field, n), text_b = TextOf(b, field, n);
    if (text_a != text_b) return AppendDifference(element, text_a, text_b, differences);
  }
}

}  // namespace

void AppendDifference(const std::string& path, const std::string& a, const std::string& b, Differences* differences) {
  v1::FieldDifference* difference = differences->Add();
  difference->set_path(path);
  difference->set_a(a);
  difference->set_b(b);
}

void AppendFieldDifferences(const Message& a, const Message& b, const std::string& prefix, Differences* differences) {
  const Reflection& get = *a.GetReflection();
  for (int n = 0; n < a.GetDescriptor()->field_count(); ++n) {
    const FieldDescriptor& field = *a.GetDescriptor()->field(n);
    const std::string path = fmt::format("{}{}", prefix, field.name());
    if (field.is_repeated()) {
      AppendLists(path, a, b, field, differences);
      continue;
    }
    const bool in_a = get.HasField(a, &field), in_b = get.HasField(b, &field);
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      const auto text = [&](const Message& message, bool present) {
        return present || !field.has_presence() ? TextOf(message, field, -1) : "";
      };
      const std::string text_a = text(a, in_a), text_b = text(b, in_b);
      if (text_a != text_b) AppendDifference(path, text_a, text_b, differences);
      continue;
    }
    if (!in_a && !in_b) continue;
    const Message &nested_a = get.GetMessage(a, &field), &nested_b = get.GetMessage(b, &field);
    if (in_a != in_b && (in_a ? nested_a : nested_b).ByteSizeLong() == 0) {
      AppendDifference(path, in_a ? "present" : "", in_b ? "present" : "", differences);
    } else if (field.message_type() == v1::Tensor::descriptor()) {
      AppendTensors(path, nested_a, nested_b, differences);
    } else {
      AppendFieldDifferences(nested_a, nested_b, path + ".", differences);
    }
  }
}

}  // namespace posenc::wire

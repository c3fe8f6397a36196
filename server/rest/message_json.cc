#include "server/rest/message_json.h"

#include <map>

namespace posenc::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using inference::InferParameter;
using nlohmann::ordered_json;

// The value of a field, or of its element n if it is repeated.
ordered_json ValueOf(const Message& message, const FieldDescriptor& field, int n) {
  const auto& reflection = *message.GetReflection();
  const auto of = [&](auto one, auto repeated) { return n < 0 ? ordered_json(one()) : ordered_json(repeated()); };
#define POSENC_VALUE(TYPE)                                  \
  of([&] { return reflection.Get##TYPE(message, &field); }, \
     [&] { return reflection.GetRepeated##TYPE(message, &field, n); })
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return POSENC_VALUE(Int32);
    case FieldDescriptor::CPPTYPE_INT64: return POSENC_VALUE(Int64);
    case FieldDescriptor::CPPTYPE_UINT32: return POSENC_VALUE(UInt32);
    case FieldDescriptor::CPPTYPE_UINT64: return POSENC_VALUE(UInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE: return POSENC_VALUE(Double);
    case FieldDescriptor::CPPTYPE_FLOAT: return POSENC_VALUE(Float);
    case FieldDescriptor::CPPTYPE_BOOL: return POSENC_VALUE(Bool);
    case FieldDescriptor::CPPTYPE_STRING: return POSENC_VALUE(String);
    case FieldDescriptor::CPPTYPE_ENUM:
      return std::string(
          (n < 0 ? reflection.GetEnum(message, &field) : reflection.GetRepeatedEnum(message, &field, n))->name());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(n < 0 ? reflection.GetMessage(message, &field) : reflection.GetRepeatedMessage(message, &field, n));
  }
#undef POSENC_VALUE
  __builtin_unreachable();
}

// The entries of a map, in the order of their keys.
ordered_json MapOf(const Message& message, const FieldDescriptor& field) {
  std::map<std::string, ordered_json> entries;
  for (int n = 0; n < message.GetReflection()->FieldSize(message, &field); ++n) {
    const Message& entry = message.GetReflection()->GetRepeatedMessage(message, &field, n);
    const auto& type = *entry.GetDescriptor();
    const ordered_json key = ValueOf(entry, *type.map_key(), -1);
    entries[key.is_string() ? key.get<std::string>() : key.dump()] = ValueOf(entry, *type.map_value(), -1);
  }
  ordered_json object = ordered_json::object();
  for (auto& [key, value] : entries) object[key] = std::move(value);
  return object;
}

}  // namespace

ordered_json ToJson(const Message& message) {
  ordered_json object = ordered_json::object();
  const auto& reflection = *message.GetReflection();
  for (int f = 0; f < message.GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(f);
    if (field.is_map()) {
      object[field.name()] = MapOf(message, field);
    } else if (field.is_repeated()) {
      ordered_json& array = object[field.name()] = ordered_json::array();
      for (int n = 0; n < reflection.FieldSize(message, &field); ++n) array.push_back(ValueOf(message, field, n));
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      object[field.name()] = ValueOf(message, field, -1);
    }
  }
  return object;
}

ordered_json ToJson(const google::protobuf::Map<std::string, InferParameter>& parameters) {
  const std::map<std::string, InferParameter> in_order(parameters.begin(), parameters.end());
  ordered_json object = ordered_json::object();
  for (const auto& [name, parameter] : in_order) {
    ordered_json& value = object[name];
    switch (parameter.parameter_choice_case()) {
      case InferParameter::kBoolParam: value = parameter.bool_param(); break;
      case InferParameter::kInt64Param: value = parameter.int64_param(); break;
      case InferParameter::kStringParam: value = parameter.string_param(); break;
      case InferParameter::kDoubleParam: value = parameter.double_param(); break;
      case InferParameter::kUint64Param: value = parameter.uint64_param(); break;
      case InferParameter::PARAMETER_CHOICE_NOT_SET: break;
    }
  }
  return object;
}

std::string JsonText(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}
std::string JsonText(const std::string& text) { return JsonText(ordered_json(text)); }

}  // namespace posenc::server

#include "server/oip/parameters.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"

namespace posenc::server {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using inference::InferParameter;

constexpr char kFlag[] = "true or false", kInteger[] = "an integer";

std::string PathOf(std::string_view where, const std::string& name) {
  return where.empty() ? Quote(name) : absl::StrCat(std::string(where), ".", Quote(name));
}

absl::Status WrongType(const std::string& path, std::string_view wanted) {
  return InvalidArgument("MISMATCH", path, "", absl::StrCat("must be ", std::string(wanted)));
}

std::optional<int64_t> Integer(const InferParameter& value) {
  if (value.parameter_choice_case() == InferParameter::kInt64Param) return value.int64_param();
  const bool fits = value.parameter_choice_case() == InferParameter::kUint64Param &&
                    value.uint64_param() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return fits ? std::optional(static_cast<int64_t>(value.uint64_param())) : std::nullopt;
}

// "LAYOUT_" of LAYOUT_UNSPECIFIED.
std::string PrefixOf(const EnumDescriptor& type) {
  const std::string zero(type.value(0)->name());
  constexpr std::string_view kUnspecified = "UNSPECIFIED";
  return zero.ends_with(kUnspecified) ? zero.substr(0, zero.size() - kUnspecified.size()) : "";
}

absl::StatusOr<const EnumValueDescriptor*> EnumValue(const std::string& path, const EnumDescriptor& type,
                                                     const std::vector<int>& offered, const InferParameter& value) {
  const std::string prefix = PrefixOf(type);
  std::string name = value.string_param();
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const EnumValueDescriptor* found = type.FindValueByName(name);
  if (found == nullptr) found = type.FindValueByName(prefix + name);
  if (found != nullptr && found->number() != 0) return found;
  std::string names;
  for (int n = 0; n < type.value_count(); ++n) {
    const int number = type.value(n)->number();
    const bool is_offered = offered.empty() || std::find(offered.begin(), offered.end(), number) != offered.end();
    if (number == 0 || !is_offered) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", type.value(n)->name().substr(prefix.size()));
  }
  if (value.parameter_choice_case() != InferParameter::kStringParam) return WrongType(path, "text: one of " + names);
  return InvalidArgument("UNKNOWN_VALUE", path, value.string_param(), "must be one of " + names);
}

absl::Status SetNumber(const std::string& path, const InferParameter& value, const FieldDescriptor& field,
                       Message* parent) {
  const auto& reflection = *parent->GetReflection();
  const std::optional<int64_t> integer = Integer(value);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    const bool real = value.parameter_choice_case() == InferParameter::kDoubleParam;
    if (!real && !integer) return WrongType(path, "a number");
    reflection.SetDouble(parent, &field, real ? value.double_param() : static_cast<double>(*integer));
    return absl::OkStatus();
  }
  if (!integer) return WrongType(path, kInteger);
  if (field.is_repeated()) {
    reflection.AddInt64(parent, &field, *integer);
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    reflection.SetInt64(parent, &field, *integer);
  } else if (*integer < 0 || *integer > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument("OUT_OF_RANGE", path, absl::StrCat(*integer), "must be from 0 to 4294967295");
  } else {
    reflection.SetUInt32(parent, &field, static_cast<uint32_t>(*integer));
  }
  return absl::OkStatus();
}

absl::Status SetParameter(const std::string& path, const InferParameter& value, const ParameterField& parameter,
                          Message* request) {
  const FieldPath& field = parameter.field;
  Message* const parent = field.MutableParent(request);
  if (parent == nullptr) {
    return InvalidArgument("CONFLICT", path, "", "must be absent: another parameter or an input excludes it");
  }
  const FieldDescriptor& last = field.last();
  const auto& reflection = *parent->GetReflection();
  if (!last.is_repeated() && reflection.HasField(*parent, &last)) {
    return InvalidArgument("CONFLICT", path, "", "must be absent: the settings give it already");
  }
  switch (last.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM: {
      POSENC_ASSIGN_OR_RETURN(const EnumValueDescriptor* found,
                              EnumValue(path, *last.enum_type(), parameter.values, value));
      reflection.SetEnum(parent, &last, found);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (value.parameter_choice_case() != InferParameter::kBoolParam) return WrongType(path, kFlag);
      reflection.SetBool(parent, &last, value.bool_param());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_STRING:
      if (value.parameter_choice_case() != InferParameter::kStringParam) return WrongType(path, "text");
      reflection.SetString(parent, &last, value.string_param());
      return absl::OkStatus();
    default: return SetNumber(path, value, last, parent);
  }
}

// A parameter that Triton's and KServe's clients set, and that changes no byte of an answer here. It has the types that
// Triton checks.
struct IgnoredParameter {
  std::string_view name;
  std::vector<InferParameter::ParameterChoiceCase> types;
  std::string_view wanted;
};

const IgnoredParameter* FindIgnored(std::string_view name) {
  static const auto* const parameters = new std::vector<IgnoredParameter>{
      {"triton_enable_empty_final_response", {InferParameter::kBoolParam}, kFlag},
      {"sequence_id", {InferParameter::kInt64Param, InferParameter::kStringParam}, "an integer (int64_param) or text"},
      {"sequence_start", {InferParameter::kBoolParam}, kFlag},
      {"sequence_end", {InferParameter::kBoolParam}, kFlag},
      {"priority", {InferParameter::kInt64Param, InferParameter::kUint64Param}, kInteger},
      {"timeout", {InferParameter::kInt64Param}, "an integer (int64_param)"},
      {"binary_data", {InferParameter::kBoolParam}, kFlag},
      {"binary_data_size", {InferParameter::kInt64Param, InferParameter::kUint64Param}, kInteger},
      {"binary_data_output", {InferParameter::kBoolParam}, kFlag}};
  const auto found =
      std::find_if(parameters->begin(), parameters->end(), [&](const auto& one) { return one.name == name; });
  return found == parameters->end() ? nullptr : &*found;
}

absl::Status CheckIgnored(const std::string& path, const InferParameter& value, const IgnoredParameter& parameter) {
  const auto& types = parameter.types;
  if (std::find(types.begin(), types.end(), value.parameter_choice_case()) == types.end()) {
    return WrongType(path, parameter.wanted);
  }
  if (parameter.name == "priority" && value.int64_param() < 0) {
    return InvalidArgument("OUT_OF_RANGE", path, absl::StrCat(value.int64_param()), "must be at least 0");
  }
  return absl::OkStatus();
}

// Checks a parameter that is not one of `fields`.
absl::Status CheckOther(std::string_view where, const std::string& name, const InferParameter& value,
                        const std::vector<ParameterField>& fields) {
  if (const IgnoredParameter* ignored = FindIgnored(name); ignored != nullptr) {
    return CheckIgnored(PathOf(where, name), value, *ignored);
  }
  std::string names;
  for (const ParameterField& field : fields) absl::StrAppend(&names, names.empty() ? "" : ", ", field.name);
  return InvalidArgument("UNKNOWN_VALUE",
                         where.empty() ? "parameters" : absl::StrCat(std::string(where), ".parameters"), name,
                         names.empty() ? "must be empty" : "must be one of " + names);
}

}  // namespace

absl::Status SetParameters(std::string_view where, const InferParameters& given,
                           const std::vector<ParameterField>& fields,
                           absl::FunctionRef<bool(const std::string& name)> other, Message* request) {
  if (given.empty()) return absl::OkStatus();
  for (const ParameterField& field : fields) {
    const auto found = given.find(field.name);
    if (found == given.end()) continue;
    POSENC_RETURN_IF_ERROR(SetParameter(PathOf(where, field.name), found->second, field, request));
  }
  // The map has no order. Of several errors the caller gets that of the least name.
  std::string_view least;
  absl::Status first;
  for (const auto& [name, value] : given) {
    const auto is_it = [&parameter = name](const ParameterField& field) { return field.name == parameter; };
    if (std::any_of(fields.begin(), fields.end(), is_it) || other(name)) continue;
    absl::Status status = CheckOther(where, name, value, fields);
    if (status.ok() || (!first.ok() && least < name)) continue;
    least = name;
    first = std::move(status);
  }
  return first;
}

absl::StatusOr<int64_t> IntegerOf(std::string_view where, const InferParameters& given, const std::string& name) {
  const auto found = given.find(name);
  if (found == given.end()) return 0;
  const std::optional<int64_t> integer = Integer(found->second);
  if (!integer) return WrongType(PathOf(where, name), kInteger);
  return *integer;
}

absl::StatusOr<std::string> TextOf(std::string_view where, const InferParameters& given, const std::string& name) {
  const auto found = given.find(name);
  if (found == given.end()) return "";
  if (found->second.parameter_choice_case() != InferParameter::kStringParam) {
    return WrongType(PathOf(where, name), "text");
  }
  return found->second.string_param();
}

}  // namespace posenc::server

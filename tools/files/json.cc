#include "tools/files/json.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "posenc/base/json_text.h"
#include "posenc/base/status.h"
#include "tools/files/decimal.h"
#include "tools/files/tensor_header.h"

namespace posenc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

void AppendElement(v1::DataType dtype, const char* bytes, std::string* out) {
  switch (dtype) {
    case v1::DATA_TYPE_FP64: return AppendDecimal(Load<double>(bytes), out);
    case v1::DATA_TYPE_FP32: return AppendDecimal(Load<float>(bytes), out);
    case v1::DATA_TYPE_FP16: return AppendHalfDecimal(Load<uint16_t>(bytes), out);
    case v1::DATA_TYPE_BF16: return AppendBfloat16Decimal(Load<uint16_t>(bytes), out);
    case v1::DATA_TYPE_INT32: return absl::StrAppend(out, Load<int32_t>(bytes));
    case v1::DATA_TYPE_INT64: return absl::StrAppend(out, Load<int64_t>(bytes));
    default: out->append(*bytes ? "true" : "false");
  }
}

absl::StatusOr<std::string> FieldsToJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
#if GOOGLE_PROTOBUF_VERSION < 5026000
  options.always_print_primitive_fields = true;
#else
  options.always_print_fields_with_no_presence = true;
#endif
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) return absl::InternalError(absl::StrCat("cannot be printed as JSON: ", status.ToString()));
  return json;
}

// Returns the set fields of `message` that hold a tensor.
std::vector<const FieldDescriptor*> TensorFields(const Message& message) {
  std::vector<const FieldDescriptor*> set, tensors;
  message.GetReflection()->ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    if (!field->is_repeated() && field->message_type() == v1::Tensor::descriptor()) tensors.push_back(field);
  }
  return tensors;
}

// Copies a field of doubles or strings.
absl::Status CopyScalars(const FieldDescriptor& field, const Message& from, Message* to) {
  const auto* reflection = from.GetReflection();
  const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  if (!is_text && (field.is_repeated() || field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE)) {
    return absl::InternalError("an answer with tensors must have only messages, doubles and strings beside them");
  }
  for (int n = 0; field.is_repeated() && n < reflection->FieldSize(from, &field); ++n) {
    reflection->AddString(to, &field, reflection->GetRepeatedString(from, &field, n));
  }
  if (field.is_repeated()) return absl::OkStatus();
  if (is_text) {
    reflection->SetString(to, &field, reflection->GetString(from, &field));
  } else {
    reflection->SetDouble(to, &field, reflection->GetDouble(from, &field));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> TensorToJson(const v1::Tensor& tensor) {
  const TensorHeader header{"", tensor.dtype(), {tensor.shape().begin(), tensor.shape().end()}};
  POSENC_ASSIGN_OR_RETURN(const uint64_t size, ByteSize(header));
  if (size != tensor.data().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor has ", tensor.data().size(), " bytes of data, but its type and shape need ", size));
  }
  std::string json = absl::StrCat("{\"dtype\": \"", v1::DataType_Name(tensor.dtype()), "\", \"shape\": [",
                                  absl::StrJoin(header.shape, ", "), "], \"data\": [");
  const size_t element = ElementSize(tensor.dtype());
  for (size_t at = 0; at < size; at += element) {
    if (at > 0) json += ", ";
    AppendElement(tensor.dtype(), tensor.data().data() + at, &json);
  }
  return json + "]}";
}

absl::Status FromJson(const std::string& json, Message* message) {
  // protobuf's parser takes quadratic time for deep texts.
  nlohmann::json tree;
  if (const absl::Status status = ParseJson(json, "", &tree); !status.ok()) {
    return absl::InvalidArgumentError(std::string(status.message()));
  }
  const auto status = google::protobuf::util::JsonStringToMessage(json, message);
  if (status.ok()) return absl::OkStatus();
  std::string said(status.message());
  said.resize(std::min(said.find('\n'), said.size()));
  if (said.ends_with('.')) said.pop_back();
  return absl::InvalidArgumentError(Quote(said, 512));
}

absl::StatusOr<std::string> ToJson(const Message& message) {
  const std::vector<const FieldDescriptor*> tensors = TensorFields(message);
  if (tensors.empty()) return FieldsToJson(message);

  // protobuf formats everything else, from a copy without tensors. The tensors are then inserted before the last brace.
  const auto* reflection = message.GetReflection();
  const std::unique_ptr<Message> rest(message.New());
  std::vector<const FieldDescriptor*> set;
  reflection->ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    if (field->message_type() == nullptr) {
      POSENC_RETURN_IF_ERROR(CopyScalars(*field, message, rest.get()));
    } else if (field->is_repeated()) {
      for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
        rest->GetReflection()
            ->AddMessage(rest.get(), field)
            ->CopyFrom(reflection->GetRepeatedMessage(message, field, i));
      }
    } else if (field->message_type() != v1::Tensor::descriptor()) {
      rest->GetReflection()->MutableMessage(rest.get(), field)->CopyFrom(reflection->GetMessage(message, field));
    }
  }
  POSENC_ASSIGN_OR_RETURN(std::string json, FieldsToJson(*rest));
  json.resize(json.find_last_of('}'));
  while (!json.empty() && (json.back() == '\n' || json.back() == ' ')) json.pop_back();
  for (const FieldDescriptor* field : tensors) {
    const auto& tensor = static_cast<const v1::Tensor&>(reflection->GetMessage(message, field));
    POSENC_ASSIGN_OR_RETURN(const std::string text, TensorToJson(tensor));
    absl::StrAppend(&json, json.back() == '{' ? "\n \"" : ",\n \"", field->name(), "\": ", text);
  }
  return json + "\n}\n";
}

}  // namespace posenc

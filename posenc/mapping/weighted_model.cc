#include "posenc/mapping/weighted_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/reflection.h>

#include <string>

namespace posenc::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Value of a number, flag or enum field, or of a list of numbers, as text; the zero value if the field is unset.
std::string ValueOf(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    const auto list = [&]<class T>(T) {
      const auto values = reflection.GetRepeatedFieldRef<T>(message, &field);
      return fmt::format("[{}]", fmt::join(values.begin(), values.end(), ", "));
    };
    return field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ? list(int64_t{}) : list(double{});
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: return fmt::format("{}", reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE: return fmt::format("{}", reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL: return reflection.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_ENUM: return reflection.GetEnum(message, &field)->name();  // also of an unknown one
    default: std::abort();
  }
}

void Copy(const Message& from, const FieldDescriptor& field, Message* to) {
  const auto& reflection = *from.GetReflection();
  if (field.is_repeated()) {
    const auto list = [&]<class T>(T) {
      reflection.GetMutableRepeatedFieldRef<T>(to, &field).CopyFrom(reflection.GetRepeatedFieldRef<T>(from, &field));
    };
    return field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ? list(int64_t{}) : list(double{});
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: return reflection.SetInt64(to, &field, reflection.GetInt64(from, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.SetDouble(to, &field, reflection.GetDouble(from, &field));
    case FieldDescriptor::CPPTYPE_BOOL: return reflection.SetBool(to, &field, reflection.GetBool(from, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(to, &field, reflection.GetEnumValue(from, &field));
    default: std::abort();
  }
}

// Adds the tensors within `copy`, at any depth, each with the one at its place in `original`.
void AddTensors(const Message& original, const Message& copy,
                std::vector<std::pair<const v1::Tensor*, const v1::Tensor*>>* tensors) {
  if (copy.GetDescriptor() == v1::Tensor::descriptor()) {
    tensors->emplace_back(&static_cast<const v1::Tensor&>(copy), &static_cast<const v1::Tensor&>(original));
    return;
  }
  const auto& reflection = *copy.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(copy, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_repeated()) continue;  // no list has tensors
    AddTensors(reflection.GetMessage(original, field), reflection.GetMessage(copy, field), tensors);
  }
}

bool IsSet(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0 : reflection.HasField(message, &field);
}

bool IsOfTheCaller(const FieldDescriptor& field) {
  return field.message_type() == v1::Tensor::descriptor() || field.message_type() == v1::ModelConfig::descriptor() ||
         field.enum_type() == v1::WeightLayout_descriptor();
}

absl::Status FillMessage(const Message& said, const FieldDescriptor& field, Message* given) {
  const auto& reflection = *given->GetReflection();
  const bool wanted = reflection.HasField(said, &field);
  if (wanted != reflection.HasField(*given, &field)) {
    return wanted ? InvalidArgument("MISSING", field.name(), "", "must be given: the model in config.json has it")
                  : InvalidArgument("CONFLICT", field.name(), "", "must not be set: the model in config.json has none");
  }
  if (!wanted) return absl::OkStatus();
  return Within(field.name(), FillFrom(reflection.GetMessage(said, &field), reflection.MutableMessage(given, &field)));
}

}  // namespace

absl::StatusOr<ModelLayers> SelectWeighted(const Reader& reader, const v1::ModelConfig& model, Wanted wanted) {
  POSENC_ASSIGN_OR_RETURN(ModelSource source, ReadModelSource(model, "model"));
  if (source.input_pairing || source.output_pairing) {
    return InvalidArgument("NOT_READ", source.input_pairing ? "model.input_pairing" : "model.output_pairing", "",
                           "must be absent: only rotary embeddings read it");
  }
  source.wanted = wanted;
  auto layers = SelectLayer(source, reader.limits);
  if (!layers.ok()) return Within("model", layers.status());
  return layers;
}

absl::Status FillFrom(const Message& said, Message* given) {
  for (int n = 0; n < given->GetDescriptor()->field_count(); ++n) {
    const FieldDescriptor& field = *given->GetDescriptor()->field(n);
    if (IsOfTheCaller(field)) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      POSENC_RETURN_IF_ERROR(FillMessage(said, field, given));
    } else if (!IsSet(*given, field)) {
      if (IsSet(said, field)) Copy(said, field, given);
    } else if (!IsSet(said, field) || ValueOf(said, field) != ValueOf(*given, field)) {
      const bool none = !IsSet(said, field) && (field.has_presence() || field.is_repeated());
      return InvalidArgument("CONFLICT", field.name(), ValueOf(*given, field),
                             none ? "must be absent, as in config.json"
                                  : fmt::format("must be {}, as in config.json", ValueOf(said, field)));
    }
  }
  return absl::OkStatus();
}

PayloadsOfCopy::PayloadsOfCopy(const Payloads& payloads, const Message& original, const Message& copy)
    : payloads_(payloads) {
  AddTensors(original, copy, &originals_);
}

const v1::Tensor& PayloadsOfCopy::Original(const v1::Tensor& tensor) const {
  for (const auto& [copy, original] : originals_) {
    if (copy == &tensor) return *original;
  }
  return tensor;
}

}  // namespace posenc::wire

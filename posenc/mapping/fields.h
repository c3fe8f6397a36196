// Reads settings structs from messages and writes them, field by field, with the names in POSENC_FIELDS.
//
//   Settings                  Message                       Read                          Written
//   int64_t, double, bool     the same                      unless optional and absent    always
//   enum                      enum                          must be one of kEnumPairs     always
//   struct                    message                       always                        always
//   vector                    repeated                      always                        always
//   Matrix, vector of float   Tensor                        required                      unless empty
//   Window NAME               NAME_height, NAME_width       always                        always
//   optional of any of these  as without optional           if present                    if set
#pragma once

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/mapping/read.h"
#include "posenc/settings/fields.h"
#include "posenc/settings/settings.h"

namespace posenc::wire {

// The proto and C++ values of an enum that settings have. Each enum has a specialization.
template <class Enum>
inline constexpr auto kEnumPairs = nullptr;
template <>
inline constexpr EnumPairs<v1::Pairing, Pairing> kEnumPairs<Pairing> = kPairings;
template <>
inline constexpr EnumPairs<v1::DataType, DType> kEnumPairs<DType> = kDataTypes;

using FieldOfMessage = const google::protobuf::FieldDescriptor*;

// The descriptors of the settings' fields. Looked up once, because every call needs them: each struct has one message
// type. A Window has the descriptor of its height.
template <HasFields Settings>
const FieldOfMessage* FieldsOf(const google::protobuf::Message& message) {
  static const auto fields = [&] {
    std::array<FieldOfMessage, kFieldNames<Settings>.size()> found;
    for (size_t n = 0; n < found.size(); ++n) {
      const std::string name(kFieldNames<Settings>[n]);
      found[n] = message.GetDescriptor()->FindFieldByName(name);
      if (found[n] == nullptr) found[n] = message.GetDescriptor()->FindFieldByName(name + "_height");
    }
    return found;
  }();
  return fields.data();
}

// Reads the fields of `settings`. Errors name the field within the message; if several fields have errors, the first in
// POSENC_FIELDS counts. Specialized for structs that are not read field by field.
template <class Settings>
absl::Status ReadFields(const Reader& reader, const google::protobuf::Message& message, Settings* settings);

// Visitor of VisitFields, for ReadFields.
struct FieldReader {
  const Reader& reader;
  const google::protobuf::Message& message;
  const FieldOfMessage* next;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  absl::Status status = absl::OkStatus();

  template <class T>
  void operator()(std::string_view name, T& value) {
    const FieldOfMessage field = *next++;
    if (std::is_arithmetic_v<T> && field->has_presence() && !reflection.HasField(message, field)) return;
    if (status.ok()) status = Get(name, field, value);
  }
  template <class T>
  void operator()(std::string_view name, std::optional<T>& value) {
    const FieldOfMessage field = *next++;
    if (status.ok() && reflection.HasField(message, field)) status = Get(name, field, value.emplace());
  }

 private:
  template <class T>
  absl::Status Get(std::string_view name, FieldOfMessage field, T& value) const {
    if constexpr (std::is_same_v<T, int64_t>) {
      value = reflection.GetInt64(message, field);
    } else if constexpr (std::is_same_v<T, double>) {
      value = reflection.GetDouble(message, field);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = reflection.GetBool(message, field);
    } else if constexpr (std::is_enum_v<T>) {
      return GetEnum(name, reflection.GetEnumValue(message, field), kEnumPairs<T>, value);
    } else if constexpr (std::is_same_v<T, Window>) {
      const auto* width = message.GetDescriptor()->FindFieldByName(fmt::format("{}_width", name));
      value = {reflection.GetInt64(message, field), reflection.GetInt64(message, width)};
    } else if constexpr (std::is_same_v<T, std::vector<double>> || std::is_same_v<T, std::vector<int64_t>>) {
      if (reflection.FieldSize(message, field) == 0) return absl::OkStatus();  // without an iterator's allocation
      const auto values = reflection.GetRepeatedFieldRef<typename T::value_type>(message, field);
      const LargeBlocksMayBeRefused scope;
      value.assign(values.begin(), values.end());
    } else if constexpr (std::is_same_v<T, Matrix<float>>) {
      POSENC_ASSIGN_OR_RETURN(value, reader.Weight(name, Tensor(field)));
    } else if constexpr (std::is_same_v<T, std::vector<float>>) {
      POSENC_ASSIGN_OR_RETURN(value, reader.WeightVector(name, Tensor(field)));
    } else if constexpr (std::is_same_v<T, Matrix<double>>) {
      POSENC_ASSIGN_OR_RETURN(value, reader.Numbers(name, Tensor(field)));
    } else if constexpr (std::is_same_v<T, Matrix<uint8_t>>) {
      POSENC_ASSIGN_OR_RETURN(value, reader.Flags(name, Tensor(field)));
    } else if constexpr (requires { value.emplace_back(); }) {
      for (int n = 0; n < reflection.FieldSize(message, field); ++n) {
        const auto& element = reflection.GetRepeatedMessage(message, field, n);
        const absl::Status read = ReadFields(reader, element, &value.emplace_back());
        if (!read.ok()) return Within(fmt::format("{}[{}]", name, n), read);
      }
    } else {
      return Within(name, ReadFields(reader, reflection.GetMessage(message, field), &value));
    }
    return absl::OkStatus();
  }
  template <class Proto, class Enum>
  static absl::Status GetEnum(std::string_view name, int number, const EnumPairs<Proto, Enum>& pairs, Enum& value) {
    POSENC_ASSIGN_OR_RETURN(value, Choose(name, static_cast<Proto>(number), pairs));
    return absl::OkStatus();
  }
  const v1::Tensor& Tensor(FieldOfMessage field) const {
    return static_cast<const v1::Tensor&>(reflection.GetMessage(message, field));
  }
};

template <class Settings>
absl::Status ReadFields(const Reader& reader, const google::protobuf::Message& message, Settings* settings) {
  FieldReader fields{reader, message, FieldsOf<Settings>(message)};
  VisitFields(*settings, fields);
  return fields.status;
}

template <class Settings>
absl::StatusOr<Settings> Read(const Reader& reader, const google::protobuf::Message& message) {
  Settings settings;
  POSENC_RETURN_IF_ERROR(ReadFields(reader, message, &settings));
  return settings;
}

// Writes the fields of `settings` to `message`, which has none of them yet. Specialized as ReadFields is.
template <class Settings>
void WriteFields(const Settings& settings, google::protobuf::Message* message);

// Visitor of VisitFields, for WriteFields.
struct FieldWriter {
  google::protobuf::Message* message;
  const FieldOfMessage* next;
  const google::protobuf::Reflection& reflection = *message->GetReflection();

  template <class T>
  void operator()(std::string_view name, const T& value) {
    Put(name, *next++, value);
  }
  void operator()(std::string_view name, const Matrix<float>& value) {
    if (const FieldOfMessage field = *next++; !value.shared || !value.values.empty()) Put(name, field, value);
  }
  void operator()(std::string_view name, const std::vector<float>& value) {
    if (const FieldOfMessage field = *next++; !value.empty()) Put(name, field, value);
  }
  template <class T>
  void operator()(std::string_view name, const std::optional<T>& value) {
    if (const FieldOfMessage field = *next++; value) Put(name, field, *value);
  }

 private:
  template <class T>
  void Put(std::string_view name, FieldOfMessage field, const T& value) {
    if constexpr (std::is_same_v<T, int64_t>) {
      reflection.SetInt64(message, field, value);
    } else if constexpr (std::is_same_v<T, double>) {
      reflection.SetDouble(message, field, value);
    } else if constexpr (std::is_same_v<T, bool>) {
      reflection.SetBool(message, field, value);
    } else if constexpr (std::is_enum_v<T>) {
      reflection.SetEnumValue(message, field, Name(value, kEnumPairs<T>));
    } else if constexpr (std::is_same_v<T, Window>) {
      reflection.SetInt64(message, field, value.height);
      const auto* width = message->GetDescriptor()->FindFieldByName(fmt::format("{}_width", name));
      reflection.SetInt64(message, width, value.width);
    } else if constexpr (std::is_same_v<T, std::vector<double>> || std::is_same_v<T, std::vector<int64_t>>) {
      RequireMemory(static_cast<int64_t>(4 * value.size() * sizeof(value[0])));  // it doubles, in an arena
      auto values = reflection.GetMutableRepeatedFieldRef<typename T::value_type>(message, field);
      for (const auto& element : value) values.Add(element);
    } else if constexpr (std::is_same_v<T, std::vector<float>>) {
      WriteVector(value, static_cast<v1::Tensor*>(reflection.MutableMessage(message, field)));
    } else if constexpr (requires { value.columns; }) {
      WriteMatrix(value, static_cast<v1::Tensor*>(reflection.MutableMessage(message, field)));
    } else if constexpr (requires { value.back(); }) {
      for (const auto& element : value) WriteFields(element, reflection.AddMessage(message, field));
    } else {
      WriteFields(value, reflection.MutableMessage(message, field));
    }
  }
};

template <class Settings>
void WriteFields(const Settings& settings, google::protobuf::Message* message) {
  VisitFields(settings, FieldWriter{message, FieldsOf<Settings>(*message)});
}

// The message's field of this name, a message.
inline google::protobuf::Message* MutableMessage(std::string_view field, google::protobuf::Message* message) {
  const auto* descriptor = message->GetDescriptor()->FindFieldByName(std::string(field));
  return message->GetReflection()->MutableMessage(message, descriptor);
}

}  // namespace posenc::wire

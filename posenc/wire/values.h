// Conversion of single message values: enums, and a tensor's type and shape.
//
// Errors name the field by its path, `field`.
#pragma once

#include <fmt/format.h>
#include <google/protobuf/generated_enum_reflection.h>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "posenc/base/dtype.h"
#include "posenc/base/limits.h"
#include "posenc/base/status.h"
#include "posenc/base/tensor.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::wire {

// Mapping between a proto enum and a C++ enum; a proto value without a pair (e.g. _UNSPECIFIED) is not allowed.
template <class Proto, class Ours>
using EnumPairs = std::initializer_list<std::pair<Proto, Ours>>;

// Returns the C++ value mapped to `value`, or INVALID_ARGUMENT listing the choices.
template <class Proto, class Ours>
absl::StatusOr<Ours> Choose(std::string_view field, Proto value, const EnumPairs<Proto, Ours>& pairs) {
  std::string names;
  const auto* descriptor = google::protobuf::GetEnumDescriptor<Proto>();
  for (const auto& [proto, ours] : pairs) {
    if (proto == value) return ours;
    names += (names.empty() ? "" : ", ") + std::string(descriptor->FindValueByNumber(proto)->name());
  }
  const int number = static_cast<int>(value);
  if (number != 0) return InvalidArgument("UNKNOWN_VALUE", field, std::to_string(number), "must be one of " + names);
  return InvalidArgument("MISSING", field, "", "must be one of " + names);
}

// Returns the proto value mapped to `value`. Aborts if `value` is not among the pairs.
template <class Proto, class Ours>
Proto Name(Ours value, const EnumPairs<Proto, Ours>& pairs) {
  for (const auto& [proto, ours] : pairs) {
    if (ours == value) return proto;
  }
  std::abort();
}

inline constexpr EnumPairs<v1::DataType, DType> kDataTypes = {
    {v1::DATA_TYPE_FP32, DType::kFP32}, {v1::DATA_TYPE_FP16, DType::kFP16},   {v1::DATA_TYPE_BF16, DType::kBF16},
    {v1::DATA_TYPE_FP64, DType::kFP64}, {v1::DATA_TYPE_INT32, DType::kINT32}, {v1::DATA_TYPE_INT64, DType::kINT64},
    {v1::DATA_TYPE_BOOL, DType::kBOOL},
};

inline constexpr EnumPairs<v1::DataType, DType> kOperandTypes = {
    {v1::DATA_TYPE_FP32, DType::kFP32}, {v1::DATA_TYPE_FP16, DType::kFP16}, {v1::DATA_TYPE_BF16, DType::kBF16}};
inline constexpr EnumPairs<v1::DataType, DType> kTableTypes = {{v1::DATA_TYPE_FP32, DType::kFP32},
                                                               {v1::DATA_TYPE_FP16, DType::kFP16},
                                                               {v1::DATA_TYPE_BF16, DType::kBF16},
                                                               {v1::DATA_TYPE_FP64, DType::kFP64}};
inline constexpr EnumPairs<v1::DataType, DType> kIndexTypes = {{v1::DATA_TYPE_INT32, DType::kINT32}};

// Returns the type, which need not be one of `accepted`. Only these are offered to who gave none.
inline absl::StatusOr<DType> ChooseType(std::string_view field, v1::DataType value,
                                        const EnumPairs<v1::DataType, DType>& accepted) {
  return Choose(field, value, value == v1::DATA_TYPE_UNSPECIFIED ? accepted : kDataTypes);
}

// Returns a tensor's type and shape; its data are not read. INVALID_ARGUMENT as from Choose() and CheckDeclared().
inline absl::StatusOr<TensorShape> ShapeOf(std::string_view field, const v1::Tensor& tensor, const Limits& limits) {
  TensorShape shape;
  POSENC_ASSIGN_OR_RETURN(shape.dtype, Choose(fmt::format("{}.dtype", field), tensor.dtype(), kDataTypes));
  shape.shape.assign(tensor.shape().begin(), tensor.shape().end());
  POSENC_RETURN_IF_ERROR(CheckDeclared(field, shape, limits));
  return shape;
}

}  // namespace posenc::wire

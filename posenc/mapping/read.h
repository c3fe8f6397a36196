// From messages to the library's types: the small pieces that every request is made of.
//
// Errors name the field by its path from `field` on.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/status.h"
#include "posenc/base/tensor.h"
#include "posenc/model/model.h"
#include "posenc/settings/settings.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/answer.h"
#include "posenc/wire/payloads.h"
#include "posenc/wire/values.h"

namespace posenc::wire {

inline constexpr EnumPairs<v1::Pairing, Pairing> kPairings = {
    {v1::PAIRING_INTERLEAVED, Pairing::kInterleaved},
    {v1::PAIRING_HALF_SPLIT, Pairing::kHalfSplit},
};
inline constexpr EnumPairs<v1::TableForm, TableForm> kTableForms = {
    {v1::TABLE_FORM_HALF_WIDTH, TableForm::kHalfWidth},
    {v1::TABLE_FORM_DUPLICATED, TableForm::kDuplicated},
    {v1::TABLE_FORM_REPEAT_INTERLEAVED, TableForm::kRepeatInterleaved},
};

// What a request's messages are read with.
struct Reader {
  const Payloads& payloads;
  const Limits& limits;

  // Where `bytes` of an answer go: to the region, if there is one, else into the answer. The tensor gets the region.
  absl::StatusOr<Output> Place(std::string_view field, const v1::Region* region, size_t bytes,
                               v1::Tensor* tensor) const;

  // Type and shape, checked against the number of bytes.
  absl::StatusOr<TensorShape> Shape(std::string_view field, const v1::Tensor& tensor) const;
  // INT32, INT64, FP32 or FP64 values; integers at most 2^53 in magnitude.
  absl::StatusOr<std::vector<double>> Values(std::string_view field, const v1::Tensor& tensor) const;
  // The same of a tensor [n] (shared) or [b, n].
  absl::StatusOr<Matrix<double>> Numbers(std::string_view field, const v1::Tensor& tensor) const;
  // The same of INT32 and INT64 only.
  absl::StatusOr<Matrix<double>> Integers(std::string_view field, const v1::Tensor& tensor) const;
  // FP32, FP16 or BF16 values of a tensor [n] or [b, n], as float32.
  absl::StatusOr<Matrix<float>> Weights(std::string_view field, const v1::Tensor& tensor) const;
  // The same of two axes.
  absl::StatusOr<Matrix<float>> Weight(std::string_view field, const v1::Tensor& tensor) const;
  // The same of one.
  absl::StatusOr<std::vector<float>> WeightVector(std::string_view field, const v1::Tensor& tensor) const;
  // BOOL [b, n] or [n].
  absl::StatusOr<Matrix<uint8_t>> Flags(std::string_view field, const v1::Tensor& tensor) const;
  absl::StatusOr<Positions> ReadPositions(const v1::Positions& message, std::string_view field = "positions") const;
};

// The request's output, or null.
template <class Request>
const v1::Region* OutputOf(const Request& request) {
  return request.has_output() ? &request.output() : nullptr;
}

// How many rows there are at the positions in `field`, none of them a tensor's: as they say themselves, else `count`.
absl::StatusOr<int64_t> CountRows(std::string_view field, const Positions& positions, std::optional<int64_t> count);

absl::StatusOr<std::optional<Pairing>> ReadPairing(std::string_view field, v1::Pairing pairing);
absl::StatusOr<RotarySettings> ReadRotarySettings(const Reader& reader, const v1::RotarySettings& message);
// field: the path of the message, which errors begin with; empty where the caller puts it there.
absl::StatusOr<ModelSource> ReadModelSource(const v1::ModelConfig& message, std::string_view field);
// model: the class's own axes, where a config.json is given.
absl::StatusOr<Precision> ReadPrecision(const v1::Precision& message, const std::optional<Precision>& model);

// The same with rows and columns exchanged.
Matrix<float> Turned(const Matrix<float>& matrix);

// The way back.
void WriteRotarySettings(const RotarySettings& settings, v1::RotarySettings* message);
void WritePrecision(const Precision& precision, v1::PrecisionAxes* axes);
void WriteShape(const TensorShape& shape, v1::Tensor* tensor);
// FP64, FP32 or BOOL, of two axes unless the matrix is shared.
void WriteMatrix(const Matrix<double>& matrix, v1::Tensor* tensor);
void WriteMatrix(const Matrix<float>& matrix, v1::Tensor* tensor);
void WriteVector(const std::vector<float>& values, v1::Tensor* tensor);
void WriteMatrix(const Matrix<uint8_t>& matrix, v1::Tensor* tensor);

}  // namespace posenc::wire

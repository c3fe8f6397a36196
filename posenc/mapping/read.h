// Converts the messages that requests share to the library's types and back.
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
#include "posenc/rotary/rotary_plan.h"
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
    {v1::TABLE_FORM_PER_ELEMENT, TableForm::kPerElement},
};

// Copies all bytes of a tensor.
std::vector<std::byte> CopyOf(const Payloads& payloads, const v1::Tensor& tensor);

// Reads a request's messages, with its payloads and the limits. Holds references; both must outlive it.
struct Reader {
  const Payloads& payloads;
  const Limits& limits;
  PlanSource plan_source = PlanSource::kCacheOrComputed;

  // Places `bytes` bytes of an answer in the region or, if that is null, in the answer. Copies the region to `tensor`.
  absl::StatusOr<Output> Place(std::string_view field, const v1::Region* region, size_t bytes,
                               v1::Tensor* tensor) const;

  // Type and shape of the tensor, checked against its number of bytes.
  absl::StatusOr<TensorShape> Shape(std::string_view field, const v1::Tensor& tensor) const;
  // Values of an INT32, INT64, FP32 or FP64 tensor; integers must be at most 2^53 in magnitude.
  absl::StatusOr<std::vector<double>> Values(std::string_view field, const v1::Tensor& tensor) const;
  // Values() of a tensor [n] (shared by all batch rows) or [b, n].
  absl::StatusOr<Matrix<double>> Numbers(std::string_view field, const v1::Tensor& tensor) const;
  // Numbers() of INT32 and INT64 only.
  absl::StatusOr<Matrix<double>> Integers(std::string_view field, const v1::Tensor& tensor) const;
  // Values of an FP32, FP16 or BF16 tensor of any shape, as float32.
  absl::StatusOr<std::vector<float>> WeightValues(std::string_view field, const v1::Tensor& tensor) const;
  // WeightValues() of a tensor [n] or [b, n].
  absl::StatusOr<Matrix<float>> Weights(std::string_view field, const v1::Tensor& tensor) const;
  // Weights() of a tensor with two axes.
  absl::StatusOr<Matrix<float>> Weight(std::string_view field, const v1::Tensor& tensor) const;
  // Weights() of a tensor with one axis.
  absl::StatusOr<std::vector<float>> WeightVector(std::string_view field, const v1::Tensor& tensor) const;
  // Values of a BOOL tensor [b, n] or [n]; each byte must be 0 or 1.
  absl::StatusOr<Matrix<uint8_t>> Flags(std::string_view field, const v1::Tensor& tensor) const;
  absl::StatusOr<Positions> ReadPositions(const v1::Positions& message, std::string_view field = "positions") const;
};

// The request's output region; null if absent.
template <class Request>
const v1::Region* OutputOf(const Request& request) {
  return request.has_output() ? &request.output() : nullptr;
}

// Number of rows for positions that belong to no tensor: from ids or segments, otherwise `count`, which must be
// 0 .. max_dimension. `field`: their path.
absl::StatusOr<int64_t> CountRows(std::string_view field, const Positions& positions, std::optional<int64_t> count,
                                  const Limits& limits);

// Reads the field `cu_seqlens`: sequence boundaries, INT32 or INT64 [N+1].
absl::StatusOr<std::vector<int64_t>> ReadBounds(const Reader& reader, const v1::Tensor& tensor);

absl::StatusOr<std::optional<Pairing>> ReadPairing(std::string_view field, v1::Pairing pairing);
absl::StatusOr<RotarySettings> ReadRotarySettings(const Reader& reader, const v1::RotarySettings& message);
// field: path of the message, which errors begin with; empty if the caller prepends it.
absl::StatusOr<ModelSource> ReadModelSource(const v1::ModelConfig& message, std::string_view field);
// model: the model class's own precision, if a config.json is given.
absl::StatusOr<Precision> ReadPrecision(const v1::Precision& message, const std::optional<Precision>& model);

// The transposed matrix.
Matrix<float> Turned(const Matrix<float>& matrix);

// Conversions from the library's types to messages.
void WriteRotarySettings(const RotarySettings& settings, v1::RotarySettings* message);
void WritePrecision(const Precision& precision, v1::PrecisionAxes* axes);
void WriteShape(const TensorShape& shape, v1::Tensor* tensor);
// Sets the tensor's data, with interruption points between pieces.
void WriteData(std::string_view bytes, v1::Tensor* tensor);
// Writes an FP64, FP32 or BOOL tensor, with two axes unless the matrix is shared.
void WriteMatrix(const Matrix<double>& matrix, v1::Tensor* tensor);
void WriteMatrix(const Matrix<float>& matrix, v1::Tensor* tensor);
void WriteVector(const std::vector<float>& values, v1::Tensor* tensor);
void WriteMatrix(const Matrix<uint8_t>& matrix, v1::Tensor* tensor);

}  // namespace posenc::wire

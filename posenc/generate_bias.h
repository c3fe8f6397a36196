// Attention biases, written as a matrix or added to given scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/limits.h"
#include "posenc/spec.h"
#include "posenc/tensor.h"
#include "posenc/work_pool.h"

namespace posenc {

struct GenerateBias {
  AlibiSettings alibi;
  BiasGeometry geometry;
  std::optional<Mask> mask;
  BiasForm form = BiasForm::kDense;
  DType dtype = DType::kFP32;
  Precision precision;
  std::optional<TensorShape> scores;  // [B, H, Sq, Sk], of `dtype`: the bias is added to them
};

class BiasGeneration {
 public:
  static absl::StatusOr<BiasGeneration> Create(GenerateBias call, const Limits& limits);

  const TensorShape& shape() const { return shape_; }
  const AlibiSettings& alibi() const { return call_.alibi; }
  const Matrix<double>& slopes() const { return slopes_; }
  std::string Fingerprint() const;

  // Writes the tensor. scores: null, or the scores (may be `out`: in place). No alignment needed.
  absl::Status Run(const std::byte* scores, std::byte* out, WorkPool& pool, const Cancellation& cancelled) const;

 private:
  explicit BiasGeneration(GenerateBias call) : call_(std::move(call)) {}
  absl::Status Lay(const Limits& limits);

  GenerateBias call_;
  Matrix<double> slopes_;
  std::optional<int64_t> batch_;  // B, where anything differs by batch row
  int64_t heads_ = 0;             // H of this call, from geometry.head_start
  int64_t queries_ = 0;           // rows and columns of one matrix as it is written
  int64_t keys_ = 0;
  Matrix<double> query_positions_;  // for the distance
  Matrix<double> key_positions_;
  Matrix<double> mask_query_positions_;  // for the mask
  Matrix<double> mask_key_positions_;
  TensorShape shape_;
};

}  // namespace posenc

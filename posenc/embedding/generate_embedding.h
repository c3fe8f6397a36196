// Absolute encodings, written as [S, D] or [B, S, D] or added to a given tensor.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/tensor.h"
#include "posenc/base/work_pool.h"
#include "posenc/rotary/positions.h"
#include "posenc/settings/settings.h"

namespace posenc {

class Encoding;  // a method's rows: posenc/methods/embedding/encoding.h

struct GenerateEmbedding {
  EmbeddingMethod method;
  Positions positions;           // absent if the method defines its own positions
  std::optional<int64_t> count;  // number of rows; required with an offset
  DType dtype = DType::kFP32;    // FP32, FP16, BF16, or (without add_to) FP64
  Precision precision;
  std::optional<TensorShape> add_to;  // [.., S, D] or [.., B, S, D], of `dtype`: the encoding is added to it
};

class EmbeddingGeneration {
 public:
  static absl::StatusOr<EmbeddingGeneration> Create(GenerateEmbedding call, const Limits& limits);

  const TensorShape& shape() const { return shape_; }
  int64_t bytes() const { return bytes_; }  // of the answer
  std::string Fingerprint() const;

  // Writes the tensor to `out`. add_to: the tensor to add to, or null without one; may be `out` (in place). No
  // alignment needed.
  absl::Status Write(const std::byte* add_to, std::byte* out, WorkPool& pool, const Cancellation& cancelled) const;

 private:
  EmbeddingGeneration(TokenPositions positions, std::shared_ptr<const Encoding> encoding)
      : positions_(std::move(positions)), encoding_(std::move(encoding)) {}
  absl::Status CheckPositions() const;
  void Add(const double* at, int64_t token, size_t count, const std::byte* add_to, std::byte* out, size_t* added) const;

  std::string_view method_;
  DType dtype_ = DType::kFP32;
  Precision precision_;
  TokenPositions positions_;
  std::shared_ptr<const Encoding> encoding_;
  TensorShape shape_;
  int64_t bytes_ = 0;
  int64_t copies_ = 1;  // copies of the encoding in the add_to tensor
};

}  // namespace posenc

// Absolute encodings [S, D] or [B, S, D].
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/limits.h"
#include "posenc/positions.h"
#include "posenc/spec.h"
#include "posenc/tensor.h"
#include "posenc/work_pool.h"

namespace posenc {

struct GenerateEmbedding {
  SinusoidalSettings settings;
  Positions positions;           // absent where settings.token_valid is given
  std::optional<int64_t> count;  // rows, with an offset
  DType dtype = DType::kFP32;    // FP32, FP16, BF16 or FP64
  Frequencies frequencies = Frequencies::kExact;
};

class EmbeddingGeneration {
 public:
  static absl::StatusOr<EmbeddingGeneration> Create(GenerateEmbedding call, const Limits& limits);

  const TensorShape& shape() const { return shape_; }
  std::string Fingerprint() const;

  // Writes the tensor; `out` needs no alignment.
  absl::Status Run(std::byte* out, WorkPool& pool, const Cancellation& cancelled) const;

 private:
  EmbeddingGeneration(GenerateEmbedding call, TokenPositions positions)
      : call_(std::move(call)), positions_(std::move(positions)) {}

  GenerateEmbedding call_;
  TokenPositions positions_;
  std::vector<double> inv_freq_;
  TensorShape shape_;
};

}  // namespace posenc

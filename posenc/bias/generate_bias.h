// Attention biases, written as a matrix or added to given scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/tensor.h"
#include "posenc/base/work_pool.h"
#include "posenc/device/device.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct GenerateBias {
  BiasMethod method;
  BiasGeometry geometry;
  std::optional<Mask> mask;
  BiasForm form = BiasForm::kDense;
  DType dtype = DType::kFP32;  // INT32 in the index forms
  Precision precision;
  std::optional<TensorShape> scores;  // [B, H, Sq, Sk], of `dtype`: the bias is added to them
};

struct BiasLayout;  // posenc/bias/bias_layout.h

// Immutable and thread-safe.
class BiasGeneration {
 public:
  // kWhole: one answer holds the whole bias. kTiles: each answer holds some query rows of a dense bias.
  enum class Extent { kWhole, kTiles };

  // With kTiles, only one query's row must fit the output limit, and memory does not grow with the number of queries.
  static absl::StatusOr<BiasGeneration> Create(GenerateBias call, const Limits& limits, Extent extent = Extent::kWhole);

  // Shape of the whole bias.
  const TensorShape& shape() const;
  int64_t queries() const;
  // Completed.
  const BiasMethod& method() const;
  // ALiBi's slopes; empty for other methods.
  const Matrix<double>& slopes() const;
  // True if a device can compute any of it: not the index forms, nor FIRE and forget gates, which the CPU
  // computes row by row.
  bool IsForDevices() const;

  // Writes the whole tensor. `scores` may be null, or equal to `out` (in place). No alignment needed.
  // `device` computes the slabs that it accepts, the CPU the others. Null: the CPU computes all.
  absl::Status Write(const std::byte* scores, std::byte* out, WorkPool& pool, const Cancellation& cancelled,
                     Device* device = nullptr) const {
    return WriteRows(0, queries(), scores, out, pool, cancelled, device);
  }
  // Writes the rows of `count` queries from `first` on, of every matrix: a tensor of shape(), but with Sq = count.
  absl::Status WriteRows(int64_t first, int64_t count, const std::byte* scores, std::byte* out, WorkPool& pool,
                         const Cancellation& cancelled, Device* device = nullptr) const;

 private:
  explicit BiasGeneration(std::shared_ptr<const BiasLayout> layout) : layout_(std::move(layout)) {}

  std::shared_ptr<const BiasLayout> layout_;
};

}  // namespace posenc

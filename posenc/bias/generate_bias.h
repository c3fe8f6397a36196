// Attention biases, written as a matrix or added to given scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/tensor.h"
#include "posenc/base/work_pool.h"
#include "posenc/device/device.h"
#include "posenc/methods/bias/bias.h"
#include "posenc/methods/bias/fire.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct DistanceBias;  // posenc/kernels/distance_bias.h

struct GenerateBias {
  BiasMethod method;
  BiasGeometry geometry;
  std::optional<Mask> mask;
  BiasForm form = BiasForm::kDense;
  DType dtype = DType::kFP32;  // INT32 in the index forms
  Precision precision;
  std::optional<TensorShape> scores;  // [B, H, Sq, Sk], of `dtype`: the bias is added to them
};

class BiasGeneration {
 public:
  // kWhole: one answer holds the whole bias. kTiles: each answer holds some query rows of a dense bias.
  enum class Extent { kWhole, kTiles };

  // With kTiles, only one query's row must fit the output limit, and memory does not grow with the number of queries.
  static absl::StatusOr<BiasGeneration> Create(GenerateBias call, const Limits& limits, Extent extent = Extent::kWhole);

  // Shape of the whole bias.
  const TensorShape& shape() const { return shape_; }
  int64_t queries() const { return queries_; }
  const BiasMethod& method() const { return call_.method; }
  // ALiBi's slopes; empty for other methods.
  const Matrix<double>& slopes() const { return slopes_; }
  // Bytes kept for all rows: values, indices, key positions.
  int64_t held_bytes() const;

  // Writes the tensor. `scores` may be null, or equal to `out` (in place). No alignment needed.
  // `device` computes the slabs that it accepts, the CPU the others. Null: the CPU computes all.
  absl::Status Run(const std::byte* scores, std::byte* out, WorkPool& pool, const Cancellation& cancelled,
                   Device* device = nullptr) const {
    return Run(0, queries_, scores, out, pool, cancelled, device);
  }
  // Whether a device can compute any of it: not the index forms, nor FIRE, which the CPU computes row by row.
  bool IsForDevices() const { return !IsIndex() && fire_ == nullptr; }
  // Writes the rows of `count` queries from `first` on, of every matrix: a tensor of shape(), but with Sq = count.
  absl::Status Run(int64_t first, int64_t count, const std::byte* scores, std::byte* out, WorkPool& pool,
                   const Cancellation& cancelled, Device* device = nullptr) const;

 private:
  // Values of all cells, if one list per head holds them.
  struct ValueLists {
    BiasTable values;            // [H, n]: indexed by distance - first_distance, by table row, or a single row
    ptrdiff_t row_shift = -1;    // offset from one query's slice of values to the next one's; 0: all share one row
    int64_t first_distance = 0;  // distance of the first value
  };
  // Per-query data of the queries that one run computes.
  struct QueryRows {
    int64_t first = 0;
    int64_t count = 0;
    Matrix<double> positions;         // for the distance; token numbers in a window
    Matrix<double> mask_positions;    // for the mask; empty without a mask
    std::vector<double> normalisers;  // FIRE only
    ValueLists alibi;
    bool large = false;  // the result exceeds the caches
  };

  explicit BiasGeneration(GenerateBias call) : call_(std::move(call)) {}
  const AlibiSettings* alibi() const { return std::get_if<AlibiSettings>(&call_.method.settings); }
  bool IsIndex() const { return call_.form == BiasForm::kIndex || call_.form == BiasForm::kCompactIndex; }
  bool IsCompact() const { return call_.form == BiasForm::kCompact || call_.form == BiasForm::kCompactIndex; }
  absl::Status CheckForm() const;
  absl::Status LayLengths();
  absl::Status LayHeads();
  absl::Status LayBatch();
  absl::Status LayShape();
  absl::Status LayPositions();
  absl::Status LayDistances(const Limits& limits);
  QueryRows LayRows(int64_t first, int64_t count) const;
  ValueLists LayAlibi(const QueryRows& rows) const;
  void SetSlopes(int64_t b, int64_t head, DistanceBias* work) const;
  void RunMatrix(const QueryRows& rows, int64_t matrix, size_t begin, size_t end, const std::byte* scores,
                 std::byte* out, Device* device) const;
  void RunIndex(const QueryRows& rows, int64_t b, size_t begin, size_t end, std::byte* out) const;
  // Distance of the first value in a list that is gathered from.
  double FirstDistance() const;
  // Whether each cell's value is gathered; otherwise a query's values are a slice of the list.
  bool Gathers(const ValueLists& lists) const { return lists.row_shift != 0 && (window_ || !consecutive_); }

  GenerateBias call_;
  std::optional<WindowTokens> window_;
  std::optional<int64_t> batch_;  // B; absent if all batch rows are the same
  int64_t heads_ = 0;             // heads of this call, from head_start_ on; 1 in the index forms
  int64_t head_start_ = 0;
  int64_t queries_ = 0;  // rows (queries_) and columns (keys_) of one matrix as written
  int64_t keys_ = 0;
  std::optional<double> query_origin_;  // for the distance, if all queries have this position
  Matrix<double> key_positions_;        // for the distance; token numbers in a window
  Matrix<double> mask_key_positions_;
  TensorShape shape_;

  Matrix<double> slopes_;         // ALiBi
  ValueLists lists_;              // all methods except ALiBi
  std::vector<int32_t> buckets_;  // T5 in the index forms, from lists_.first_distance on
  std::shared_ptr<const FireRows> fire_;
  bool mask_keys_ascend_ = true;
  bool consecutive_ = false;  // queries and keys have consecutive positions: no gathering
};

}  // namespace posenc

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
  DType dtype = DType::kFP32;  // of the index forms: INT32
  Precision precision;
  std::optional<TensorShape> scores;  // [B, H, Sq, Sk], of `dtype`: the bias is added to them
};

class BiasGeneration {
 public:
  // Whether one answer holds all of it, or a few of the queries' rows, of a dense bias.
  enum class Extent { kWhole, kTiles };

  // kTiles: only that one query's row fits is checked, and what is laid out does not grow with the queries.
  static absl::StatusOr<BiasGeneration> Create(GenerateBias call, const Limits& limits, Extent extent = Extent::kWhole);

  // Of all rows.
  const TensorShape& shape() const { return shape_; }
  int64_t queries() const { return queries_; }
  const BiasMethod& method() const { return call_.method; }
  // ALiBi's.
  const Matrix<double>& slopes() const { return slopes_; }
  // What it keeps for all rows: values, indices, the keys' positions.
  int64_t held_bytes() const;

  // Writes the tensor. scores: null, or the scores (may be `out`: in place). No alignment needed.
  // `device` computes what it does not decline; null: the CPU computes all.
  absl::Status Run(const std::byte* scores, std::byte* out, WorkPool& pool, const Cancellation& cancelled,
                   Device* device = nullptr) const {
    return Run(0, queries_, scores, out, pool, cancelled, device);
  }
  // Whether a device could do any of it: not indices, and not what the CPU computes row by row.
  bool IsForDevices() const { return !IsIndex() && fire_ == nullptr; }
  // Writes, of every matrix, the rows of `count` queries from `first` on: a tensor of the same shape but for Sq =
  // count.
  absl::Status Run(int64_t first, int64_t count, const std::byte* scores, std::byte* out, WorkPool& pool,
                   const Cancellation& cancelled, Device* device = nullptr) const;

 private:
  // The values of all cells, where one list a head holds them.
  struct ValueLists {
    BiasTable values;            // [H, n]: by distance from first_distance on, by the table's row, or one row
    ptrdiff_t row_shift = -1;    // from a query's slice of values to the next one's: 0 where all have one row
    int64_t first_distance = 0;  // of values
  };
  // What differs by query, of the queries that a run computes.
  struct QueryRows {
    int64_t first = 0;
    int64_t count = 0;
    Matrix<double> positions;         // for the distance; a window's numbers
    Matrix<double> mask_positions;    // for the mask; none without one
    std::vector<double> normalisers;  // FIRE's
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
  // Of the first value in a list that is gathered from.
  double FirstDistance() const;
  // Whether a cell's value is looked up, and no slice of the list.
  bool Gathers(const ValueLists& lists) const { return lists.row_shift != 0 && (window_ || !consecutive_); }

  GenerateBias call_;
  std::optional<WindowTokens> window_;
  std::optional<int64_t> batch_;  // B, where anything differs by batch row
  int64_t heads_ = 0;             // of this call, from head_start on; 1 in the index forms
  int64_t head_start_ = 0;
  int64_t queries_ = 0;  // rows and columns of one matrix as it is written
  int64_t keys_ = 0;
  std::optional<double> query_origin_;  // for the distance, where all queries stand there
  Matrix<double> key_positions_;        // for the distance; a window's numbers
  Matrix<double> mask_key_positions_;
  TensorShape shape_;

  Matrix<double> slopes_;         // ALiBi
  ValueLists lists_;              // but ALiBi's
  std::vector<int32_t> buckets_;  // T5 in the index forms, from lists_.first_distance on
  std::shared_ptr<const FireRows> fire_;
  bool mask_keys_ascend_ = true;
  bool consecutive_ = false;  // whether queries and keys stand one after another: no gathering
};

}  // namespace posenc

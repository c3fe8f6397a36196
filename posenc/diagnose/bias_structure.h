// What a bias is made of: a mask, and values that follow the distance, the key alone, or both positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/tensor.h"
#include "posenc/base/work_pool.h"

namespace posenc::diagnose {

// A value of a table that nothing shows.
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// [B, H, Sq, Sk] of FP64, FP32, FP16 or BF16.
struct BiasEvidence {
  TensorShape bias;
  const std::byte* data = nullptr;
  // The position of the first query, the first key's being 0. Absent: it is found, where the bias shows it.
  std::optional<int64_t> query_offset;

  int64_t batch() const { return bias.shape[0]; }
  int64_t heads() const { return bias.shape[1]; }
  int64_t queries() const { return bias.shape[2]; }
  int64_t keys() const { return bias.shape[3]; }
  // Sk values, as float64.
  void Load(int64_t b, int64_t h, int64_t i, double* out) const;
};

// Calls visit(b, h, i, row), which returns a status, with each row in order.
absl::Status VisitRows(
    const BiasEvidence& evidence, const Cancellation& cancelled,
    const std::function<absl::Status(int64_t b, int64_t h, int64_t i, const std::vector<double>& row)>& visit);

enum class MaskKind { kNone, kKeys, kCausal, kWindow, kPrefix, kOther };

// Query i and key j count from 0, whatever their positions.
struct FoundMask {
  MaskKind kind = MaskKind::kNone;
  double fill = 0, highest_fill = 0;  // the least and the largest of masked cells
  int64_t cells = 0;                  // masked
  int64_t offset = 0;                 // causal, window, prefix: query i sees keys up to i + offset
  int64_t window = 0;                 // keys that a query sees
  int64_t prefix = 0;                 // keys that all queries see
  int64_t padded_keys = 0;            // hidden from all queries of a batch row, all together; besides any of the kinds

  bool Hides(double value) const { return kind != MaskKind::kNone && value <= highest_fill; }
};

struct Cell {
  int64_t b, h, i, j;
};

enum class Follows { kNothing, kDistance, kKey, kBoth };

struct BiasStructure {
  FoundMask mask;
  Follows follows = Follows::kNothing;  // kNothing: all are 0, or masked
  // kBoth: two cells of one distance with different values.
  std::optional<std::pair<Cell, Cell>> contradiction;
  // kDistance: [H][Sq + Sk - 1] by j - i + Sq - 1; kKey: [H][Sk]. NaN where every cell is masked.
  std::vector<std::vector<double>> values;
  int64_t first_distance = 0;  // of column 0, by indices: 1 - Sq
};

// Whether each head has one value, wherever there is any.
bool IsConstant(const BiasStructure& structure);

// INVALID_ARGUMENT for NaNs, positive infinities and a tensor that is not as above; RESOURCE_EXHAUSTED above
// max_bias_values. One pass over memory for each of four questions.
absl::StatusOr<BiasStructure> FindStructure(const BiasEvidence& evidence, const Limits& limits,
                                            const Cancellation& cancelled);

}  // namespace posenc::diagnose

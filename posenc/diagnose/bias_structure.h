// Structure of a bias: a mask, and values that follow the distance, the key alone, or both positions.
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

// Marks a table entry for which the data show no value.
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A row-major bias [B, H, Sq, Sk] of FP64, FP32, FP16 or BF16. `data` is not owned.
struct BiasEvidence {
  TensorShape bias;
  const std::byte* data = nullptr;
  // The position of the first query; the first key has position 0. Absent: found from the bias if it shows it.
  std::optional<int64_t> query_offset;
  // Distances between batch rows and heads in rows of Sk cells, if this is a part of a larger bias; 0: there are no
  // gaps.
  int64_t batch_stride = 0, head_stride = 0;
  // The cells that count, [Sq, Sk] or [B, Sq, Sk], with the batch's stride in rows of Sk cells; the others read as
  // `fill`. Null: all count.
  const uint8_t* shown = nullptr;
  int64_t shown_stride = 0;
  double fill = -std::numeric_limits<double>::infinity();
  // These undo what a port may have done. Load() transposes if `transposed` is set, which requires Sq = Sk. The
  // comparison divides the values of Load() by `divisor`.
  bool transposed = false;
  double divisor = 1;

  int64_t batch() const { return bias.shape[0]; }
  int64_t heads() const { return bias.shape[1]; }
  int64_t queries() const { return bias.shape[2]; }
  int64_t keys() const { return bias.shape[3]; }
  // Writes row (b, h, i) to `out`: Sk values as float64.
  void Load(int64_t b, int64_t h, int64_t i, double* out) const;

 private:
  const std::byte* Row(int64_t b, int64_t h, int64_t i) const;
  bool Shows(int64_t b, int64_t i, int64_t j) const {
    return shown == nullptr || shown[(b * shown_stride + i) * keys() + j];
  }
};

// Calls visit(b, h, i, row) with each row in order. Stops at the first error, of visit or of cancelled.
absl::Status VisitRows(
    const BiasEvidence& evidence, const Cancellation& cancelled,
    const std::function<absl::Status(int64_t b, int64_t h, int64_t i, const std::vector<double>& row)>& visit);

enum class MaskKind { kNone, kKeys, kCausal, kWindow, kPrefix, kOther };

// The mask found in a bias. Query i and key j are indices from 0, not positions.
struct FoundMask {
  MaskKind kind = MaskKind::kNone;
  double fill = 0, highest_fill = 0;  // least and largest value of masked cells
  int64_t cells = 0;                  // number of masked cells
  int64_t offset = 0;                 // causal, window, prefix: query i sees keys up to i + offset
  int64_t window = 0;                 // number of keys that a query sees
  int64_t prefix = 0;                 // number of keys that all queries see
  int64_t padded_keys = 0;            // keys hidden from all queries, summed over batch rows; with any kind

  // True if the queries, of which the first one stands at `first`, see no key after their own.
  bool HidesLater(int64_t first) const {
    return (kind == MaskKind::kCausal || kind == MaskKind::kWindow) && offset <= first;
  }
  bool Hides(double value) const { return kind != MaskKind::kNone && value <= highest_fill; }
};

struct Cell {
  int64_t b, h, i, j;
};

enum class Follows { kNothing, kDistance, kKey, kBoth };

struct BiasStructure {
  FoundMask mask;
  Follows follows = Follows::kNothing;  // kNothing: all unmasked cells are 0
  // Set for kBoth: two cells of one distance with different values.
  std::optional<std::pair<Cell, Cell>> contradiction;
  // kDistance: [H][Sq + Sk - 1], indexed by j - i + Sq - 1; kKey: [H][Sk]. NaN if every cell is masked. Else empty.
  std::vector<std::vector<double>> values;
  int64_t first_distance = 0;  // distance j - i of column 0: 1 - Sq
};

// Returns INVALID_ARGUMENT for NaN, positive infinity or a tensor that is not as above.
absl::StatusOr<FoundMask> FindMask(const BiasEvidence& evidence, const Limits& limits, const Cancellation& cancelled);

// True if all known values of each head are equal.
bool IsConstant(const BiasStructure& structure);

// Errors: those of FindMask(); RESOURCE_EXHAUSTED above max_bias_values. Reads the bias up to five times.
absl::StatusOr<BiasStructure> FindStructure(const BiasEvidence& evidence, const Limits& limits,
                                            const Cancellation& cancelled);

}  // namespace posenc::diagnose

// Query and key positions of attention biases and relative scores: validation and layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Checks that all fields with a batch axis agree on B.
class BatchSize {
 public:
  void See(std::string_view field, int64_t rows);
  template <class T>
  void See(std::string_view field, const std::optional<Matrix<T>>& matrix) {
    if (matrix && !matrix->shared) See(field, matrix->rows);
  }
  const absl::Status& status() const { return status_; }
  const std::optional<int64_t>& batch() const { return batch_; }

 private:
  std::optional<int64_t> batch_;
  std::string field_;
  absl::Status status_;
};

// Returns INVALID_ARGUMENT (MISMATCH) unless the number of columns is `columns`. An absent matrix passes.
absl::Status CheckColumns(std::string_view field, int64_t given, int64_t columns);
template <class T>
absl::Status CheckColumns(std::string_view field, const std::optional<Matrix<T>>& matrix, int64_t columns) {
  return matrix ? CheckColumns(field, matrix->columns, columns) : absl::OkStatus();
}

// Checks that both lengths are given and 0 .. max_dimension, and that query positions are given if the lengths differ.
absl::Status CheckLengths(const BiasGeometry& geometry, const Limits& limits);

// Checks that positions, offsets and the mask fit the lengths. Passes each batch axis to `batch`.
absl::Status CheckBatch(const BiasGeometry& geometry, const std::optional<Mask>& mask, BatchSize& batch);

// Range of heads that the geometry selects from `all` heads. INVALID_ARGUMENT if it is out of range.
struct HeadRange {
  int64_t start;
  int64_t count;
};
absl::StatusOr<HeadRange> Heads(const BiasGeometry& geometry, int64_t all);

// Columns [first, first + count) of the matrix.
Matrix<double> Columns(const Matrix<double>& matrix, int64_t first, int64_t count);

// start, start + 1, ...
Matrix<double> Line(double start, int64_t count);

// Positions of `count` queries from `first` on; below, of all keys.
Matrix<double> QueryPositions(const BiasGeometry& geometry, int64_t first, int64_t count);
// Positions whose minimum and maximum, in each batch row, bound those of all `queries`: all given ones, or else the
// first and last query's. `queries` >= 1.
Matrix<double> QueryEnds(const BiasGeometry& geometry, int64_t queries);
Matrix<double> KeyPositions(const BiasGeometry& geometry);
absl::Status CheckPositions(std::string_view field, const Matrix<double>& positions);

// Returns INVALID_ARGUMENT unless all positions are whole numbers, for methods with one value per whole distance.
absl::Status CheckWhole(std::string_view field, const Matrix<double>& positions);

// Smallest and largest distance, key position minus query position, over all queries and keys of a batch row.
Distances Range(const Matrix<double>& queries, const Matrix<double>& keys);
// Returns RESOURCE_EXHAUSTED if there are more than max_bias_values distances.
absl::Status CheckDistances(const Distances& distances, const Limits& limits);

}  // namespace posenc

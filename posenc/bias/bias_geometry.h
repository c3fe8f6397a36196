// Which queries meet which keys, laid out and checked: what biases and scores share.
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

// Everything that has a batch axis must agree on B.
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

// MISMATCH unless there are so many columns; of a matrix if there is one.
absl::Status CheckColumns(std::string_view field, int64_t given, int64_t columns);
template <class T>
absl::Status CheckColumns(std::string_view field, const std::optional<Matrix<T>>& matrix, int64_t columns) {
  return matrix ? CheckColumns(field, matrix->columns, columns) : absl::OkStatus();
}

// That both lengths are there and not negative, and the queries' place where it cannot be guessed.
absl::Status CheckLengths(const BiasGeometry& geometry);

// That positions, offsets and the mask fit the lengths; `batch` sees what has a batch axis.
absl::Status CheckBatch(const BiasGeometry& geometry, const std::optional<Mask>& mask, BatchSize& batch);

// The heads wanted of `all`.
struct HeadRange {
  int64_t start;
  int64_t count;
};
absl::StatusOr<HeadRange> Heads(const BiasGeometry& geometry, int64_t all);

// So many columns of it.
Matrix<double> Columns(const Matrix<double>& matrix, int64_t first, int64_t count);

// start, start + 1, ...
Matrix<double> Line(double start, int64_t count);

// Of `count` queries from `first` on, and of all keys.
Matrix<double> QueryPositions(const BiasGeometry& geometry, int64_t first, int64_t count);
// Positions between whose least and largest all of the `queries` lie: where they are not given, the ends'.
Matrix<double> QueryEnds(const BiasGeometry& geometry, int64_t queries);
Matrix<double> KeyPositions(const BiasGeometry& geometry);
absl::Status CheckPositions(std::string_view field, const Matrix<double>& positions);

// For methods that have a value for each whole distance.
absl::Status CheckWhole(std::string_view field, const Matrix<double>& positions);

// The distances between any query and any key.
Distances Range(const Matrix<double>& queries, const Matrix<double>& keys);
// RESOURCE_EXHAUSTED above max_bias_values.
absl::Status CheckDistances(const Distances& distances, const Limits& limits);

}  // namespace posenc

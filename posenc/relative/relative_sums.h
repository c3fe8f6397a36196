// The products that make up relative scores, summed in float64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "posenc/methods/relative/relative_tables.h"
#include "posenc/relative/head_rows.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Queries begin .. begin + count - 1 of one batch row and head.
struct Slab {
  int64_t b, h, begin, count;
};

// Each Add...() adds to a slab's sums, [count, keys]. What it is made of must outlive it. Thread-safe.
class RelativeSums {
 public:
  RelativeSums(const HeadRows& q, const std::byte* q_data, const std::optional<HeadRows>& k, const std::byte* k_data,
               const RelativeTables& tables, const RelativeShape& shape, int64_t head_start,
               const Matrix<double>& query_positions, const Matrix<double>& key_positions)
      : q_(q),
        q_data_(q_data),
        k_(k),
        k_data_(k_data),
        tables_(tables),
        first_distance_(shape.distances.first),
        head_start_(head_start),
        keys_(key_positions.columns),
        query_positions_(query_positions),
        key_positions_(key_positions) {}

  // (q_i + bias) . k_j.
  void AddContent(const Slab& slab, double* sums) const;
  // q_i and k_j with the rows of their distance.
  void AddByDistance(const Slab& slab, double* sums) const;
  // The rows of both positions.
  void AddByPosition(const Slab& slab, double* sums) const;

  // q_i with the rows of a table that goes by no distance, as far as so many keys can be counted: [rows, count].
  std::vector<double> QueryProducts(const Slab& slab) const;
  // The row that a query of the slab and a key take.
  int32_t RowOf(const Slab& slab, int64_t i, int64_t j) const;

 private:
  // The slab's queries, with the head's bias, as columns [d, count].
  std::vector<double> QueryColumns(const Slab& slab, const std::optional<Matrix<float>>& bias) const;
  std::vector<float> KeyRows(const Slab& slab, int64_t begin, int64_t count) const;

  const HeadRows& q_;
  const std::byte* q_data_;
  const std::optional<HeadRows>& k_;
  const std::byte* k_data_;
  const RelativeTables& tables_;
  double first_distance_;
  int64_t head_start_, keys_;
  const Matrix<double>&query_positions_, &key_positions_;
};

}  // namespace posenc

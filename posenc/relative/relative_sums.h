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

// Each Add...() adds to a slab's sums, [count, keys]. The constructor's arguments must outlive the object. Thread-safe.
// query_factors: of each query position; q is multiplied by them before its products with tables, and rounded to its
// type.
class RelativeSums {
 public:
  RelativeSums(const HeadRows& q, const std::byte* q_data, const std::optional<HeadRows>& k, const std::byte* k_data,
               const RelativeTables& tables, const RelativeShape& shape, int64_t head_start,
               const Matrix<double>& query_positions, const Matrix<double>& key_positions,
               const std::optional<Matrix<double>>& query_factors)
      : q_(q),
        q_data_(q_data),
        k_(k),
        k_data_(k_data),
        tables_(tables),
        first_distance_(shape.distances.first),
        head_start_(head_start),
        keys_(key_positions.columns),
        query_positions_(query_positions),
        key_positions_(key_positions),
        query_factors_(query_factors) {}

  // Adds (q_i + bias) . k_j.
  void AddContent(const Slab& slab, double* sums) const;
  // Adds the products of q_i and of k_j with the table rows of their distance.
  void AddByDistance(const Slab& slab, double* sums) const;
  // Adds the products of the table rows of the query's and the key's position.
  void AddByPosition(const Slab& slab, double* sums) const;

  // A bound of the bytes that an Add...() holds for a slab of so many queries.
  int64_t TileBytes(int64_t queries) const;

  // Products of q_i with the rows of CoPE's table, which is indexed by a count of keys: [min(rows, keys + 1), count].
  std::vector<double> QueryProducts(const Slab& slab) const;
  // Table row for query i of the slab and key j.
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
  const std::optional<Matrix<double>>& query_factors_;
};

}  // namespace posenc

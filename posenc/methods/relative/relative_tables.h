// What every method of relative terms becomes: tables, and which of their rows meet at cell (i, j).
//
// A term is a product of q_i with a row of a table, of k_j with a row of another, or of two rows that stand for the
// positions of i and j. Which row is a matter of the distance alone.
//
// For its settings each method has
//   Complete(settings&, shape, limits)        fills in defaults, and checks all but positions
//   CheckPositions(settings, shape, limits)   what lies outside a table, or needs one that is too large
//   MakeTables(settings, shape, arithmetic, pool, cancelled)
// where errors name the field within the method's message.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "posenc/methods/relative/head_table.h"
#include "posenc/methods/relative/relative_shape.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct RelativeTables {
  std::vector<int32_t> row_of_distance;           // for distances.first on; empty: no table by distance
  std::optional<HeadTable> of_query;              // q_i . row
  std::optional<HeadTable> of_key;                // k_j . row
  std::optional<Matrix<float>> query_bias;        // [heads, d], added to q_i before it meets its table
  std::optional<Matrix<float>> content_bias;      // the same before it meets k_j
  std::optional<HeadTable> query_rows, key_rows;  // by position: query_rows[i] . key_rows[j]
  int64_t first_row = 0;                          // of position 0 in both
  bool cls = false;                               // rows 0 and 1 stand for position 0's scores, see TupeCls
  bool cls_without_bias = false;
  std::optional<BiasTable> bias;  // [heads, rows], added after the scale
};

}  // namespace posenc

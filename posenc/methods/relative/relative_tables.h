// Common form of all relative-term methods: tables, and the rows of them that cell (i, j) uses.
//
// A term is the product of q_i and a row of a table, of k_j and a row of another, or of two rows that belong to the
// positions of i and j. The distance alone selects a row for q_i or k_j.
//
// Each method defines for its settings
//   Complete(settings&, shape, limits)        fills in defaults, and checks all but positions
//   CheckPositions(settings, shape, limits)   refuses positions outside a table or that need too large a table
//   MakeTables(settings, shape, arithmetic, pool, cancelled)
// Field names in errors are relative to the method's message.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "posenc/methods/relative/head_table.h"
#include "posenc/methods/relative/relative_shape.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct RelativeTables {
  std::vector<int32_t> row_of_distance;           // indexed by distance - distances.first; empty: no table by distance
  std::optional<HeadTable> of_query;              // q_i . row
  std::optional<HeadTable> of_key;                // k_j . row
  std::optional<Matrix<float>> query_bias;        // [heads, d], added to q_i in its product with of_query
  std::optional<Matrix<float>> content_bias;      // [heads, d], added to q_i in its product with k_j
  std::optional<HeadTable> query_rows, key_rows;  // by position: query_rows[i] . key_rows[j]
  int64_t first_row = 0;                          // row of position 0 in query_rows and key_rows
  bool cls = false;                               // rows 0 and 1 give the scores from and to position 0, see TupeCls
  bool cls_without_bias = false;
  std::optional<BiasTable> bias;  // [heads, rows], added after the scale
};

}  // namespace posenc

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
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/checks.h"
#include "posenc/base/limits.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_shape.h"
#include "posenc/settings/relative_settings.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Rows of d channels that are multiplied with q and k, per head or shared by all heads.
struct HeadTable {
  int64_t rows = 0;
  int64_t stride = 0;  // elements from one row to the next
  int64_t dim = 0;     // d
  bool shared = true;  // all heads use the same row; else a row holds the heads one after another
  std::vector<float> values;

  const float* row(int64_t head, int64_t n) const { return values.data() + n * stride + (shared ? 0 : head * dim); }
};

// Checks for d channels per head and at least `heads` heads. Field names in errors are relative to the message.
absl::Status CheckProjection(const Projection& projection, int64_t width, int64_t heads, int64_t head_dim);
absl::Status CheckLayerNorm(const LayerNorm& norm, int64_t width);
// Returns RESOURCE_EXHAUSTED for tables larger than max_output_bytes. Many distances or wide weights can cause one in a
// small request.
absl::Status CheckTableSize(std::string_view field, double rows, int64_t stride, const Limits& limits);

// Returns `table` with layer normalization applied to each row.
Matrix<float> Normalised(const LayerNorm& norm, const Matrix<float>& table);

// Projects each row of x [rows, width]. Requires a projection that CheckProjection has accepted.
absl::StatusOr<HeadTable> Project(const Projection& projection, const Matrix<float>& x, int64_t head_dim,
                                  WorkPool& pool, const Cancellation& cancelled);

// The tables of one method.
struct RelativeTables {
  std::vector<int32_t> row_of_distance;           // indexed by distance - distances.first; empty: no table by distance
  std::optional<int32_t> zero_row;                // scores of distances with this row are 0, also if q is not finite
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

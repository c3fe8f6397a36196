// Tables of float32 rows that are multiplied with q and k, and the weights that produce them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/checks.h"
#include "posenc/base/limits.h"
#include "posenc/base/work_pool.h"
#include "posenc/settings/relative_settings.h"

namespace posenc {

// Rows of d channels, per head or shared by all heads.
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

}  // namespace posenc

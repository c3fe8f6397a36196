// Tables of float32 rows that q and k meet, and the weights that make them.
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

// Rows of d channels, for each head or for all.
struct HeadTable {
  int64_t rows = 0;
  int64_t stride = 0;  // elements from one row to the next
  int64_t dim = 0;     // d
  bool shared = true;  // one for all heads; else a row holds head after head
  std::vector<float> values;

  const float* row(int64_t head, int64_t n) const { return values.data() + n * stride + (shared ? 0 : head * dim); }
};

// All heads' d channels of a model that has at least `heads`. Errors name the field within the message.
absl::Status CheckProjection(const Projection& projection, int64_t width, int64_t heads, int64_t head_dim);
absl::Status CheckLayerNorm(const LayerNorm& norm, int64_t width);
// RESOURCE_EXHAUSTED for tables beyond max_output_bytes, which distances or weights of many outputs make of a small
// request.
absl::Status CheckTableSize(std::string_view field, double rows, int64_t stride, const Limits& limits);

// Each row of `table`, normalised.
Matrix<float> Normalised(const LayerNorm& norm, const Matrix<float>& table);

// Each row of x [rows, width], projected. Checked before.
absl::StatusOr<HeadTable> Project(const Projection& projection, const Matrix<float>& x, int64_t head_dim,
                                  WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc

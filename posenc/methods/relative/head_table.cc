#include "posenc/methods/relative/relative_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/kernels/dot_products.h"

namespace posenc {

absl::Status CheckProjection(const Projection& projection, int64_t width, int64_t heads, int64_t head_dim) {
  const bool identity = !projection.weight;
  const int64_t outputs = identity ? width : projection.weight->rows;
  const std::string needed =
      fmt::format("must be a multiple of head_dim = {}, at least {}", head_dim, heads * head_dim);
  if (outputs % head_dim != 0 || outputs / head_dim < heads) {
    return InvalidArgument("MISMATCH", "weight.shape",
                           fmt::format("{} outputs{}", outputs, identity ? " without a weight" : ""), needed);
  }
  if (!identity && projection.weight->columns != width) {
    return InvalidArgument("MISMATCH", "weight.shape", fmt::format("{} inputs", projection.weight->columns),
                           fmt::format("must be {}, the table's width", width));
  }
  if (!projection.bias.empty() && static_cast<int64_t>(projection.bias.size()) != outputs) {
    return InvalidArgument("MISMATCH", "bias.shape", fmt::format("[{}]", projection.bias.size()),
                           fmt::format("must be [{}] to match weight", outputs));
  }
  if (!identity) POSENC_RETURN_IF_ERROR(CheckFinite("weight", projection.weight->values));
  return CheckFinite("bias", projection.bias);
}

absl::Status CheckLayerNorm(const LayerNorm& norm, int64_t width) {
  if (!norm.epsilon) return InvalidArgument("MISSING", "epsilon", "", "must be given: models use 1e-12, 1e-7 or 1e-5");
  if (!(std::isfinite(*norm.epsilon) && *norm.epsilon > 0)) {
    return InvalidArgument("OUT_OF_RANGE", "epsilon", fmt::format("{}", *norm.epsilon), "must be finite and above 0");
  }
  for (const auto& [field, values] : {std::pair{"weight", &norm.weight}, {"bias", &norm.bias}}) {
    if (static_cast<int64_t>(values->size()) != width) {
      return InvalidArgument("MISMATCH", fmt::format("{}.shape", field), fmt::format("[{}]", values->size()),
                             fmt::format("must be [{}], the table's width", width));
    }
    POSENC_RETURN_IF_ERROR(CheckFinite(field, *values));
  }
  return absl::OkStatus();
}

absl::Status CheckTableSize(std::string_view field, double rows, int64_t stride, const Limits& limits) {
  const double bytes = rows * static_cast<double>(stride) * sizeof(float);
  if (bytes <= static_cast<double>(limits.max_output_bytes)) return absl::OkStatus();
  return TooLarge(
      field, fmt::format("{} rows of {} channels: {} bytes", rows, stride, bytes),
      fmt::format("must be at most {} bytes (max_output_bytes): the method's table", limits.max_output_bytes));
}

Matrix<float> Normalised(const LayerNorm& norm, const Matrix<float>& table) {
  Matrix<float> result = table;
  const auto width = static_cast<double>(table.columns);
  int64_t steps = 0;
  for (int64_t n = 0; n < table.rows; ++n) {
    float* row = result.values.data() + n * table.columns;
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < table.columns; ++c) sum += row[c];
    const double mean = sum / width;
    for (int64_t c = 0; c < table.columns; ++c) squares += (row[c] - mean) * (row[c] - mean);
    const double deviation = std::sqrt(squares / width + *norm.epsilon);
    for (int64_t c = 0; c < table.columns; ++c) {
      InterruptionPointOfStep(++steps);
      row[c] = static_cast<float>((row[c] - mean) / deviation * norm.weight[c] + norm.bias[c]);
    }
  }
  return result;
}

absl::StatusOr<HeadTable> Project(const Projection& projection, const Matrix<float>& x, int64_t head_dim,
                                  WorkPool& pool, const Cancellation& cancelled) {
  const int64_t outputs = projection.weight ? projection.weight->rows : x.columns;
  HeadTable table{.rows = x.rows, .stride = outputs, .dim = head_dim, .shared = false};
  if (!projection.weight) {
    table.values = x.values;
    for (size_t n = 0; !projection.bias.empty() && n < table.values.size(); ++n) {
      InterruptionPointOfStep(static_cast<int64_t>(n) + 1);
      table.values[n] += projection.bias[n % outputs];
    }
    return table;
  }
  table.values.resize(x.rows * outputs);
  const size_t depth = x.columns;
  const size_t tile = std::clamp<size_t>((size_t{1} << 20) / std::max<size_t>(depth, 1), 1, 32);
  const auto bytes_of_tile = static_cast<int64_t>((depth + outputs) * tile * sizeof(double));
  const auto project = [&](size_t begin, size_t end) {
    const size_t width = end - begin;
    std::vector<double> columns(depth * width), products(outputs * width);
    for (size_t i = 0; i < width; ++i) {
      for (size_t c = 0; c < depth; ++c) columns[c * width + i] = x.values[(begin + i) * depth + c];
    }
    ComputeDotProducts(DotProducts{.rows = projection.weight->values.data(),
                                   .row_stride = depth,
                                   .row_count = static_cast<size_t>(outputs),
                                   .depth = depth,
                                   .columns = columns.data(),
                                   .width = width,
                                   .out = products.data()});
    int64_t steps = 0;
    for (size_t i = 0; i < width; ++i) {
      float* row = table.values.data() + (begin + i) * outputs;
      for (int64_t o = 0; o < outputs; ++o) {
        InterruptionPointOfStep(++steps);
        const double bias = projection.bias.empty() ? 0.0 : projection.bias[o];
        row[o] = static_cast<float>(products[o * width + i] + bias);
      }
    }
  };
  POSENC_RETURN_IF_ERROR(pool.ParallelFor(x.rows, tile, cancelled, project, bytes_of_tile));
  return table;
}

}  // namespace posenc

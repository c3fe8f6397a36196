#include "posenc/relative/relative_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/bias/bias_geometry.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/dot_products.h"
#include "posenc/methods/relative/relative_methods.h"

namespace posenc {
namespace {

// Queries per slab; fewer if each has many sums.
constexpr int64_t kQueriesOfSlab = 32;
constexpr int64_t kSumsOfSlab = int64_t{1} << 19;
constexpr int64_t kSortedOfSlab = int64_t{1} << 15;  // sorting takes longer

// Adds the probabilities of each row, rounds the sum to float32, and multiplies it with the row of d channels. `used`
// has the row of each key; the order of all additions is that of ComputeDotProducts() with all rows of the table.
void AddRows(std::vector<std::pair<int64_t, int64_t>>& used, const std::vector<float>& probabilities,
             const std::vector<double>& table, int64_t d, double* products) {
  int64_t steps = 0;
  std::sort(used.begin(), used.end(), [&steps](const auto& a, const auto& b) {
    InterruptionPointOfStep(++steps);
    return a < b;
  });
  std::fill_n(products, d, 0.0);
  for (auto key = used.begin(); key != used.end();) {
    const double* channels = table.data() + key->first * d;
    double bin = 0;
    for (const int64_t row = key->first; key != used.end() && key->first == row; ++key) {
      bin += probabilities[key->second];
    }
    const double sum = static_cast<float>(bin);
    for (int64_t c = 0; c < d; ++c) products[c] += sum * channels[c];
  }
}

}  // namespace

absl::StatusOr<RelativeValues> RelativeValues::Create(RelativeValuesCall given, const Limits& limits) {
  RelativeValues values(std::move(given));
  RelativeValuesCall& call = values.call_;
  POSENC_ASSIGN_OR_RETURN(const HeadRows alpha,
                          HeadRows::Of("probabilities", call.probabilities, Layout::kBHSD, limits));
  values.probabilities_ = alpha;
  BiasGeometry& g = call.geometry;
  for (const auto& [field, length, size] : {std::tuple{"geometry.query_length", &g.query_length, alpha.tokens},
                                            {"geometry.key_length", &g.key_length, alpha.dim}}) {
    if (length->value_or(size) != size) {
      return InvalidArgument("MISMATCH", field, fmt::format("{}", **length),
                             fmt::format("must match probabilities, {}", ToString(call.probabilities.shape)));
    }
    *length = size;
  }
  if (g.head_start || g.head_count) {
    return InvalidArgument("NOT_READ", g.head_start ? "geometry.head_start" : "geometry.head_count", "",
                           "must be absent: the table is the same for every head");
  }
  POSENC_RETURN_IF_ERROR(CheckLengths(g, limits));
  BatchSize batch;
  batch.See("probabilities", alpha.batch);
  POSENC_RETURN_IF_ERROR(CheckBatch(g, std::nullopt, batch));
  if (call.shaw.key_term)
    return InvalidArgument("NOT_READ", "shaw.key_term", "", "must be absent: only scores read it");

  RelativeShape relative{.heads = alpha.heads, .head_dim = call.shaw.table.columns};
  POSENC_RETURN_IF_ERROR(Within("shaw", Complete(call.shaw, relative, limits)));
  POSENC_RETURN_IF_ERROR(CheckDataType(call.add_to ? "add_to.dtype" : "dtype", call.dtype));
  const int64_t d = relative.head_dim;
  values.shape_ = {call.dtype, call.layout == Layout::kBSHD ? std::vector{alpha.batch, alpha.tokens, alpha.heads, d}
                                                            : std::vector{alpha.batch, alpha.heads, alpha.tokens, d}};
  if (call.add_to && call.add_to->shape != values.shape_.shape) {
    return InvalidArgument("MISMATCH", "add_to.shape", ToString(call.add_to->shape),
                           fmt::format("must be {}", ToString(values.shape_.shape)));
  }
  POSENC_ASSIGN_OR_RETURN(values.out_, HeadRows::Of("answer", values.shape_, call.layout, limits));
  POSENC_ASSIGN_OR_RETURN(values.bytes_, ByteSize("answer", values.shape_, limits));
  POSENC_RETURN_IF_ERROR(CheckOutput(values.bytes_, limits));
  if (values.shape_.empty() || alpha.dim == 0) return values;

  const LargeBlocksMayBeRefused scope;
  values.query_positions_ = QueryPositions(g, 0, alpha.tokens);
  values.key_positions_ = KeyPositions(g);
  for (const auto& [field, positions] : {std::pair{"geometry.query_positions", &values.query_positions_},
                                         {"geometry.key_positions", &values.key_positions_}}) {
    POSENC_RETURN_IF_ERROR(CheckPositions(field, *positions));
    POSENC_RETURN_IF_ERROR(CheckWhole(field, *positions));
  }
  relative.distances = values.distances_ = Range(values.query_positions_, values.key_positions_);
  POSENC_RETURN_IF_ERROR(CheckDistances(relative.distances, limits));
  POSENC_RETURN_IF_ERROR(Within("shaw", CheckPositions(call.shaw, relative, limits)));
  return values;
}

absl::Status RelativeValues::WriteValues(const std::byte* probabilities, const std::byte* add_to, std::byte* out,
                                         WorkPool& pool, const Cancellation& cancelled) const {
  if (shape_.empty()) return absl::OkStatus();
  const HeadRows& alpha = probabilities_;
  const int64_t keys = alpha.dim, d = out_.dim;
  std::vector<int32_t> row_of_distance;
  int64_t first_row = 0, rows = 0;  // range of table rows that distances use; the table may be far larger
  std::vector<double> table;        // these rows
  if (keys > 0) {
    const LargeBlocksMayBeRefused scope;
    row_of_distance = ShawRows(call_.shaw, distances_);
    const auto [least, most] = std::minmax_element(row_of_distance.begin(), row_of_distance.end());
    first_row = *least;
    rows = *most - first_row + 1;
    const float* taken = call_.shaw.table.values.data() + first_row * d;
    table.assign(taken, taken + rows * d);
  }
  const bool term_in_dtype =
      call_.precision.table_dtype == TableDtype::kTensor || call_.precision.rounding == Rounding::kEachOperation;
  const auto row_at = [&](int64_t b, int64_t query, int64_t key) {
    const double distance = key_positions_.row(b)[key] - query_positions_.row(b)[query];
    return row_of_distance[static_cast<size_t>(distance - distances_.first)] - first_row;
  };
  const bool few_keys = keys < rows / 16;  // then most rows would only add zeros, and take longer than sorting
  const int64_t together =
      few_keys ? kSortedOfSlab / std::max<int64_t>(keys, 1) : kSumsOfSlab / std::max<int64_t>(rows, 1);
  const int64_t queries = std::clamp(together, int64_t{1}, kQueriesOfSlab);
  const int64_t slabs = (alpha.tokens + queries - 1) / queries;
  const auto write = [&](size_t begin, size_t end) {
    std::vector<float> row(keys), sums(few_keys ? 0 : queries * rows), term(d), own(d);
    std::vector<double> bins(few_keys ? 0 : rows), products(queries * d);
    std::vector<std::pair<int64_t, int64_t>> used(few_keys ? keys : 0);  // rows and their keys
    for (auto n = static_cast<int64_t>(begin); n < static_cast<int64_t>(end); ++n) {
      const int64_t matrix = n / slabs, b = matrix / alpha.heads, h = matrix % alpha.heads;
      const int64_t first = n % slabs * queries, count = std::min(queries, alpha.tokens - first);
      for (int64_t i = 0; i < count; ++i) {
        alpha.Load(probabilities, b, h, first + i, 1, row.data());
        if (few_keys) {
          for (int64_t j = 0; j < keys; ++j) used[j] = {row_at(b, first + i, j), j};
          AddRows(used, row, table, d, products.data() + i * d);
          continue;
        }
        std::fill(bins.begin(), bins.end(), 0.0);
        for (int64_t j = 0; j < keys; ++j) bins[row_at(b, first + i, j)] += row[j];
        std::copy(bins.begin(), bins.end(), sums.begin() + i * rows);
      }
      if (!few_keys) {
        ComputeDotProducts(DotProducts{.rows = sums.data(),
                                       .row_stride = static_cast<size_t>(rows),
                                       .row_count = static_cast<size_t>(count),
                                       .depth = static_cast<size_t>(rows),
                                       .columns = table.data(),
                                       .width = static_cast<size_t>(d),
                                       .out = products.data()});
      }
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t c = 0; c < d; ++c) term[c] = static_cast<float>(products[i * d + c]);
        std::byte* to = out + out_.At(b, h, first + i);
        if (add_to != nullptr) {
          if (term_in_dtype) {
            std::vector<std::byte> narrow(d * SizeOf(call_.dtype));
            Convert(DType::kFP32, call_.dtype, term.data(), narrow.data(), d);
            Convert(call_.dtype, DType::kFP32, narrow.data(), term.data(), d);
          }
          out_.Load(add_to, b, h, first + i, 1, own.data());
          for (int64_t c = 0; c < d; ++c) term[c] += own[c];
        }
        Convert(DType::kFP32, call_.dtype, term.data(), to, d);
      }
    }
  };
  constexpr int64_t kFloat = sizeof(float), kDouble = sizeof(double);
  const int64_t of_rows = few_keys ? keys * 2 * kDouble : queries * rows * kFloat + rows * kDouble;
  const int64_t bytes = of_rows + (keys + 2 * d) * kFloat + queries * d * kDouble;
  return pool.ParallelFor(alpha.batch * alpha.heads * slabs, 1, cancelled, write, bytes);
}

}  // namespace posenc

#include "posenc/methods/relative/relative_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/methods/bias/log_buckets.h"

namespace posenc {
namespace {

int64_t Span(const DebertaSettings& s) { return s.position_buckets.value_or(s.max_relative_positions); }

// Returns the table row of each distance key - query.
std::vector<int32_t> Rows(Frequencies arithmetic, const DebertaSettings& s, const Distances& distances) {
  const auto first = static_cast<int64_t>(distances.first), last = static_cast<int64_t>(distances.last);
  const int64_t span = Span(s), farthest = s.max_relative_positions - 1;
  int64_t exact = std::max(std::abs(first), std::abs(last));  // magnitudes up to this have their own bucket
  std::vector<int64_t> thresholds;
  if (s.position_buckets) {
    const int64_t largest = exact;
    exact = *s.position_buckets / 2;
    // Buckets outside the table are clamped below, so `exact` thresholds are enough.
    thresholds = Thresholds(
        arithmetic, {.exact = exact, .shared = exact - 1, .max = farthest, .strict = true, .log_of_tensor = true},
        exact, largest);
  }
  std::vector<int32_t> rows;
  rows.reserve(last - first + 1);
  for (int64_t n = first; n <= last; ++n) {
    InterruptionPointOfStep(n);
    int64_t distance = -n;  // query - key
    if (s.distance == DebertaDistance::kClamped) distance = std::clamp(distance, -farthest, farthest);
    int64_t magnitude = std::abs(distance);
    if (magnitude > exact) {
      const auto passed = std::upper_bound(thresholds.begin(), thresholds.end(), magnitude) - thresholds.begin();
      magnitude = exact + 1 + passed;
    }
    const int64_t bucket = distance < 0 ? -magnitude : magnitude;
    rows.push_back(static_cast<int32_t>(std::clamp<int64_t>(bucket + span, 0, 2 * span - 1)));
  }
  return rows;
}

}  // namespace

absl::Status Complete(DebertaSettings& s, const RelativeShape& shape, const Limits& limits) {
  if (!s.key && !s.query) {
    return InvalidArgument("MISSING", "key", "",
                           "must be given: key (c2p), query (p2c) or both: without them there is no term");
  }
  constexpr int64_t kMost = 65536;
  if (s.max_relative_positions < 2 || s.max_relative_positions > kMost) {
    return InvalidArgument("OUT_OF_RANGE", "max_relative_positions", fmt::format("{}", s.max_relative_positions),
                           fmt::format("must be 2 .. {}", kMost));
  }
  if (s.position_buckets) {
    const int64_t buckets = *s.position_buckets;
    if (buckets < 4 || buckets % 2 != 0 || buckets / 2 >= s.max_relative_positions - 1) {
      return InvalidArgument(
          "OUT_OF_RANGE", "position_buckets", fmt::format("{}", buckets),
          fmt::format("must be even and 4 .. {}: half of it must be below max_relative_positions - 1",
                      2 * (s.max_relative_positions - 2)));
    }
  }
  const Matrix<float>& table = s.relative_embeddings;
  if (table.rows < 2 * Span(s)) {
    return InvalidArgument(
        "MISMATCH", "relative_embeddings.shape", fmt::format("{} rows", table.rows),
        fmt::format("must be at least {}: twice position_buckets, else twice max_relative_positions", 2 * Span(s)));
  }
  POSENC_RETURN_IF_ERROR(CheckFinite("relative_embeddings", table.values));
  if (s.layer_norm) POSENC_RETURN_IF_ERROR(Within("layer_norm", CheckLayerNorm(*s.layer_norm, table.columns)));
  for (const auto& [field, projection] : {std::pair{"key", &s.key}, {"query", &s.query}}) {
    if (!*projection) continue;
    POSENC_RETURN_IF_ERROR(Within(field, CheckProjection(**projection, table.columns, shape.heads, shape.head_dim)));
    POSENC_RETURN_IF_ERROR(CheckTableSize("relative_embeddings", 2.0 * static_cast<double>(Span(s)),
                                          (*projection)->weight ? (*projection)->weight->rows : table.columns, limits));
  }
  return absl::OkStatus();
}

absl::Status CheckPositions(const DebertaSettings&, const RelativeShape&, const Limits&) { return absl::OkStatus(); }

absl::StatusOr<RelativeTables> MakeTables(const DebertaSettings& s, const RelativeShape& shape, Frequencies arithmetic,
                                          WorkPool& pool, const Cancellation& cancelled) {
  RelativeTables tables;
  tables.row_of_distance = Rows(arithmetic, s, shape.distances);
  Matrix<float> table = s.relative_embeddings;
  table.rows = 2 * Span(s);
  table.values.resize(table.rows * table.columns);
  if (s.layer_norm) table = Normalised(*s.layer_norm, table);
  if (s.key) {
    POSENC_ASSIGN_OR_RETURN(tables.of_query, Project(*s.key, table, shape.head_dim, pool, cancelled));
  }
  if (s.query) {
    POSENC_ASSIGN_OR_RETURN(tables.of_key, Project(*s.query, table, shape.head_dim, pool, cancelled));
  }
  return tables;
}

}  // namespace posenc

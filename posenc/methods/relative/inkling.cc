#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/status.h"
#include "posenc/methods/relative/relative_methods.h"
#include "posenc/methods/rope/query_scale.h"

// Inkling's bias is Shaw's term with another operand: r, which the model computes from its hidden states. r comes as
// the request's q, so that heads, lengths, regions and checks of operands are those of every term.
namespace posenc {
namespace {

QueryScale TauOf(const InklingSettings& s) {
  return {.function = QueryScaleFunction::kInkling,
          .log_scaling_alpha = s.log_scaling_alpha,
          .log_scaling_n_floor = s.log_scaling_n_floor};
}

}  // namespace

absl::Status Complete(InklingSettings& s, const RelativeShape& shape, const Limits&) {
  const Matrix<float>& table = s.projection;
  if (table.rows != shape.head_dim || table.columns < 1) {
    return InvalidArgument(
        "MISMATCH", "projection.shape", fmt::format("[{}, {}]", table.rows, table.columns),
        fmt::format("must be [{}, extent], as many rows as q has channels, extent >= 1", shape.head_dim));
  }
  if (s.log_scaling_alpha || s.log_scaling_n_floor || s.scaled) {
    POSENC_RETURN_IF_ERROR(Check(TauOf(s)));
    if (!s.scaled) return InvalidArgument("MISSING", "scaled", "", "must be given with log_scaling_n_floor");
  }
  return CheckFinite("projection", table.values);
}

absl::Status CheckPositions(const InklingSettings&, const RelativeShape&, const Limits&) { return absl::OkStatus(); }

absl::StatusOr<RelativeTables> MakeTables(const InklingSettings& s, const RelativeShape& shape, Frequencies, WorkPool&,
                                          const Cancellation&) {
  const auto first = static_cast<int64_t>(shape.distances.first), last = static_cast<int64_t>(shape.distances.last);
  const int64_t d = s.projection.rows, extent = s.projection.columns;
  const int64_t used = std::clamp<int64_t>(1 - first, 0, extent);  // rows of distances i - j = 0 .. used - 1
  RelativeTables tables;
  tables.row_of_distance.reserve(last - first + 1);
  for (int64_t n = first; n <= last; ++n) {
    tables.row_of_distance.push_back(static_cast<int32_t>(n <= 0 && -n < used ? -n : used));
  }
  tables.zero_row = static_cast<int32_t>(used);
  HeadTable& table = tables.of_query.emplace(HeadTable{.rows = used + 1, .stride = d, .dim = d});
  table.values.resize((used + 1) * d);  // the last row is 0
  for (int64_t c = 0; c < d; ++c) {
    for (int64_t n = 0; n < used; ++n) table.values[n * d + c] = s.projection.values[c * extent + n];
  }
  return tables;
}

std::optional<Matrix<double>> InklingFactors(const InklingSettings& s, Frequencies arithmetic,
                                             Matrix<double> positions) {
  if (!s.scaled) return std::nullopt;
  positions.values = QueryFactors(arithmetic, TauOf(s), positions.values);
  return positions;
}

}  // namespace posenc

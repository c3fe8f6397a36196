#include "posenc/methods/relative/relative_methods.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/status.h"

namespace posenc {
namespace {

// Distances of the table's first and last row, with the sign of the table's order.
int64_t First(const ShawSettings& s) { return -s.before.value_or((s.table.rows - 1) / 2); }
int64_t Last(const ShawSettings& s) { return First(s) + s.table.rows - 1; }

}  // namespace

absl::Status Complete(ShawSettings& s, const RelativeShape& shape, const Limits&) {
  if (!s.before && s.table.rows % 2 == 0) {
    return InvalidArgument("MISMATCH", "table.shape", fmt::format("{} rows", s.table.rows),
                           "must be 2k+1 (distances -k .. k) unless before gives the row of distance 0");
  }
  if (s.before && (*s.before < 0 || *s.before >= s.table.rows)) {
    return InvalidArgument("OUT_OF_RANGE", "before", fmt::format("{}", *s.before),
                           fmt::format("must be a row of the table, 0 .. {}", s.table.rows - 1));
  }
  if (s.table.rows % 2 != 0 && s.before == (s.table.rows - 1) / 2) s.before.reset();  // one canonical form
  if (s.table.columns != shape.head_dim) {
    return InvalidArgument("MISMATCH", "table.shape", fmt::format("{} channels", s.table.columns),
                           fmt::format("must be head_dim = {}", shape.head_dim));
  }
  if (!s.clip) {
    return InvalidArgument("MISSING", "clip", "",
                           "must be given: true clips as in the paper, false refuses distances beyond the table");
  }
  return CheckFinite("table", s.table.values);
}

absl::Status CheckPositions(const ShawSettings& s, const RelativeShape& shape, const Limits&) {
  const bool turned = s.order == ShawOrder::kQueryMinusKey;
  const double first = turned ? -shape.distances.last : shape.distances.first;
  const double last = turned ? -shape.distances.first : shape.distances.last;
  if (*s.clip || (first >= static_cast<double>(First(s)) && last <= static_cast<double>(Last(s)))) {
    return absl::OkStatus();
  }
  return InvalidArgument("OUT_OF_RANGE", "table", fmt::format("distances {} .. {}", first, last),
                         fmt::format("must be of as many rows as distances without clip: its {} rows are for {} .. {}",
                                     s.table.rows, First(s), Last(s)));
}

std::vector<int32_t> ShawRows(const ShawSettings& s, const Distances& distances) {
  const auto first = static_cast<int64_t>(distances.first), last = static_cast<int64_t>(distances.last);
  const int64_t sign = s.order == ShawOrder::kKeyMinusQuery ? 1 : -1;
  std::vector<int32_t> rows;
  rows.reserve(last - first + 1);
  for (int64_t n = first; n <= last; ++n) {
    rows.push_back(static_cast<int32_t>(std::clamp(sign * n, First(s), Last(s)) - First(s)));
  }
  return rows;
}

absl::StatusOr<RelativeTables> MakeTables(const ShawSettings& s, const RelativeShape& shape, Frequencies, WorkPool&,
                                          const Cancellation&) {
  RelativeTables tables;
  tables.row_of_distance = ShawRows(s, shape.distances);
  tables.of_query = HeadTable{s.table.rows, s.table.columns, s.table.columns, true, s.table.values};
  if (s.key_term) tables.of_key = tables.of_query;
  return tables;
}

}  // namespace posenc

#include "posenc/bias/bias_geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/base/tensor.h"
#include "posenc/bias/bias_mask.h"

namespace posenc {

void BatchSize::See(std::string_view field, int64_t rows) {
  if (!status_.ok()) return;
  if (batch_ && *batch_ != rows) {
    status_ = InvalidArgument("MISMATCH", field, fmt::format("{} batch rows", rows),
                              fmt::format("must be {}, as in {}", *batch_, field_));
  } else {
    batch_ = rows;
    field_ = field;
  }
}

absl::Status CheckColumns(std::string_view field, int64_t given, int64_t columns) {
  if (given == columns) return absl::OkStatus();
  return InvalidArgument("MISMATCH", fmt::format("{}.shape", field), fmt::format("{} columns", given),
                         fmt::format("must be {}", columns));
}

absl::Status CheckLengths(const BiasGeometry& g, const Limits& limits) {
  if (!g.query_length || !g.key_length) {
    return InvalidArgument("MISSING", "geometry", "", "must be given: query_length and key_length");
  }
  for (const auto& [field, length] :
       {std::pair{"geometry.query_length", *g.query_length}, {"geometry.key_length", *g.key_length}}) {
    POSENC_RETURN_IF_ERROR(CheckCount(field, length, limits));
  }
  if (*g.query_length != *g.key_length && std::holds_alternative<std::monostate>(g.query)) {
    return InvalidArgument(
        "MISSING", "geometry.query", "",
        "must be given, because query_length != key_length: query_offset (with a cache of n keys: n), query_offsets or "
        "query_positions");
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const BiasGeometry& g, const std::optional<Mask>& mask, BatchSize& batch) {
  absl::Status columns;
  const auto see = [&](std::string_view field, const auto& matrix, int64_t count) {
    batch.See(field, matrix);
    columns.Update(CheckColumns(field, matrix, count));
  };
  if (const auto* offsets = std::get_if<PerSequenceOffsets>(&g.query)) {
    batch.See("geometry.query_offsets", static_cast<int64_t>(offsets->offsets.size()));
  }
  if (const auto* ids = std::get_if<PositionIds>(&g.query)) {
    if (!ids->ids.shared) batch.See("geometry.query_positions", ids->ids.rows);
    columns.Update(CheckColumns("geometry.query_positions", ids->ids.columns, *g.query_length));
  }
  see("geometry.key_positions", g.key_positions, *g.key_length);
  if (mask) {
    POSENC_RETURN_IF_ERROR(Within("mask", CheckMask(*mask)));
    see("mask.key_valid", mask->key_valid, *g.key_length);
    see("mask.query_documents", mask->query_documents, *g.query_length);
    see("mask.key_documents", mask->key_documents, *g.key_length);
    const auto prefixes = static_cast<int64_t>(mask->prefix_length.size());
    if (prefixes > 1) batch.See("mask.prefix_length", prefixes);
  }
  POSENC_RETURN_IF_ERROR(batch.status());
  return columns;
}

absl::StatusOr<HeadRange> Heads(const BiasGeometry& g, int64_t all) {
  const int64_t start = g.head_start.value_or(0);
  if (start < 0 || start > all) {
    return InvalidArgument("OUT_OF_RANGE", "geometry.head_start", fmt::format("{}", start),
                           fmt::format("must be 0 .. {}, the number of heads", all));
  }
  const int64_t available = all - start, count = g.head_count.value_or(available);
  if (count < 0 || count > available) {
    return InvalidArgument("OUT_OF_RANGE", "geometry.head_count", fmt::format("{}", count),
                           fmt::format("must be 0 .. {} with head_start {}", available, start));
  }
  return HeadRange{start, count};
}

Matrix<double> Columns(const Matrix<double>& matrix, int64_t first, int64_t count) {
  if (count == matrix.columns) return matrix;
  Matrix<double> columns{{}, matrix.rows, count, matrix.shared};
  columns.values.reserve(matrix.rows * count);
  for (int64_t b = 0; b < matrix.rows; ++b) {
    columns.values.insert(columns.values.end(), matrix.row(b) + first, matrix.row(b) + first + count);
  }
  return columns;
}

Matrix<double> Line(double start, int64_t count) {
  Matrix<double> line{{}, 1, count, true};
  line.values.reserve(count);
  for (int64_t n = 0; n < count; ++n) {
    InterruptionPointOfStep(n);
    line.values.push_back(start + static_cast<double>(n));
  }
  return line;
}

Matrix<double> QueryPositions(const BiasGeometry& geometry, int64_t first, int64_t count) {
  if (const auto* ids = std::get_if<PositionIds>(&geometry.query)) return Columns(ids->ids, first, count);
  const auto line = [first, count](int64_t offset, std::vector<double>& values) {
    for (int64_t n = 0; n < count; ++n) {
      InterruptionPointOfStep(static_cast<int64_t>(values.size()));
      values.push_back(static_cast<double>(offset) + static_cast<double>(first + n));
    }
  };
  if (const auto* offsets = std::get_if<PerSequenceOffsets>(&geometry.query)) {
    Matrix<double> positions{{}, static_cast<int64_t>(offsets->offsets.size()), count, false};
    positions.values.reserve(offsets->offsets.size() * count);
    for (int64_t offset : offsets->offsets) line(offset, positions.values);
    return positions;
  }
  const auto* offset = std::get_if<OffsetPositions>(&geometry.query);
  Matrix<double> positions{{}, 1, count, true};
  positions.values.reserve(count);
  line(offset != nullptr ? offset->offset : 0, positions.values);
  return positions;
}

Matrix<double> QueryEnds(const BiasGeometry& geometry, int64_t queries) {
  if (const auto* ids = std::get_if<PositionIds>(&geometry.query)) return ids->ids;
  const Matrix<double> first = QueryPositions(geometry, 0, 1), last = QueryPositions(geometry, queries - 1, 1);
  Matrix<double> ends{{}, first.rows, 2, first.shared};
  for (int64_t b = 0; b < first.rows; ++b) ends.values.insert(ends.values.end(), {first.values[b], last.values[b]});
  return ends;
}

Matrix<double> KeyPositions(const BiasGeometry& geometry) {
  return geometry.key_positions ? *geometry.key_positions : Line(0, *geometry.key_length);
}

absl::Status CheckPositions(std::string_view field, const Matrix<double>& positions) {
  for (size_t n = 0; n < positions.values.size(); ++n) {
    InterruptionPointOfStep(static_cast<int64_t>(n));
    if (!(std::abs(positions.values[n]) <= kLargestPosition)) {
      return CheckPosition(fmt::format("{}[{}]", field, n), positions.values[n]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWhole(std::string_view field, const Matrix<double>& positions) {
  for (size_t n = 0; n < positions.values.size(); ++n) {
    InterruptionPointOfStep(static_cast<int64_t>(n));
    if (std::trunc(positions.values[n]) != positions.values[n]) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", field, n), fmt::format("{}", positions.values[n]),
                             "must be an integer: this method has values for integer distances only");
    }
  }
  return absl::OkStatus();
}

Distances Range(const Matrix<double>& queries, const Matrix<double>& keys) {
  Distances range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  int64_t steps = 0;
  const auto less = [&steps](double a, double b) {
    InterruptionPointOfStep(++steps);
    return a < b;
  };
  for (int64_t b = 0; b < std::max(queries.rows, keys.rows); ++b) {
    const auto [least_query, most_query] = std::minmax_element(queries.row(b), queries.row(b) + queries.columns, less);
    const auto [least_key, most_key] = std::minmax_element(keys.row(b), keys.row(b) + keys.columns, less);
    range = {std::min(range.first, *least_key - *most_query), std::max(range.last, *most_key - *least_query)};
  }
  return range;
}

absl::Status CheckDistances(const Distances& distances, const Limits& limits) {
  const auto& [first, last] = distances;
  if (last - first < static_cast<double>(limits.max_bias_values)) return absl::OkStatus();
  return TooLarge("geometry", fmt::format("distances {} .. {}", first, last),
                  fmt::format("must be at most {} distances (max_bias_values)", limits.max_bias_values));
}

}  // namespace posenc

#include "posenc/rotary/position_segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/base/tensor.h"

namespace posenc {
namespace {

// Number of points. Nullopt if a size is negative or the product of the sizes other than 0 does not fit 63 bits.
std::optional<int64_t> CountOf(const PositionGrid& grid) {
  int64_t points = 1;
  bool empty = false;
  for (const int64_t size : grid.size) {
    if (size < 0 || __builtin_mul_overflow(points, std::max<int64_t>(size, 1), &points)) return std::nullopt;
    empty = empty || size == 0;
  }
  return empty ? 0 : points;
}
std::optional<int64_t> CountOf(const PositionLine& line) {
  return line.count < 0 ? std::nullopt : std::optional(line.count);
}

// Row-major stride of an axis: the number of consecutive points that share one value on it.
int64_t Stride(const PositionGrid& grid, int64_t axis) {
  int64_t stride = 1;
  for (size_t k = axis + 1; k < grid.size.size(); ++k) stride *= grid.size[k];
  return stride;
}

// Writes the positions of a segment's tokens [begin, begin + count) on `axis`.
void Fill(const PositionLine& line, int64_t begin, int64_t count, int64_t, double* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = line.start + static_cast<double>(begin + i) * line.step;
}
void Fill(const PositionGrid& grid, int64_t begin, int64_t count, int64_t axis, double* out) {
  const int64_t stride = Stride(grid, axis);
  int64_t within = begin % stride, index = begin / stride % grid.size[axis];
  for (int64_t i = 0; i < count; ++i) {
    out[i] = grid.start[axis] + static_cast<double>(index) * grid.step[axis];
    if (++within < stride) continue;
    within = 0;
    if (++index == grid.size[axis]) index = 0;
  }
}

// Largest position of tokens [begin, begin + count) over all axes; count > 0. Positions are monotone in the index, so
// the ends suffice.
double Largest(const PositionLine& line, int64_t begin, int64_t count) {
  return std::max(line.start + static_cast<double>(begin) * line.step,
                  line.start + static_cast<double>(begin + count - 1) * line.step);
}
double Largest(const PositionGrid& grid, int64_t begin, int64_t count) {
  double largest = 0;
  for (size_t axis = 0; axis < grid.size.size(); ++axis) {
    const int64_t stride = Stride(grid, static_cast<int64_t>(axis)), size = grid.size[axis];
    const int64_t first = begin / stride, last = (begin + count - 1) / stride;
    // If the index wraps around, the range contains both of the axis's ends.
    const bool wraps = first / size != last / size;
    for (const int64_t index : {wraps ? 0 : first % size, wraps ? size - 1 : last % size}) {
      largest = std::max(largest, grid.start[axis] + static_cast<double>(index) * grid.step[axis]);
    }
  }
  return largest;
}

absl::Status CheckEnd(std::string_view field, double step, double end) {
  if (std::abs(end) <= kLargestPosition) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{}", step),
                         "must be finite and lead to positions of at most 2^53 in magnitude");
}

absl::Status Check(const PositionLine& line, int64_t) {
  if (line.count < 0) {
    return InvalidArgument("OUT_OF_RANGE", "count", fmt::format("{}", line.count), "must be at least 0");
  }
  POSENC_RETURN_IF_ERROR(CheckPosition("start", line.start));
  return CheckEnd("step", line.step, line.start + static_cast<double>(line.count) * line.step);
}
absl::Status Check(const PositionGrid& grid, int64_t axes) {
  const auto sizes = static_cast<int64_t>(grid.size.size());
  if (sizes != axes) {
    return InvalidArgument("MISMATCH", "size", fmt::format("{} values", sizes),
                           fmt::format("must be one per axis: {}", axes));
  }
  if (!CountOf(grid)) {
    return InvalidArgument("OUT_OF_RANGE", "size", ToString(grid.size),
                           "must be at least 0, and the product below 2^63");
  }
  for (int64_t k = 0; k < axes; ++k) {
    const double start = grid.start[k], end = start + static_cast<double>(grid.size[k]) * grid.step[k];
    if (CheckPosition("", start).ok() && CheckEnd("", grid.step[k], end).ok()) continue;
    POSENC_RETURN_IF_ERROR(CheckPosition(fmt::format("start[{}]", k), start));
    return CheckEnd(fmt::format("step[{}]", k), grid.step[k], end);
  }
  return absl::OkStatus();
}

// Checks that evenly spaced positions are row indices: it suffices that both ends and the second position are.
absl::Status CheckRun(int64_t count, double start, double step, int64_t rows) {
  if (count == 0) return absl::OkStatus();
  POSENC_RETURN_IF_ERROR(CheckIndex("start", start, rows));
  if (count == 1) return absl::OkStatus();
  for (const double position : {start + step, start + static_cast<double>(count - 1) * step}) {
    if (CheckIndex("", position, rows).ok()) continue;
    return InvalidArgument("OUT_OF_RANGE", "step", fmt::format("{}", step),
                           fmt::format("must lead to integers in [0, {}), rows of given_table", rows));
  }
  return absl::OkStatus();
}
// Grids must have one axis.
absl::Status CheckIndicesOf(const PositionLine& line, int64_t rows) {
  return CheckRun(line.count, line.start, line.step, rows);
}
absl::Status CheckIndicesOf(const PositionGrid& grid, int64_t rows) {
  return CheckRun(grid.size[0], grid.start[0], grid.step[0], rows);
}

std::string_view KindOf(const PositionSegment& segment) {
  return std::holds_alternative<PositionGrid>(segment) ? "grid" : "line";
}

}  // namespace

absl::Status CheckIndex(std::string_view field, double position, int64_t rows) {
  if (position >= 0 && position < static_cast<double>(rows) && position == std::floor(position)) {
    return absl::OkStatus();
  }
  return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{}", position),
                         fmt::format("must be an integer in [0, {}), a row of given_table", rows));
}

absl::Status CheckIndices(const PositionSegments& segments, int64_t rows) {
  for (size_t n = 0; n < segments.segments.size(); ++n) {
    InterruptionPointOfStep(static_cast<int64_t>(n));
    const PositionSegment& segment = segments.segments[n];
    const absl::Status status = std::visit([rows](const auto& kind) { return CheckIndicesOf(kind, rows); }, segment);
    if (!status.ok()) return Within(fmt::format("segments.segment[{}].{}", n, KindOf(segment)), status);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Count(std::string_view field, const PositionSegments& segments, const Limits& limits) {
  int64_t sum = 0;
  for (size_t n = 0; n < segments.segments.size(); ++n) {
    InterruptionPointOfStep(static_cast<int64_t>(n));
    const auto count = std::visit([](const auto& kind) { return CountOf(kind); }, segments.segments[n]);
    if (count && *count <= limits.max_dimension && (sum += *count) <= limits.max_dimension) continue;
    return InvalidArgument("OUT_OF_RANGE", field,
                           count ? fmt::format("at least {} positions", std::max(sum, *count)) : "",
                           fmt::format("must be at least 0 in every count, and at most {} positions (max_dimension)",
                                       limits.max_dimension));
  }
  return sum;
}

absl::StatusOr<int64_t> CheckedCount(const PositionSegment& segment, int64_t axes) {
  const absl::Status status = std::visit([axes](const auto& kind) { return Check(kind, axes); }, segment);
  if (!status.ok()) return Within(KindOf(segment), status);
  return *std::visit([](const auto& kind) { return CountOf(kind); }, segment);
}

void FillFrom(const PositionSegment& segment, int64_t begin, int64_t count, int64_t axis, double* out) {
  std::visit([&](const auto& kind) { Fill(kind, begin, count, axis, out); }, segment);
}

double LargestOf(const PositionSegment& segment, int64_t begin, int64_t count) {
  return std::visit([&](const auto& kind) { return Largest(kind, begin, count); }, segment);
}

}  // namespace posenc

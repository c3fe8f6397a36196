// Evenly spaced positions: lines and grids.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Returns INVALID_ARGUMENT unless `position` is an integer in [0, rows).
absl::Status CheckIndex(std::string_view field, double position, int64_t rows);
// CheckIndex for all positions of the segments. Their grids must have one axis.
absl::Status CheckIndices(const PositionSegments& segments, int64_t rows);

// Number of positions. INVALID_ARGUMENT naming `field` if a count or size is negative, or there are more positions than
// max_dimension.
absl::StatusOr<int64_t> Count(std::string_view field, const PositionSegments& segments, const Limits& limits);

// Number of positions of the segment. INVALID_ARGUMENT if a count or size is invalid, a position is out of range, or a
// grid does not have `axes` axes.
absl::StatusOr<int64_t> CheckedCount(const PositionSegment& segment, int64_t axes);

// Writes the positions on `axis` of tokens [begin, begin + count) of a checked segment.
void FillFrom(const PositionSegment& segment, int64_t begin, int64_t count, int64_t axis, double* out);

// Largest position of tokens [begin, begin + count) over all axes; count > 0.
double LargestOf(const PositionSegment& segment, int64_t begin, int64_t count);

}  // namespace posenc

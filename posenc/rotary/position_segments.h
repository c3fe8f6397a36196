// Evenly spaced positions: lines and grids.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/settings/settings.h"

namespace posenc {

// INVALID_ARGUMENT unless it is an integer in [0, rows).
absl::Status CheckIndex(std::string_view field, double position, int64_t rows);
// The same of all positions of the segments, whose grids have one axis.
absl::Status CheckIndices(const PositionSegments& segments, int64_t rows);

// How many positions they are; none if a count or size is negative or the sum does not fit 63 bits.
std::optional<int64_t> Count(const PositionSegments& segments);

// How many positions the segment is. INVALID_ARGUMENT if that makes no sense, if a position is out of range, or if it
// is a grid of another number of axes.
absl::StatusOr<int64_t> CheckedCount(const PositionSegment& segment, int64_t axes);

// Writes the positions on that axis of a checked segment's tokens [begin, begin + count).
void FillFrom(const PositionSegment& segment, int64_t begin, int64_t count, int64_t axis, double* out);

// The largest of them over all axes; count > 0.
double LargestOf(const PositionSegment& segment, int64_t begin, int64_t count);

}  // namespace posenc

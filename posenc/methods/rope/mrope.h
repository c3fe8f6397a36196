// M-RoPE: each pair rotates by one of several axes of a position. Combines with any rope_type.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Returns the axis of each pair by mrope_section and mrope_order; empty if neither is set. Returns INVALID_ARGUMENT if
// they do not fit together or do not fit `pairs`.
absl::StatusOr<std::vector<int64_t>> MropeAxes(const RopeParameters& parameters, int64_t pairs);

}  // namespace posenc

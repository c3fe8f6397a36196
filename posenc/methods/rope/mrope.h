// M-RoPE: pairs that turn by different axes of a position, beside any rope_type.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "posenc/settings/settings.h"

namespace posenc {

// The axis of each pair, as mrope_section and mrope_order say; empty where neither is set.
absl::StatusOr<std::vector<int64_t>> MropeAxes(const RopeParameters& parameters, int64_t pairs);

}  // namespace posenc

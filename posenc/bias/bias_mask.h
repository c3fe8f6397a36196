// Which cells of a bias are hidden: checks, and what the kernel is given.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/settings/settings.h"

namespace posenc {

// INVALID_ARGUMENT naming the field within Mask. Shapes are the geometry's business.
absl::Status CheckMask(const Mask& mask);

// All but the positions, for batch row b. The fill value is rounded once, to work->dtype.
void SetMask(const Mask& mask, int64_t b, DistanceBias* work);

}  // namespace posenc

// Masks of attention biases: validation, and the kernel's mask arguments.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Returns INVALID_ARGUMENT naming the field within Mask. CheckBatch checks the shapes.
absl::Status CheckMask(const Mask& mask);

// Sets the mask arguments of batch row b, except for the positions. The fill value is rounded once, to work->dtype.
void SetMask(const Mask& mask, int64_t b, DistanceBias* work);

}  // namespace posenc

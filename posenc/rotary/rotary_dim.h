// Rotary width: the number of elements of a head row that rotate.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Rotary width from rotary_dim, from head_dim and partial_rotary_factor, or from the frequencies (completed axes and
// tables). INVALID_ARGUMENT if they contradict each other, or if the width is odd or out of range.
absl::StatusOr<int64_t> RotaryDim(const RotarySettings& settings, const Limits& limits);

}  // namespace posenc

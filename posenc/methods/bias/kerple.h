// KERPLE (arXiv:2205.09921): kernels of the distance with two learned parameters a head.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Clamps the parameters as the model does; INVALID_ARGUMENT naming the field that is missing or not finite.
absl::Status Complete(KerpleSettings& settings, const Limits& limits);

// For |distance| = first, first + 1, ...: the values of all heads.
std::vector<float> KerpleValues(Frequencies arithmetic, const KerpleSettings& settings, int64_t first, int64_t count);

}  // namespace posenc

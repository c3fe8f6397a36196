// T5's buckets of the distance (arXiv:1910.10683): near distances have one each, farther ones share them by logarithm.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "posenc/base/modes.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Fills in defaults; INVALID_ARGUMENT naming the field that is missing or out of range.
absl::Status Complete(T5Settings& settings);

// Buckets of the distances key - query = first, first + 1, ..., of completed settings; magnitudes below 2^31. Under
// kExact each is decided over the integers.
std::vector<int32_t> T5Buckets(Frequencies arithmetic, const T5Settings& settings, int64_t first, int64_t count);

}  // namespace posenc

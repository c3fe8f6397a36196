// Sandwich (arXiv:2212.10356): the inner products of sinusoidal encodings, divided by a ratio a head.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Fills in defaults; INVALID_ARGUMENT naming the field that is missing or out of range.
absl::Status Complete(SandwichSettings& settings, const Limits& limits);

// For |distance| = first, first + 1, ...: the values of all heads, of completed settings.
std::vector<float> SandwichValues(Frequencies arithmetic, const SandwichSettings& settings, int64_t first,
                                  int64_t count);

}  // namespace posenc

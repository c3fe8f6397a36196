// Axial RoPE: one rotary embedding an axis, side by side or by turns.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "posenc/base/limits.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Fills in defaults; INVALID_ARGUMENT naming the field that is missing or out of range.
absl::Status Complete(AxialRope& axial, const Limits& limits);

// Of completed settings: the rotary width, the frequencies of all pairs, and the axis of each.
int64_t AxialWidth(const AxialRope& axial);
std::vector<double> AxialFrequencies(Frequencies arithmetic, const AxialRope& axial);
std::vector<int64_t> AxialAxes(const AxialRope& axial);

}  // namespace posenc

// Axial RoPE: one rotary embedding per axis, concatenated or alternating pair by pair.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "posenc/base/limits.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Fills in defaults. Returns INVALID_ARGUMENT naming the field that is missing or out of range.
absl::Status Complete(AxialRope& axial, const Limits& limits);

// Return the rotary width, the frequencies of all pairs and the axis of each pair. Require completed settings.
int64_t AxialWidth(const AxialRope& axial);
std::vector<double> AxialFrequencies(Frequencies arithmetic, const AxialRope& axial);
std::vector<int64_t> AxialAxes(const AxialRope& axial);

}  // namespace posenc

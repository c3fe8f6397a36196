// Rotary embeddings over several axes of a position: axial RoPE and M-RoPE.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Axial RoPE: one rotary embedding per axis, concatenated or alternating pair by pair.

// Fills in defaults. Returns INVALID_ARGUMENT naming the field that is missing or out of range.
absl::Status Complete(AxialRope& axial, const Limits& limits);

// Return the rotary width, the frequencies of all pairs and the axis of each pair. Require completed settings.
int64_t AxialWidth(const AxialRope& axial);
std::vector<double> AxialFrequencies(Frequencies arithmetic, const AxialRope& axial);
std::vector<int64_t> AxialAxes(const AxialRope& axial);

// M-RoPE: each pair rotates by one of several axes of a position. Combines with any rope_type.

// Returns the axis of each pair by mrope_section and mrope_order, with kElements that of each of 2 * pairs elements;
// empty if neither is set. Returns INVALID_ARGUMENT if they do not fit together or do not fit `pairs`.
absl::StatusOr<std::vector<int64_t>> MropeAxes(const RopeParameters& parameters, int64_t pairs);

}  // namespace posenc

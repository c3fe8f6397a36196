// ALiBi (arXiv:2108.12409): slopes a head. What the forms do with them is generate_bias.h's business.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Fills in defaults; INVALID_ARGUMENT naming the field that is missing, out of range, or not read.
absl::Status Complete(AlibiSettings& settings, const Limits& limits);

// Slopes of all heads, of completed settings: [H], or [B, H] where given so; float32 values. Under kExact the formula
// rounded once to float32; else the chain of the model's own code (BLOOM's for a rule, MPT's for kMpt), every step
// rounded.
Matrix<double> AlibiSlopes(Frequencies arithmetic, const AlibiSettings& settings);

// Whether every query has the same row.
inline bool IsKeyOnly(AlibiForm form) { return form == AlibiForm::kBloom || form == AlibiForm::kMpt; }

}  // namespace posenc

// Factor of q by position (QueryScale), which Llama 4, Ministral 3, Beam, Qwen and Inkling have.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Returns INVALID_ARGUMENT naming the parameter that is missing, out of range, or not the function's.
absl::Status Check(const QueryScale& scale);

// Returns multiplier * s(p), or its reciprocal, for each position p >= 0. kExact: as a real number rounded once to
// float64; other arithmetics: by the models' own operations. Interruptible.
std::vector<double> QueryFactors(Frequencies arithmetic, const QueryScale& scale, const std::vector<double>& positions,
                                 double multiplier = 1, bool reciprocal = false);

// First whole position whose factor is not 1; nullopt: none.
std::optional<double> FirstScaledPosition(const QueryScale& scale);

}  // namespace posenc

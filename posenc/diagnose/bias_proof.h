// A method's bias, computed and compared with what is there.
#pragma once

#include "absl/status/status.h"
#include "posenc/diagnose/bias.h"

namespace posenc::diagnose {

// By the explanation's method, precision and geometry; fills in the comparison.
absl::Status Prove(const BiasEvidence& evidence, const FoundMask& mask, const Limits& limits, WorkPool& pool,
                   const Cancellation& cancelled, BiasExplanation* explanation);

}  // namespace posenc::diagnose

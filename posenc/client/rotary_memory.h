// Check of the caller's memory for StreamApplyRotary.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "posenc/client/backend.h"

namespace posenc {

// Returns INVALID_ARGUMENT if memory is missing for an operand of so many bytes, or if an output overlaps an input or
// the other output. A tensor may be rotated in place.
absl::Status CheckMemory(int64_t q_bytes, int64_t k_bytes, const RotaryMemory& memory);

}  // namespace posenc

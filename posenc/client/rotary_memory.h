// What may be streamed from where to where.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "posenc/client/backend.h"

namespace posenc {

// INVALID_ARGUMENT where memory is missing for an operand of so many bytes, or what is written overlaps what is read,
// but for a tensor that is rotated in place.
absl::Status CheckMemory(int64_t q_bytes, int64_t k_bytes, const RotaryMemory& memory);

}  // namespace posenc

// What a rotation out of place is measured beside, for whoever rotates.
#pragma once

#include "bench/case.h"
#include "bench/memory.h"
#include "posenc/settings/settings.h"

namespace posenc::bench {

inline constexpr size_t kHeads = 32;

struct RotationContest {
  Contest contest;  // whose subject is the kernel with a table at hand
  Memory x, y;      // [tokens, kHeads, head_dim]
};
RotationContest PrepareRotation(DType dtype, Pairing pairing, size_t head_dim, size_t bytes, Team& team);

}  // namespace posenc::bench

// Contest of an out-of-place rotation against the memory limits, shared by several benchmarks.
#pragma once

#include "bench/case.h"
#include "bench/memory.h"
#include "posenc/settings/settings.h"

namespace posenc::bench {

inline constexpr size_t kHeads = 32;

struct RotationContest {
  Contest contest;  // subject: the kernel with a precomputed table
  Memory x, y;      // [tokens, kHeads, head_dim]
};
RotationContest PrepareRotation(DType dtype, Pairing pairing, size_t head_dim, size_t bytes, Team& team);

}  // namespace posenc::bench

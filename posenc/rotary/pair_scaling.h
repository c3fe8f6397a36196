// Compares each pair's frequency with its frequency before RoPE scaling.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "posenc/rotary/rotary_plan.h"

namespace posenc {

enum class PairScaling { kKept, kInterpolated, kMixed, kStopped };

struct ScaledPair {
  double unscaled_inv_freq;
  double ratio;  // inv_freq / unscaled_inv_freq
  PairScaling scaling;
};

// One entry per pair of the exact plan; empty if there is no unscaled counterpart (proto/posenc/v1/service.proto).
absl::StatusOr<std::vector<ScaledPair>> CompareWithUnscaled(const Rotary& rotary, const RotaryPlan& plan,
                                                            const Limits& limits);

}  // namespace posenc

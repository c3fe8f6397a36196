// What a rotary scaling did to each pair: its frequency beside the unscaled one.
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

// One a pair of the exact plan; none where there is no unscaled counterpart (proto/posenc/v1/service.proto).
absl::StatusOr<std::vector<ScaledPair>> CompareWithUnscaled(const Rotary& rotary, const RotaryPlan& plan,
                                                            const Limits& limits);

}  // namespace posenc

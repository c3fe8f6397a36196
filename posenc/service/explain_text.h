// What a rotary embedding does, in words and by runs of pairs.
#pragma once

#include "absl/status/status.h"
#include "posenc/base/limits.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/rotary/pair_scaling.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/values.h"

namespace posenc::wire {

inline constexpr EnumPairs<v1::PairScaling, PairScaling> kPairScalings = {
    {v1::PAIR_SCALING_KEPT, PairScaling::kKept},
    {v1::PAIR_SCALING_INTERPOLATED, PairScaling::kInterpolated},
    {v1::PAIR_SCALING_MIXED, PairScaling::kMixed},
    {v1::PAIR_SCALING_STOPPED, PairScaling::kStopped},
};

// Writes sentences and runs for a plan of resolved.rotary. Frequencies are compared as FREQUENCY_ARITHMETIC_EXACT
// computes them.
absl::Status ExplainInWords(const ResolvedRotary& resolved, const RotaryPlan& plan, const Limits& limits,
                            v1::ExplanationText* text);

}  // namespace posenc::wire

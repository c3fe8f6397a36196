#include "posenc/rotary/pair_scaling.h"

#include <cmath>

#include "posenc/base/status.h"

namespace posenc {
namespace {

PairScaling Classify(double inv_freq, double ratio, std::optional<double> factor) {
  if (inv_freq == 0) return PairScaling::kStopped;
  if (ratio == 1) return PairScaling::kKept;
  if (factor && std::fabs(ratio * *factor - 1) <= 0x1p-50) return PairScaling::kInterpolated;
  return PairScaling::kMixed;
}

}  // namespace

absl::StatusOr<std::vector<ScaledPair>> CompareWithUnscaled(const Rotary& rotary, const RotaryPlan& plan,
                                                            const Limits& limits) {
  const auto* scaled = std::get_if<RopeParameters>(&rotary.settings().frequencies);
  if (scaled == nullptr || !scaled->rope_theta) return std::vector<ScaledPair>();  // not in "pixel", "constant"
  RotarySettings settings;
  settings.frequencies = RopeParameters{.rope_type = "default",
                                        .rope_theta = scaled->rope_theta,
                                        .frequency_dim = scaled->frequency_dim,
                                        .negate_angle = scaled->negate_angle};
  settings.rotary_dim = rotary.rotary_dim();
  settings.input_pairing = rotary.input_pairing();
  POSENC_ASSIGN_OR_RETURN(const Rotary unscaled, Rotary::Create(std::move(settings), Frequencies::kExact, limits));
  POSENC_ASSIGN_OR_RETURN(const auto reference, unscaled.Plan(0));
  // With two angles in a pair, the plan has frequencies by element.
  std::vector<double> by_pair = plan.inv_freq;
  if (!rotary.sources().empty()) {
    by_pair.resize(reference->inv_freq.size());
    for (size_t n = 0; n < plan.inv_freq.size(); ++n) by_pair[rotary.sources()[n]] = plan.inv_freq[n];
  }
  std::vector<ScaledPair> pairs;
  for (size_t i = 0; i < by_pair.size(); ++i) {
    const double inv_freq = by_pair[i], before = reference->inv_freq[i];
    const double ratio = inv_freq == 0 ? 0 : inv_freq / before;  // both are 0 for large powers of theta
    pairs.push_back({before, ratio, Classify(inv_freq, ratio, scaled->factor)});
  }
  return pairs;
}

}  // namespace posenc

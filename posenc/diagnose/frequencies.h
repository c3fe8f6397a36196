// Frequencies measured from angles over positions.
#pragma once

#include <optional>
#include <vector>

#include "posenc/diagnose/angles.h"

namespace posenc::diagnose {

// Upper bound on the relative error of float32 recipes of frequencies.
inline constexpr double kRecipe = 1e-6;

struct MeasuredFrequency {
  double inv_freq = 0;     // radians per position; negative: the pair rotates backwards
  double uncertainty = 0;  // one standard deviation; infinite if positions do not vary
  int64_t axis = 0;
  double phase = 0;  // the angle at position 0
};

struct MeasuredFrequencies {
  std::vector<MeasuredFrequency> pairs;
  double smallest_step = 0;  // smallest gap of positions; frequencies are known modulo 2 pi / it. 0: one position
};
MeasuredFrequencies MeasureFrequencies(const Angles& angles, const Tokens& tokens);

// Power law of frequencies: inv_freq[k] = theta^(-2k/d) / factor.
struct PowerLaw {
  double rope_theta, factor;
  double theta_uncertainty, factor_uncertainty;  // one standard deviation, relative
};
std::optional<PowerLaw> FindPowerLaw(const MeasuredFrequencies& measured);

}  // namespace posenc::diagnose

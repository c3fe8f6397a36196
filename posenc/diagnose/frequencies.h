// Frequencies measured from angles over positions.
#pragma once

#include <optional>
#include <vector>

#include "posenc/diagnose/angles.h"

namespace posenc::diagnose {

// What float32 recipes of frequencies are off by, and more, as a part of the value.
inline constexpr double kRecipe = 1e-6;

struct MeasuredFrequency {
  double inv_freq = 0;     // radians a position; negative: the pair turns the other way
  double uncertainty = 0;  // one standard deviation; infinite where the positions say nothing
  int64_t axis = 0;
  double phase = 0;  // the angle at position 0
};

struct MeasuredFrequencies {
  std::vector<MeasuredFrequency> pairs;
  double smallest_step = 0;  // between positions: frequencies are known modulo 2 pi over it. 0: there is one position
};
MeasuredFrequencies MeasureFrequencies(const Angles& angles, const Tokens& tokens);

// inv_freq[k] = theta^(-2k/d) / factor, where that is what they are.
struct PowerLaw {
  double rope_theta, factor;
  double theta_uncertainty, factor_uncertainty;  // one standard deviation, as parts of them
};
std::optional<PowerLaw> FindPowerLaw(const MeasuredFrequencies& measured);

}  // namespace posenc::diagnose

// The angle of each pair at each token, and what follows from angles alone.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <vector>

#include "posenc/diagnose/pairs.h"

namespace posenc::diagnose {

// Angles of one layout. turn[token * pairs + k] is a times e^(sqrt(-1) angle), by least squares over the heads. weight
// is the energy of the elements behind it, 0 if there are none.
struct Angles {
  int64_t tokens = 0, pairs = 0;
  std::vector<std::complex<double>> turn;
  std::vector<double> weight;
  double attention_scaling = 1;  // a: the median of |turn|
  double scatter = 0;            // fraction of the energy that no rotation shared by the heads explains

  void Add(const Numbers& numbers, const PairLayout& layout);  // call for q, then for k
  void Finish();                                               // call after the last Add()

  // At most `most` pairs, those with the most weight, in ascending order. A search over many numbers takes these: all
  // pairs of usual heads, but not thousands.
  std::vector<int64_t> HeaviestPairs(int64_t most) const;
};

inline constexpr int64_t kSearchedPairs = 256;

// Frequencies to compare with angles: one per pair. axis[k] is the position axis of pair k; empty: all use axis 0.
struct Frequency {
  std::vector<double> inv_freq;
  std::vector<int64_t> axis;
};

// The direction and the shift at which frequencies fit the angles best.
struct Match {
  double direction = 1;  // -1: the inverse rotation
  double shift = 0;      // true position minus stated position, in tokens
  double residual = 1;   // weighted mean of 1 - cos(error of the angle)
};
// Tries the shifts 0, 1, -1 and `others`. Of equal ones the first wins.
Match FindMatch(const Angles& angles, const Tokens& tokens, const Frequency& frequency,
                const std::vector<double>& others);

// Frequencies measured from angles over positions.

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

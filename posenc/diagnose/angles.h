// The angle of each pair at each token, and what follows from angles alone.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <vector>

#include "posenc/diagnose/pairs.h"

namespace posenc::diagnose {

// Of one layout. turn[token * pairs + k] is a times e^(sqrt(-1) angle), by least squares over the heads; its weight the
// energy of the elements behind it, 0 where there are none.
struct Angles {
  int64_t tokens = 0, pairs = 0;
  std::vector<std::complex<double>> turn;
  std::vector<double> weight;
  double attention_scaling = 1;  // a: the median of |turn|
  double scatter = 0;            // what no rotation that heads share explains, as a part of the energy

  void Add(const Numbers& numbers, const PairLayout& layout);  // q, then k
  void Finish();                                               // after the last
};

// Frequencies that are compared with angles: one a pair, and by which axis it turns (none: the only one).
struct Frequency {
  std::vector<double> inv_freq;
  std::vector<int64_t> axis;
};

// Where these frequencies agree best with the angles.
struct Match {
  double direction = 1;  // -1: the inverse rotation
  double shift = 0;      // tokens stand so much later than said
  double residual = 1;   // 1 - cos of the error of the angles, on average
};
// Shifts of 0, 1 and -1, of `others`, and, with `far`, every one up to some thousands; the first of equals.
Match FindMatch(const Angles& angles, const Tokens& tokens, const Frequency& frequency,
                const std::vector<double>& others, bool far);

}  // namespace posenc::diagnose

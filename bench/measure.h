// Times several contestants side by side: every round runs each of them, so that what disturbs the machine for a while
// disturbs them alike, and ratios are taken within a round.
#pragma once

#include <functional>
#include <vector>

namespace posenc::bench {

using Pass = std::function<void()>;

struct Effort {
  int rounds;
  double seconds;  // at least this long for each contestant in each round
};

// Seconds of one pass: [contestant][round].
std::vector<std::vector<double>> Measure(const std::vector<Pass>& contestants, const Effort& effort);

double Median(std::vector<double> values);
// The median over the rounds of a[round] / b[round].
double MedianRatio(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace posenc::bench

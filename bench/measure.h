// Times several passes side by side. Every round runs each pass, so that a temporary disturbance of the machine affects
// all alike. Ratios are taken within a round.
#pragma once

#include <functional>
#include <vector>

namespace posenc::bench {

using Pass = std::function<void()>;

struct Effort {
  int rounds;
  double seconds;  // minimum duration per contestant and round
};

// Returns the seconds of one pass: [contestant][round].
std::vector<std::vector<double>> Measure(const std::vector<Pass>& contestants, const Effort& effort);

double Median(std::vector<double> values);
// Returns a[round] / b[round].
std::vector<double> Ratios(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace posenc::bench

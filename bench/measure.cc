#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace posenc::bench {
namespace {

double SecondsOf(const Pass& pass, size_t times) {
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < times; ++i) pass();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::vector<std::vector<double>> Measure(const std::vector<Pass>& contestants, const Effort& effort) {
  std::vector<size_t> times;
  for (const Pass& pass : contestants) {
    size_t n = 1;
    SecondsOf(pass, 1);  // warm-up: touches pages, fills caches
    while (SecondsOf(pass, n) < effort.seconds / 2) n *= 2;
    times.push_back(n == 1 ? 1 : 2 * n);
  }
  std::vector<std::vector<double>> seconds(contestants.size());
  for (int round = 0; round < effort.rounds; ++round) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      contestants[i]();  // warm-up: the caches as this contestant leaves them
      seconds[i].push_back(SecondsOf(contestants[i], times[i]) / static_cast<double>(times[i]));
    }
  }
  return seconds;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

std::vector<double> Ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t round = 0; round < a.size(); ++round) ratios.push_back(a[round] / b[round]);
  return ratios;
}

}  // namespace posenc::bench

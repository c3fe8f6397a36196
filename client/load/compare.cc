#include "client/load/compare.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "client/load/figures.h"

namespace posenc::load {

std::vector<Regression> Regressions(const Results& baseline, const Results& now, double max_regression) {
  std::vector<Regression> regressions;
  const auto add = [&](std::string figure, double before, double after) {
    const double ratio = before > 0 ? after / before : std::numeric_limits<double>::infinity();
    regressions.push_back({std::move(figure), before, after, ratio});
  };
  const auto must_not_grow = [&](std::string figure, double before, double after) {
    if (after > before * (1 + max_regression)) add(std::move(figure), before, after);
  };
  const auto must_not_fall = [&](std::string figure, double before, double after) {
    if (after < before * (1 - max_regression)) add(std::move(figure), before, after);
  };
  if (baseline.highest_rate && now.highest_rate) {
    must_not_fall("highest rate that held the objective, calls/s", *baseline.highest_rate, *now.highest_rate);
    return regressions;
  }
  for (const auto& [name, percentile] : kPercentiles) {
    if (percentile != 50 && percentile != 99 && percentile != 99.9) continue;
    must_not_grow(fmt::format("{} latency, ms", name),
                  static_cast<double>(baseline.total.latency.Percentile(percentile)) / 1000,
                  static_cast<double>(now.total.latency.Percentile(percentile)) / 1000);
  }
  const Figures before = FiguresOf(baseline), after = FiguresOf(now);
  must_not_fall("throughput, calls/s", before.achieved_per_second, after.achieved_per_second);
  must_not_grow("errors, share of calls", before.error_share, after.error_share);
  return regressions;
}

std::string Describe(const Regression& regression) {
  const std::string text =
      fmt::format("{}: was {:.4g}, is {:.4g}", regression.figure, regression.before, regression.after);
  if (std::isinf(regression.ratio)) return text;
  return fmt::format("{} ({:.1f} % {})", text, 100 * std::abs(regression.ratio - 1),
                     regression.ratio > 1 ? "more" : "less");
}

}  // namespace posenc::load

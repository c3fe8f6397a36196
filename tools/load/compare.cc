#include "tools/load/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "tools/load/figures.h"

namespace posenc::load {
namespace {

// The mix without its seed, which changes only the order of the calls.
nlohmann::json CallsOf(const Results& results) {
  nlohmann::json mix = nlohmann::json::parse(results.mix_json, nullptr, /*allow_exceptions=*/false);
  if (mix.is_object()) mix.erase("seed");
  return mix;
}

// Reason why the runs cannot be compared; empty if they can.
std::string WhatDiffers(const Results& before, const Results& now) {
  if (before.interrupted || now.interrupted) {
    return now.interrupted ? "this run was interrupted" : "the baseline was interrupted";
  }
  if (CallsOf(before) != CallsOf(now)) return "the baseline has a different mix of calls";
  const auto searched = [](const Results& results) {
    return std::any_of(results.steps.begin(), results.steps.end(), [](const Step& step) { return step.held; });
  };
  if (searched(before) != searched(now)) return "only one of the two runs is a search";
  const auto same = [](const Step& a, const Step& b) { return a.name == b.name; };
  if (!searched(now) &&
      !std::equal(before.steps.begin(), before.steps.end(), now.steps.begin(), now.steps.end(), same)) {
    return "the baseline has different steps";
  }
  return "";
}

}  // namespace

absl::Status CompareWith(const Baseline& baseline, const Results& now) {
  if (!baseline.results) return absl::OkStatus();
  if (const std::string differs = WhatDiffers(*baseline.results, now); !differs.empty()) {
    return absl::FailedPreconditionError("not compared with the baseline: " + differs);
  }
  std::vector<std::string> worse;
  for (const Regression& regression : Regressions(*baseline.results, now, baseline.max_regression)) {
    worse.push_back(Describe(regression));
  }
  return worse.empty() ? absl::OkStatus() : absl::FailedPreconditionError(absl::StrJoin(worse, "; "));
}

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
    must_not_fall("highest rate that met the objective, calls/s", *baseline.highest_rate, *now.highest_rate);
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

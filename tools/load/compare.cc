#include "tools/load/compare.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

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
  const auto searched = [](const Results& results) { return results.steps[0].tries > 0; };
  if (searched(before) != searched(now)) return "only one of the two runs is a search";
  const auto same = [](const Step& a, const Step& b) { return a.name == b.name; };
  if (!searched(now) &&
      !std::equal(before.steps.begin(), before.steps.end(), now.steps.begin(), now.steps.end(), same)) {
    return "the baseline has different steps";
  }
  return "";
}

// Figures that a caller sees; smaller is better except for the throughput.
void Add(const std::string& step, const Measurement& before, const Figures& before_figures, const Measurement& now,
         const Figures& now_figures, BaselineVerdict* comparison) {
  const double tolerated = comparison->tolerated;
  const auto add = [&](std::string figure, double was, double is, bool worse) {
    comparison->figures.push_back({step, std::move(figure), was, is, worse});
  };
  const auto must_not_grow = [&](std::string figure, double was, double is) {
    add(std::move(figure), was, is, is > was * (1 + tolerated));
  };
  for (const auto& [name, percentile] : kPercentiles) {
    if (percentile != 50 && percentile != 99 && percentile != 99.9) continue;
    if (!IsKnown(before.latency, percentile) || !IsKnown(now.latency, percentile)) continue;
    must_not_grow(fmt::format("{} latency, ms", name),
                  static_cast<double>(before.latency.Percentile(percentile)) / 1000,
                  static_cast<double>(now.latency.Percentile(percentile)) / 1000);
  }
  const double was = before_figures.achieved_per_second, is = now_figures.achieved_per_second;
  add("throughput, calls/s", was, is, is < was * (1 - tolerated));
  must_not_grow("errors, share of calls", before_figures.failed_share, now_figures.failed_share);
  must_not_grow("skipped, share of calls", before_figures.skipped_share, now_figures.skipped_share);
}

}  // namespace

BaselineVerdict Compare(const Baseline& baseline, const Results& now) {
  const Results& before = *baseline.results;
  BaselineVerdict comparison{
      .baseline = baseline.file, .begin_time = before.begin_time, .tolerated = baseline.max_regression};
  comparison.impossible = WhatDiffers(before, now);
  if (!comparison.impossible.empty()) return comparison;
  if (before.highest_rate && now.highest_rate) {
    const double was = *before.highest_rate, is = *now.highest_rate;
    comparison.figures.push_back(
        {"", "highest rate that met the objective, calls/s", was, is, is < was * (1 - baseline.max_regression)});
  } else if (now.stepped()) {
    for (size_t i = 0; i < now.steps.size(); ++i) {
      Add(now.steps[i].name, before.steps[i].measured, FiguresOf(before.steps[i], 0), now.steps[i].measured,
          FiguresOf(now.steps[i], 0), &comparison);
    }
  } else {
    Add("", before.total, FiguresOf(before), now.total, FiguresOf(now), &comparison);
  }
  return comparison;
}

const char* VerdictOf(const BaselineVerdict& comparison) {
  if (!comparison.impossible.empty()) return "not compared";
  return comparison.worse() ? "worse" : "no worse";
}

std::string Describe(const ComparedFigure& figure) {
  std::string text = fmt::format("{}{}{}: was {:.4g}, is {:.4g}", figure.step, figure.step.empty() ? "" : ": ",
                                 figure.figure, figure.before, figure.after);
  if (figure.before <= 0) return text;
  const double ratio = figure.after / figure.before;
  return fmt::format("{} ({:.1f} % {})", text, 100 * std::abs(ratio - 1), ratio > 1 ? "more" : "less");
}

absl::Status ToStatus(const BaselineVerdict& comparison) {
  if (!comparison.impossible.empty()) {
    return absl::FailedPreconditionError("not compared with the baseline: " + comparison.impossible);
  }
  std::vector<std::string> worse;
  for (const ComparedFigure& figure : comparison.figures) {
    if (figure.worse) worse.push_back(Describe(figure));
  }
  return worse.empty() ? absl::OkStatus()
                       : absl::FailedPreconditionError("worse than the baseline: " + absl::StrJoin(worse, "; "));
}

}  // namespace posenc::load

// Compares a run with an earlier one to detect regressions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/load/results.h"

namespace posenc::load {

// A figure that is worse than in the baseline.
struct Regression {
  std::string figure;  // "p99 latency, ms"
  double before = 0, after = 0;
  double ratio = 0;  // after / before; infinite if before is 0
};

// Figures that are worse than the baseline's by more than this share (0.05 is 5 %): p50, p99 and p99.9 latency,
// successful calls per second, and the share of calls that failed or were skipped (any, if the baseline had none). For
// two searches only the highest rate: their other figures depend on the rates that they tried.
std::vector<Regression> Regressions(const Results& baseline, const Results& now, double max_regression);

// An earlier run, absent if there is none, and the allowed regression as a share.
struct Baseline {
  std::optional<Results> results;
  double max_regression = 0;
};
// Returns FAILED_PRECONDITION with the figures that are worse, or with the reason why the runs cannot be compared:
// different mixes (apart from the seed) or steps, a search against a run without one, an interrupted run.
absl::Status CompareWith(const Baseline& baseline, const Results& now);

// One line without a newline: "p99 latency, ms: was 1.2, is 1.5 (25.0 % more)".
std::string Describe(const Regression& regression);

}  // namespace posenc::load

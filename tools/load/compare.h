// Whether a run is worse than one before it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/load/results.h"

namespace posenc::load {

// A figure that is worse than it was.
struct Regression {
  std::string figure;  // "p99 latency, ms"
  double before = 0, after = 0;
  double ratio = 0;  // after / before; infinite where there was nothing before
};

// The figures that are worse than the baseline's by more than this share of it (0.05 is 5 %): p50, p99 and p99.9 of
// latency, calls a second that succeeded, and the share of calls that failed or were skipped: any, where the baseline
// had none. Of two searches, the highest rate alone: what else they measured depends on the rates that they tried.
std::vector<Regression> Regressions(const Results& baseline, const Results& now, double max_regression);

// A run that this one must not be worse than.
struct Baseline {
  std::optional<Results> results;
  double max_regression = 0;
};
// FAILED_PRECONDITION names the figures that are worse, or why the two cannot be compared: another mix (but for its
// seed), other steps, a search beside none, a run that was interrupted.
absl::Status CompareWith(const Baseline& baseline, const Results& now);

// A line, without its end: "p99 latency, ms: was 1.2, is 1.5 (25.0 % more)".
std::string Describe(const Regression& regression);

}  // namespace posenc::load

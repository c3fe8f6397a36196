// Compares a run with an earlier one to detect regressions.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tools/load/results.h"

namespace posenc::load {

// An earlier run and the tolerated regression as a share (0.05 is 5 %); `results` is absent if there is none.
struct Baseline {
  std::optional<Results> results;
  std::string file;
  double max_regression = 0;
};

// Compares p50, p99 and p99.9 latency, as far as enough calls stand behind them in both runs, successful calls per
// second, and the shares of calls that failed and that were skipped (any is too many if the baseline had none): of each
// step if there are several. Compares only the highest rates of two searches, because their other figures depend on the
// rates that they tried. `impossible` is set for different mixes (apart from the seed) or steps, a search and another
// run, and interrupted runs.
BaselineVerdict Compare(const Baseline& baseline, const Results& now);

// "worse", "no worse" or "not compared".
const char* VerdictOf(const BaselineVerdict& comparison);

// One line without a newline: "400/s: p99 latency, ms: was 1.2, is 1.5 (25.0 % more)".
std::string Describe(const ComparedFigure& figure);

// OK if the verdict is "no worse", otherwise FAILED_PRECONDITION with the figures that are worse or the reason.
absl::Status ToStatus(const BaselineVerdict& comparison);

}  // namespace posenc::load

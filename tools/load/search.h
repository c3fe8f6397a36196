// Search for the highest rate at which an objective is met.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/load/results.h"

namespace posenc::load {

// Limits such as "p99=5ms", separated by commas: percentiles, and "max", of the service time. Service time counts from
// a call's actual start, so it does not contain what the client was late.
struct Objective {
  struct Limit {
    double percentile;  // 0 .. 100
    int64_t microseconds;
  };
  std::vector<Limit> limits;
  double max_failures = 0.001;  // share of the intended calls

  // Sets step.held, step.late and step.late_allowed of results.steps[0] from the seconds of the timeline. A call that
  // failed or was skipped counts as over every limit. `held` stays absent while the confidence interval of the share
  // of calls over a limit contains the share that the limit allows, and no other limit is clearly missed.
  void Judge(Results* results) const;
};
absl::StatusOr<Objective> ParseObjective(const std::string& text);

// Calls of one second, and how many of them were over a limit.
struct Cluster {
  double calls, over;
};
// The 99 % interval of the share of calls over a limit (Wilson). Calls of one second share their fate, in a pause of
// the machine for example, so they count for fewer independent ones: as many as the differences between seconds
// suggest.
Interval ShareOver(const std::vector<Cluster>& seconds);

struct SearchOptions {
  static constexpr double kLeastRate = 0.1, kMostRate = 1e6;  // range of tried rates, calls per second

  double first_rate = 100;  // calls per second
  double most_rate = kMostRate;
  double precision = 0.05;  // relative precision of the result
  int64_t most_tries = 5;   // per rate
  double seconds = 0;  // planned duration of a try; a try that took 1 % longer did not offer its rate. 0: unlimited
};

// Rounds to a multiple of 5 in the third significant digit, so that rates are easy to read.
double RoundRate(double rate);

// Runs one try at a rate and returns its step. Absent: the search must end.
using Try = std::function<absl::StatusOr<std::optional<Results>>(double rate)>;

// Rates in calls per second; 0: none.
struct Found {
  double highest_met = 0, lowest_missed = 0;
};

// Tries a rate until the verdict is clear, at most `most_tries` times; it takes one try to meet the objective and three
// to miss it narrowly. Doubles the rate until it misses the objective,
// or, if the first one misses it, halves it until it meets it; then bisects both ends of the range between the highest
// rate that met the objective and the lowest that missed it, until the range is as narrow as `precision`, or the rates
// within it stay unclear. Calls `seen` for each rate with its merged tries, judged.
absl::StatusOr<Found> SearchRate(const Objective& objective, const SearchOptions& options, const Try& run,
                                 const std::function<void(Results)>& seen);

}  // namespace posenc::load

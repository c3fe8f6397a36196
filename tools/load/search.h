// The highest rate at which an objective is met.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/load/results.h"

namespace posenc::load {

// "p99=5ms", several separated by commas: percentiles of latency, from the intended start, and "max".
struct Objective {
  struct Limit {
    double percentile;  // 0 .. 100
    int64_t microseconds;
  };
  std::vector<Limit> limits;
  double max_failures = 0.001;  // share of the calls that were intended
  double seconds = 0;           // that a step is to take; 0: however long it takes

  // And its calls were started within that time and a hundredth more: else the rate was not offered, and nothing is
  // known of the server at it.
  bool Met(const Step& step) const;
};
absl::StatusOr<Objective> ParseObjective(const std::string& text);

struct SearchOptions {
  static constexpr double kLeastRate = 0.1, kMostRate = 1e6;  // that are tried, calls a second

  double first_rate = 100;  // calls a second
  double most_rate = kMostRate;
  double precision = 0.05;  // share of the rate to which the answer is wanted
};

// Runs a try at a rate; its step is filled but for `held`. Absent: the search is to end.
using Try = std::function<absl::StatusOr<std::optional<Results>>(double rate)>;

// Doubles the rate until the objective is missed (halves it first, if the first try missed it), then halves the
// interval. Calls `seen` with each try, its step's `held` filled. The highest rate that held; 0: none did.
absl::StatusOr<double> SearchRate(const Objective& objective, const SearchOptions& options, const Try& run,
                                  const std::function<void(Results)>& seen);

}  // namespace posenc::load

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

// Limits such as "p99=5ms", separated by commas: percentiles of latency, from the intended start, and "max".
struct Objective {
  struct Limit {
    double percentile;  // 0 .. 100
    int64_t microseconds;
  };
  std::vector<Limit> limits;
  double max_failures = 0.001;  // share of the intended calls
  double seconds = 0;           // planned duration of a step; 0 if unlimited

  // True if the step is within all limits and its calls started within 1.01 * `seconds`. A longer step did not offer
  // the rate and says nothing about the server at it.
  bool Met(const Step& step) const;
};
absl::StatusOr<Objective> ParseObjective(const std::string& text);

struct SearchOptions {
  static constexpr double kLeastRate = 0.1, kMostRate = 1e6;  // range of tried rates, calls per second

  double first_rate = 100;  // calls per second
  double most_rate = kMostRate;
  double precision = 0.05;  // relative precision of the result
};

// Runs one try at a rate and returns its step with `held` unset. Absent: the search must end.
using Try = std::function<absl::StatusOr<std::optional<Results>>(double rate)>;

// Doubles the rate until the objective is missed, or, if the first try missed it, halves it until it is met; then
// bisects. Calls `seen` after each try with `held` set. Returns the highest rate that met the objective; 0 if none did.
absl::StatusOr<double> SearchRate(const Objective& objective, const SearchOptions& options, const Try& run,
                                  const std::function<void(Results)>& seen);

}  // namespace posenc::load

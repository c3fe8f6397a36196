// Start times of calls: a pure function of the flags and a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace posenc::load {

enum class ArrivalKind { kConstant, kPoisson };

// Plan of one step of a run. An open loop (rate > 0) starts calls at scheduled times, regardless of earlier calls; a
// closed loop (concurrency > 0) keeps that many in flight.
struct StepPlan {
  std::string name;     // "1000/s", "100..1000/s", "concurrency 8"
  double rate = 0;      // calls per second at the beginning
  double end_rate = 0;  // calls per second at the end; differs from `rate` in a ramp
  int64_t concurrency = 0;
  double seconds = 0;  // 0: until `count` have started
  int64_t count = 0;   // 0: until `seconds` have passed
  ArrivalKind arrivals = ArrivalKind::kConstant;
  bool warm_up = false;
  uint64_t seed = 0;  // seed of start times and choice of calls

  bool open_loop() const { return rate > 0; }
  // Requested calls per second at a time within the step.
  double RateAt(double second) const;
  // Requested calls between two times, `count` at most; 0 in a closed loop.
  double CallsBetween(double begin, double end) const;
  // Mean calls per second over the step.
  double MeanRate() const { return (rate + end_rate) / 2; }
};

// One process's part of the calls: each `of`-th, so that all processes together make the calls of one process alone.
struct Share {
  int64_t index = 0, of = 1;
};

struct Arrival {
  int64_t number;  // index among the step's calls of all processes
  double seconds;  // since the step's beginning
};

// The intended starts of an open loop for one process, in order.
class Arrivals {
 public:
  Arrivals(const StepPlan& plan, Share share) : plan_(plan), share_(share) {}
  // The next start; absent if there are no more.
  std::optional<Arrival> Next();

 private:
  const StepPlan plan_;
  const Share share_;
  int64_t number_ = 0;
  double expected_ = 0;  // integral of the rate up to the next call
};

struct ScheduleFlags {
  std::string rate;         // "1000", steps "100,200,400", or ramps "100..1000"
  std::string concurrency;  // "8", or steps "1,2,4"
  double seconds = 0;       // per step
  int64_t count = 0;        // per step
  double warm_up_seconds = 0;
  ArrivalKind arrivals = ArrivalKind::kConstant;
  uint64_t seed = 0;
};

// The optional warm-up runs at the first step's initial rate or concurrency. Returns INVALID_ARGUMENT if the flags are
// no valid schedule.
absl::StatusOr<std::vector<StepPlan>> PlanSteps(const ScheduleFlags& flags);

// Plan of an open-loop step at a constant rate.
StepPlan StepAt(double rate, double seconds, ArrivalKind arrivals, uint64_t seed);

}  // namespace posenc::load

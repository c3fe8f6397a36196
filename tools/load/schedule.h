// When calls are to start: a pure function of what was asked and a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace posenc::load {

enum class ArrivalKind { kConstant, kPoisson };

// A part of a run. An open loop (rate > 0) starts calls at their times, whatever became of those before; a closed loop
// (concurrency > 0) keeps so many in flight.
struct StepPlan {
  std::string name;     // "1000/s", "100..1000/s", "concurrency 8"
  double rate = 0;      // calls a second, at the beginning
  double end_rate = 0;  // and at the end; the same but in a ramp
  int64_t concurrency = 0;
  double seconds = 0;  // 0: until `count` have started
  int64_t count = 0;   // 0: until `seconds` have passed
  ArrivalKind arrivals = ArrivalKind::kConstant;
  bool warm_up = false;
  uint64_t seed = 0;  // of times, and of what is called

  bool open_loop() const { return rate > 0; }
  // Calls a second that are asked for at a time within the step.
  double RateAt(double second) const;
  // Calls that are asked for between two times, of `count` at most; 0 in a closed loop.
  double CallsBetween(double begin, double end) const;
  // On average over the step.
  double MeanRate() const { return (rate + end_rate) / 2; }
};

// One of several processes takes each `of`-th call, so that together they do what one alone would.
struct Share {
  int64_t index = 0, of = 1;
};

struct Arrival {
  int64_t number;  // of the step's calls, of all processes
  double seconds;  // since the step's beginning
};

// The intended starts of an open loop, in order.
class Arrivals {
 public:
  Arrivals(const StepPlan& plan, Share share) : plan_(plan), share_(share) {}
  // Absent: there are no more.
  std::optional<Arrival> Next();

 private:
  const StepPlan plan_;
  const Share share_;
  int64_t number_ = 0;
  double expected_ = 0;  // how many the rate has brought at the next one's time
};

struct ScheduleFlags {
  std::string rate;         // "1000", steps "100,200,400", or ramps "100..1000"
  std::string concurrency;  // "8", or steps "1,2,4"
  double seconds = 0;       // of each step
  int64_t count = 0;        // of each step
  double warm_up_seconds = 0;
  ArrivalKind arrivals = ArrivalKind::kConstant;
  uint64_t seed = 0;
};

// The warm-up, if there is one, is as the first step begins. INVALID_ARGUMENT where the flags make no schedule.
absl::StatusOr<std::vector<StepPlan>> PlanSteps(const ScheduleFlags& flags);

// One step of an open loop at a steady rate.
StepPlan StepAt(double rate, double seconds, ArrivalKind arrivals, uint64_t seed);

}  // namespace posenc::load

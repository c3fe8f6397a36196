// Counts the calls of one step. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/load/exchange.h"
#include "tools/load/progress.h"
#include "tools/load/results.h"
#include "tools/load/schedule.h"

namespace posenc::load {

// One call that ended.
struct Ended {
  double intended = 0;  // seconds since the step's beginning
  double at = 0;        // end of the call, seconds since the step's beginning
  int64_t latency_us = 0, late_us = 0, service_us = 0;
  int64_t send_wait_us = -1;  // negative if not measured
  ServerTimes server;
  int64_t request_bytes = 0, answer_bytes = 0;
  std::string error;  // empty if the call succeeded
};

class Collector {
 public:
  Collector(const StepPlan& plan, Progress* progress) : plan_(plan), progress_(progress) {}

  void Skip(double intended);
  // `intended`: seconds since the step's beginning; the call starts `late_us` after it.
  void Start(double intended, double late_us);
  // Says that a call's answer, or the lack of one, is known. Precedes End, which waits for the answer's verification.
  void Answer(double at, bool answered);
  void End(const Ended& call);
  void Verified(const std::optional<Mismatch>& mismatch);
  void NotVerified();

  // Seconds from the step's beginning to the end of its last call; 0 if there was none.
  double last_end();

  // Moves out the results of the ended step, which took `seconds`: one step and its timeline, without the run's totals.
  // Calls that have not ended count as DEADLINE_EXCEEDED. What is said of them later is ignored.
  Results Take(double seconds);

 private:
  Second& At(double intended);

  const StepPlan plan_;
  Progress* const progress_;
  std::mutex mutex_;
  Results results_;
  Histogram late_;
  Measurement measured_;
  double last_end_ = 0, last_success_ = 0;  // seconds since the step's beginning
  std::vector<int64_t> completed_;          // successful calls by the second of their end
  std::vector<int64_t> open_;               // calls that have not ended, by the second of their intended start
  bool taken_ = false;

  // Calls without an answer, and the time since when there are some and none was answered.
  int64_t unanswered_ = 0;
  std::optional<double> waiting_since_;
  std::vector<Stall> waits_;  // of at least kLeastStall
};

}  // namespace posenc::load

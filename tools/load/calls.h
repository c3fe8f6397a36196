// Makes the calls of a mix asynchronously, many in flight per thread, and counts their outcomes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/load/clock.h"
#include "tools/load/collector.h"
#include "tools/load/connections.h"
#include "tools/load/mix.h"
#include "tools/load/requests.h"
#include "tools/load/runner.h"
#include "tools/load/verifier.h"

namespace posenc::load {

// A running step.
struct StepRun {
  StepRun(const StepPlan& p, const StepPlan& own, Progress* progress) : plan(p), collector(own, progress) {}

  // Blocks until all calls of the step have ended and those chosen for verification have been verified.
  void Wait();

  const StepPlan& plan;
  Collector collector;
  Clock::time_point begin;
  std::function<void()> one_ended;  // called after each call if set, on any thread; may begin another call
  std::atomic<int64_t> in_flight = 0, most_in_flight = 0;
  std::mutex mutex;
  std::condition_variable ended;
  int64_t open = 0;  // calls in flight or being verified; guarded by mutex
};

class Calls {
 public:
  // Connects. Returns UNAVAILABLE naming a server that cannot be reached, INVALID_ARGUMENT if the mix is invalid.
  static absl::StatusOr<std::unique_ptr<Calls>> Create(const Mix& mix, const RunnerOptions& options);

  // Starts call `number` of the step, or counts it as skipped. `intended`: seconds since the step's beginning; absent
  // in a closed loop, where the actual start is the intended one. Thread-safe.
  void Begin(StepRun& run, int64_t number, std::optional<double> intended);

  // Processor time used so far by each completion-queue thread, in seconds.
  std::vector<double> CpuSeconds() const { return connections_->CpuSeconds(); }

 private:
  struct Flight;

  Calls(const Mix& mix, const RunnerOptions& options) : options_(options), chooser_(mix) {}
  absl::Status Prepare(const Mix& mix);
  void Done(std::unique_ptr<Flight> flight);

  const RunnerOptions options_;
  const Chooser chooser_;
  std::vector<Requests> requests_;
  std::unique_ptr<Verifier> verifier_;
  std::unique_ptr<Connections> connections_;  // destroyed first: its threads use the other members
};

}  // namespace posenc::load

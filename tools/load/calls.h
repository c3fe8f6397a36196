// Makes the calls of a mix, many in flight without a thread each, and counts how they end.
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

// A step under way.
struct StepRun {
  StepRun(const StepPlan& p, const StepPlan& own, Progress* progress) : plan(p), collector(own, progress) {}

  // Until all its calls have ended, and those that are to be verified have been.
  void Wait();

  const StepPlan& plan;
  Collector collector;
  Clock::time_point begin;
  std::function<void()> one_ended;  // may begin another; where it is set, on any thread
  std::atomic<int64_t> in_flight = 0, most_in_flight = 0;
  std::mutex mutex;
  std::condition_variable ended;
  int64_t open = 0;  // calls in flight or being verified
};

class Calls {
 public:
  // Connects; UNAVAILABLE names a server that is not there, INVALID_ARGUMENT what is wrong with the mix.
  static absl::StatusOr<std::unique_ptr<Calls>> Create(const Mix& mix, const RunnerOptions& options);

  // Starts the step's call of this number, or counts it as skipped. `intended`: seconds since the step's beginning;
  // absent in a closed loop, which intends what it does.
  void Begin(StepRun& run, int64_t number, std::optional<double> intended);

  // Processor time of each thread that reads answers so far, in seconds.
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
  std::unique_ptr<Connections> connections_;  // ends first: its threads use the rest
};

}  // namespace posenc::load

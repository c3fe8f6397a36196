// Makes the calls of a mix asynchronously, many in flight per thread, and counts their outcomes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
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

// A running step. Its calls share its ownership, because an abandoned call ends after the step.
struct StepRun {
  StepRun(const StepPlan& p, const StepPlan& own, const std::atomic<bool>& s, Progress* progress)
      : plan(p), stop(s), collector(own, progress) {}

  const StepPlan plan;
  const std::atomic<bool>& stop;  // set by an interrupt
  Collector collector;
  Clock::time_point begin;
  std::atomic<int64_t> next = 0;  // closed loop: counts this process's calls
  std::atomic<int64_t> in_flight = 0, most_in_flight = 0;
  std::atomic<bool> over = false;  // no call begins any more
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  int64_t open = 0;  // calls in flight or being verified
  Clock::time_point last_began;
  std::deque<Clock::time_point> paused;  // closed loop: when the callers whose last call was UNAVAILABLE go on
};

class Calls {
 public:
  // Connects. Returns UNAVAILABLE naming a server that cannot be reached, INVALID_ARGUMENT if the mix is invalid.
  static absl::StatusOr<std::unique_ptr<Calls>> Create(const Mix& mix, const RunnerOptions& options);

  // Starts call `number` of the step, or counts it as skipped. `intended`: seconds since the step's beginning; absent
  // in a closed loop, where the actual start is the intended one. Thread-safe.
  void Begin(const std::shared_ptr<StepRun>& run, int64_t number, std::optional<double> intended);
  // Closed loop: starts the step's next call, unless all have been started. Each call starts the next when it ends.
  // Thread-safe.
  void BeginNext(const std::shared_ptr<StepRun>& run);
  // Blocks until all calls of the step have ended and those chosen for verification have been verified. Abandons calls
  // that have not ended a few seconds after the deadline of the last one: gRPC ends no call whose bytes are stuck in a
  // connection that the server does not read. Returns how many it abandoned. The destructor would wait for them.
  int64_t Wait(const std::shared_ptr<StepRun>& run);

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

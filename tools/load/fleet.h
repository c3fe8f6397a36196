// One or several client processes that share the calls of a load test.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

#include "absl/status/statusor.h"
#include "tools/load/mix.h"
#include "tools/load/progress.h"
#include "tools/load/results.h"
#include "tools/load/runner.h"
#include "tools/load/schedule.h"

namespace posenc::load {

// Memory that the processes share while they run.
struct Shared {
  static constexpr size_t kMostProcesses = 64;

  std::atomic<bool> stop = false;
  Progress progress[kMostProcesses];
};
static_assert(std::atomic<bool>::is_always_lock_free);

class Fleet {
 public:
  // With one process, this process makes the calls. With more, that many are forked: this process must not have used
  // gRPC or started threads before.
  static absl::StatusOr<std::unique_ptr<Fleet>> Create(const Mix& mix, const RunnerOptions& options, size_t processes);
  virtual ~Fleet() = default;

  // Runs one step in all processes. Returns the first error of any.
  virtual absl::StatusOr<Results> Run(const StepPlan& plan) = 0;

  Shared& shared() { return *shared_; }

 protected:
  explicit Fleet(Shared* shared) : shared_(shared) {}

 private:
  Shared* const shared_;  // never unmapped
};

}  // namespace posenc::load

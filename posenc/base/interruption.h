// Cooperative interruption of computations whose length depends on a request.
//
// An InterruptionScope sets the cancellation for which the current thread computes. InterruptionPoint() throws
// ComputationStopped once that is no longer OK (deadline passed, call cancelled). It may be called anywhere; without a
// scope it does nothing. WorkPool::ParallelFor propagates the scope to helper threads, and RunInterruptibly() turns the
// exception into a status at the top of a call. docs/adr/0015-interruption.md explains why this is an exception.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"

namespace posenc {

// Returns OK while the result is still wanted, else the status to stop with (CANCELLED, DEADLINE_EXCEEDED).
// Thread-safe. Takes some 50 ns.
using Cancellation = std::function<absl::Status()>;

inline absl::Status NeverCancelled() { return absl::OkStatus(); }

// Thrown by InterruptionPoint() when a computation is stopped before its result is complete.
class ComputationStopped : public std::exception {
 public:
  explicit ComputationStopped(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return "computation stopped"; }

 private:
  absl::Status status_;
};

// RAII scope that sets the cancellation of the current thread; the innermost scope applies. `cancelled` must outlive
// it. Null: no interruption.
class InterruptionScope {
 public:
  explicit InterruptionScope(const Cancellation* cancelled);
  ~InterruptionScope();
  InterruptionScope(const InterruptionScope&) = delete;
  InterruptionScope& operator=(const InterruptionScope&) = delete;
  // The current scope's cancellation, or null.
  static const Cancellation* Current();

 private:
  const Cancellation* const outer_;
};

// Throws ComputationStopped if the current scope's cancellation is not OK. Loops that depend on a request's sizes or
// values should call it every millisecond.
void InterruptionPoint();

// Calls InterruptionPoint() at every 65,536th step n = 0, 1, ... of a loop whose steps take nanoseconds.
inline void InterruptionPointOfStep(int64_t n) {
  if (n % 65536 == 0) InterruptionPoint();
}

// RAII scope of a thread that waits for other threads' computations for at most this time from now: SharedCache::Get()
// then throws ComputationStopped with WouldBlock().
class WaitingLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit WaitingLimit(std::optional<std::chrono::milliseconds> time);  // nullopt: any time
  ~WaitingLimit();
  WaitingLimit(const WaitingLimit&) = delete;
  WaitingLimit& operator=(const WaitingLimit&) = delete;
  // True within such a scope of the current thread, once its time is over.
  static bool IsOver();

 private:
  const Clock::time_point outer_;
};

// A Cancellation asks what its thread does before it counts a step or lets others compute.
enum class Activity {
  kComputing,  // without a scope
  kAwaited,    // computes what other threads may wait for, so it lets no other task run on its stack
  kWaiting,    // waits for other threads, which is no step
};

// RAII scope.
class ActivityScope {
 public:
  explicit ActivityScope(Activity activity);
  ~ActivityScope();
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;
  static Activity Current();  // the innermost scope's
  // True within a scope of kAwaited, also where the awaited computation itself waits for another one.
  static bool IsAwaited();

 private:
  const Activity outer_;
  const bool outer_is_awaited_;
};

// Calls work() in an InterruptionScope for `cancelled`. Returns its result, or the status of ComputationStopped.
template <class Work>
auto RunInterruptibly(const Cancellation& cancelled, Work&& work) -> decltype(work()) {
  const InterruptionScope scope(&cancelled);
  try {
    return work();
  } catch (const ComputationStopped& stopped) {
    return stopped.status();
  }
}

}  // namespace posenc

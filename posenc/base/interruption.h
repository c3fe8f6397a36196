// Cooperative interruption of computations whose length depends on a request.
//
// An InterruptionScope says on whose behalf the current thread computes. InterruptionPoint() throws ComputationStopped
// once that caller has given up (deadline passed, call cancelled). It may be called anywhere; without a scope it does
// nothing. WorkPool::ParallelFor carries the scope to the threads that help, and RunInterruptibly() turns the exception
// into a status at the top of a call. docs/adr/0015-interruption.md says why this is an exception.
#pragma once

#include <exception>
#include <functional>
#include <utility>

#include "absl/status/status.h"

namespace posenc {

// Returns OK while the result is still wanted, else the status to stop with (CANCELLED, DEADLINE_EXCEEDED).
// Thread-safe. Takes some 50 ns.
using Cancellation = std::function<absl::Status()>;

inline absl::Status NeverCancelled() { return absl::OkStatus(); }

// A computation ended before its result was there.
class ComputationStopped : public std::exception {
 public:
  explicit ComputationStopped(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return "computation stopped"; }

 private:
  absl::Status status_;
};

// Sets the cancellation that interrupts the current thread, until the scope ends; the innermost scope counts.
// `cancelled` must outlive it. Null: nothing interrupts.
class InterruptionScope {
 public:
  explicit InterruptionScope(const Cancellation* cancelled);
  ~InterruptionScope();
  InterruptionScope(const InterruptionScope&) = delete;
  InterruptionScope& operator=(const InterruptionScope&) = delete;

 private:
  const Cancellation* const outer_;
};

// Throws ComputationStopped if the current scope's caller has given up. Loops that depend on a request's sizes or
// values should call it every millisecond.
void InterruptionPoint();

// Calls work() with a scope for `cancelled`. Returns its result, or the status with which it was stopped.
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

// Trying again: exponential backoff with jitter, bounded by attempts and by a deadline. Knows nothing of gRPC.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace posenc {

using Duration = std::chrono::nanoseconds;

struct RetryPolicy {
  int max_attempts = 5;  // the first included; 1: never again
  Duration initial_backoff = std::chrono::milliseconds(100);
  Duration max_backoff = std::chrono::seconds(5);
  double multiplier = 2;
  double jitter = 0.2;  // a wait is the backoff times 1 - jitter .. 1 + jitter, so that clients do not return together
};

// Time and chance, so that tests can supply their own.
struct RetryEnvironment {
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<void(Duration)> sleep;
  std::function<double()> random;  // uniform in [0, 1)
};
RetryEnvironment SystemRetryEnvironment();

// How one attempt ended.
struct Attempt {
  absl::Status status;
  // False where nothing but the status speaks against another try, e.g. after part of a stream was consumed.
  bool repeatable = true;
  // The server's word on when to come back, in milliseconds; negative: never.
  std::optional<int64_t> pushback_ms;
  // Something was achieved, from which the next attempt goes on: attempts and backoff are counted from here.
  bool progressed = false;
};

// Calls `attempt` with the time that is left until an attempt ends with anything but UNAVAILABLE, the attempts are used
// up, the server forbids more, or the next wait would outlast `timeout`; returns the last attempt's status.
// A push-back replaces the wait and starts the backoff anew.
absl::Status Retry(const RetryPolicy& policy, const RetryEnvironment& environment, Duration timeout,
                   absl::FunctionRef<Attempt(Duration remaining)> attempt);

}  // namespace posenc

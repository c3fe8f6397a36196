// Retries: exponential backoff with jitter, bounded by attempts and by a deadline. Independent of gRPC.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "posenc/backend/backend.h"

namespace posenc {

struct RetryPolicy {
  int max_attempts = 5;  // including the first; 1: no retries
  Duration initial_backoff = std::chrono::milliseconds(100);
  Duration max_backoff = std::chrono::seconds(5);
  double multiplier = 4;  // the waits of five attempts add up to 7 seconds, which outlast a restart of the server
  double jitter = 0.2;    // a wait is backoff * (1 - jitter .. 1 + jitter), so that clients do not retry together
};

// Clock, sleep and random numbers, replaceable in tests.
struct RetryEnvironment {
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<void(Duration)> sleep;
  std::function<double()> random;  // uniform in [0, 1)
};
RetryEnvironment SystemRetryEnvironment();

// Result of one attempt.
struct Attempt {
  absl::Status status;
  // False forbids another attempt whatever the status is, e.g. after part of a stream was consumed.
  bool repeatable = true;
  // The server's push-back: milliseconds to wait; negative: do not retry.
  std::optional<int64_t> pushback_ms;
  // The attempt made progress from which the next one continues: attempts and backoff start over.
  bool progressed = false;
  // The server says that work on the request had not begun.
  bool not_started = false;
};

// Calls `attempt` with the remaining time until an attempt is not repeatable or ends with anything but UNAVAILABLE, the
// attempts are used up, the server forbids more, or the next wait would outlast `timeout`. Returns the last attempt's
// status. A push-back replaces the wait and restarts the backoff.
absl::Status Retry(const RetryPolicy& policy, const RetryEnvironment& environment, Duration timeout,
                   absl::FunctionRef<Attempt(Duration remaining)> attempt);

}  // namespace posenc

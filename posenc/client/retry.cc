#include "posenc/client/retry.h"

#include <algorithm>
#include <random>
#include <thread>

namespace posenc {
namespace {

// Longer durations mean no limit. The bound keeps the products below within 64 bits.
constexpr Duration kLongestWait = std::chrono::hours(24 * 365);

Duration Scale(Duration duration, double factor) {
  const double scaled = static_cast<double>(duration.count()) * factor;
  return scaled < static_cast<double>(kLongestWait.count()) ? Duration(static_cast<int64_t>(scaled)) : kLongestWait;
}

}  // namespace

RetryEnvironment SystemRetryEnvironment() {
  return {
      .now = [] { return std::chrono::steady_clock::now(); },
      .sleep = [](Duration duration) { std::this_thread::sleep_for(duration); },
      .random =
          [] {
            thread_local std::minstd_rand generator(std::random_device{}());
            return std::uniform_real_distribution<double>(0, 1)(generator);
          },
  };
}

absl::Status Retry(const RetryPolicy& policy, const RetryEnvironment& environment, Duration timeout,
                   absl::FunctionRef<Attempt(Duration remaining)> attempt) {
  const auto start = environment.now();
  Duration remaining = timeout;
  Duration backoff = policy.initial_backoff;
  for (int number = 1;; ++number) {
    const Attempt ended = attempt(remaining);
    if (ended.progressed) {
      number = 1;
      backoff = policy.initial_backoff;
    }
    if (!absl::IsUnavailable(ended.status) || !ended.repeatable || number >= policy.max_attempts) return ended.status;

    Duration wait;
    if (ended.pushback_ms) {
      if (*ended.pushback_ms < 0) return ended.status;
      wait = Scale(std::chrono::milliseconds(1), static_cast<double>(*ended.pushback_ms));
      backoff = policy.initial_backoff;
    } else {
      wait = Scale(backoff, 1 + policy.jitter * (2 * environment.random() - 1));
      backoff = std::min(Scale(backoff, policy.multiplier), policy.max_backoff);
    }
    // Sleeping past the deadline would only replace a specific error by DEADLINE_EXCEEDED.
    if (wait >= timeout - (environment.now() - start)) return ended.status;
    environment.sleep(wait);
    remaining = timeout - (environment.now() - start);
    if (remaining <= Duration::zero()) return ended.status;
  }
}

}  // namespace posenc

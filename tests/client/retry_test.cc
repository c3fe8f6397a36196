#include "posenc/client/retry.h"

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace posenc::retry_test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

// Time that passes only in sleep() and Pass().
class FakeTime {
 public:
  RetryEnvironment environment() {
    return {.now = [this] { return now_; },
            .sleep =
                [this](Duration duration) {
                  sleeps.push_back(duration);
                  now_ += duration;
                },
            .random = [this] { return random; }};
  }
  void Pass(Duration duration) { now_ += duration; }

  std::vector<Duration> sleeps;
  double random = 0.5;  // the middle of the range: no jitter

 private:
  std::chrono::steady_clock::time_point now_;
};

Attempt Unavailable() { return {absl::UnavailableError("busy"), true, std::nullopt}; }
Attempt PushedBack(int64_t milliseconds) { return {absl::UnavailableError("busy"), true, milliseconds}; }
Attempt Succeeded() { return {absl::OkStatus(), true, std::nullopt}; }

constexpr RetryPolicy kPolicy{
    .max_attempts = 5, .initial_backoff = 100ms, .max_backoff = 300ms, .multiplier = 2, .jitter = 0.2};

TEST(Retry, BacksOffExponentiallyUpToTheMaximum) {
  FakeTime time;
  int attempts = 0;
  const absl::Status status = Retry(kPolicy, time.environment(), 60s, [&](Duration) {
    ++attempts;
    return Unavailable();
  });
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(attempts, 5);
  EXPECT_THAT(time.sleeps, ElementsAre(100ms, 200ms, 300ms, 300ms));
}

TEST(Retry, ProgressIsANewBeginning) {
  FakeTime time;
  int attempts = 0;
  const absl::Status status = Retry(kPolicy, time.environment(), 60s, [&](Duration) {
    Attempt attempt = Unavailable();
    attempt.progressed = ++attempts == 3 || attempts == 7;
    return attempt;
  });
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(attempts, 11);
  EXPECT_THAT(time.sleeps, ElementsAre(100ms, 200ms, 100ms, 200ms, 300ms, 300ms, 100ms, 200ms, 300ms, 300ms));
}

TEST(Retry, StopsAtSuccessAndAtOtherErrors) {
  FakeTime time;
  int attempts = 0;
  EXPECT_TRUE(Retry(kPolicy, time.environment(), 60s, [&](Duration) {
                return ++attempts < 3 ? Unavailable() : Succeeded();
              }).ok());
  EXPECT_EQ(attempts, 3);
  time.sleeps.clear();
  for (const absl::StatusCode code : {absl::StatusCode::kInvalidArgument, absl::StatusCode::kResourceExhausted,
                                      absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kInternal}) {
    const absl::Status status = Retry(kPolicy, time.environment(), 60s, [&](Duration) {
      return Attempt{absl::Status(code, "no"), true, {}};
    });
    EXPECT_EQ(status.code(), code);
  }
  EXPECT_THAT(time.sleeps, IsEmpty());
}

TEST(Retry, JitterSpreadsTheWaits) {
  FakeTime time;
  time.random = 0;
  Retry({.max_attempts = 2, .jitter = 0.2}, time.environment(), 60s, [](Duration) {
    return Unavailable();
  }).IgnoreError();
  time.random = 1;
  Retry({.max_attempts = 2, .jitter = 0.2}, time.environment(), 60s, [](Duration) {
    return Unavailable();
  }).IgnoreError();
  EXPECT_THAT(time.sleeps, ElementsAre(80ms, 120ms));
}

TEST(Retry, PushBackReplacesTheWaitAndStartsTheBackoffAnew) {
  FakeTime time;
  int attempts = 0;
  const absl::Status status = Retry(kPolicy, time.environment(), 60s, [&](Duration) {
    ++attempts;
    return attempts == 3 ? PushedBack(1700) : attempts == 4 ? PushedBack(0) : Unavailable();
  });
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(time.sleeps, ElementsAre(100ms, 200ms, 1700ms, 0ms));
  time.sleeps.clear();
  attempts = 0;
  Retry(kPolicy, time.environment(), 60s, [&](Duration) {
    return ++attempts == 2 ? PushedBack(5) : Unavailable();
  }).IgnoreError();
  EXPECT_THAT(time.sleeps, ElementsAre(100ms, 5ms, 100ms, 200ms));
}

TEST(Retry, NegativePushBackIsTheEnd) {
  FakeTime time;
  int attempts = 0;
  EXPECT_FALSE(Retry(kPolicy, time.environment(), 60s, [&](Duration) {
                 ++attempts;
                 return PushedBack(-1);
               }).ok());
  EXPECT_EQ(attempts, 1);
}

TEST(Retry, NeverWaitsPastTheDeadline) {
  FakeTime time;
  std::vector<Duration> remaining;
  const absl::Status status = Retry(kPolicy, time.environment(), 1s, [&](Duration left) {
    remaining.push_back(left);
    time.Pass(300ms);
    return Unavailable();
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << "the reason, not the deadline: " << status;
  // The second attempt ends with 300 ms left, enough for a wait of 200 ms. The third ends after the deadline.
  EXPECT_THAT(remaining, ElementsAre(1000ms, 600ms, 100ms));
  EXPECT_THAT(time.sleeps, ElementsAre(100ms, 200ms));
}

TEST(Retry, AHugePushBackDoesNotOverflow) {
  FakeTime time;
  int attempts = 0;
  EXPECT_FALSE(Retry(kPolicy, time.environment(), 60s, [&](Duration) {
                 ++attempts;
                 return PushedBack(INT64_MAX);
               }).ok());
  EXPECT_EQ(attempts, 1);
  EXPECT_THAT(time.sleeps, IsEmpty());
}

TEST(Retry, DoesNotRepeatWhatCannotBeRepeated) {
  FakeTime time;
  int attempts = 0;
  EXPECT_FALSE(Retry(kPolicy, time.environment(), 60s, [&](Duration) {
                 ++attempts;
                 return Attempt{absl::UnavailableError("cut off"), false, 0};
               }).ok());
  EXPECT_EQ(attempts, 1);
}

}  // namespace
}  // namespace posenc::retry_test

#include "server/core/admission.h"

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using Verdict = Admission::Verdict;

TEST(Admission, SharesRequestsAmongCallers) {
  Admission admission(8, 1000);
  Charge request[8], bytes[8];
  for (int n = 0; n < 6; ++n) {
    ASSERT_EQ(admission.AdmitRequest(1, &request[n], &bytes[n], {"a"}), Verdict::kAdmitted) << n;
  }
  EXPECT_EQ(admission.AdmitRequest(1, &request[6], &bytes[6], {"a"}), Verdict::kOverloaded) << "three quarters";
  EXPECT_EQ(admission.AdmitRequest(1, &request[6], &bytes[6], {"b"}), Verdict::kAdmitted);
  EXPECT_EQ(admission.AdmitRequest(1, &request[7], &bytes[7], {"b"}), Verdict::kOverloaded);
  EXPECT_EQ(admission.AdmitRequest(1, &request[7], &bytes[7], {"c"}), Verdict::kAdmitted);
  request[0].Return();
  EXPECT_EQ(admission.counters().in_flight_requests, 7);
  EXPECT_EQ(admission.counters().in_flight_bytes, 8) << "a request's bytes may outlive its count";
}

TEST(Admission, SharesBytesOfRequestsAndAnswersAmongCallers) {
  Admission admission(10, 100);
  Charge request[3], bytes[3], answer;
  EXPECT_EQ(admission.AdmitRequest(40, &request[0], &bytes[0], {"a"}), Verdict::kAdmitted);
  EXPECT_EQ(admission.AdmitRequest(36, &request[1], &bytes[1], {"a"}), Verdict::kOverloaded);
  EXPECT_EQ(admission.counters().in_flight_requests, 1) << "a refused one holds nothing";
  EXPECT_EQ(admission.AdmitRequest(35, &request[1], &bytes[1], {"a"}), Verdict::kAdmitted) << "three quarters";
  EXPECT_EQ(admission.AdmitBytes(20, 40, &answer, {"a"}), Verdict::kAdmitted) << "an answer only has to fit";
  EXPECT_EQ(admission.AdmitRequest(6, &request[2], &bytes[2], {"b"}), Verdict::kOverloaded);
  EXPECT_EQ(admission.AdmitRequest(5, &request[2], &bytes[2], {"b"}), Verdict::kAdmitted);
  EXPECT_EQ(admission.AdmitBytes(1, 60, &answer, {"a"}), Verdict::kOverloaded);
  bytes[1].Return();
  EXPECT_EQ(admission.AdmitBytes(35, 60, &answer, {"a"}), Verdict::kAdmitted);
}

TEST(Admission, TellsNeverFromNotNow) {
  Admission admission(10, 100);
  Charge request, bytes, answer;
  EXPECT_EQ(admission.AdmitRequest(101, &request, &bytes), Verdict::kTooLarge);
  EXPECT_EQ(admission.AdmitRequest(100, &request, &bytes), Verdict::kAdmitted);
  EXPECT_EQ(admission.AdmitBytes(1, 100, &answer), Verdict::kTooLarge) << "with its own request it never fits";
  EXPECT_EQ(admission.AdmitBytes(1, 0, &answer), Verdict::kOverloaded);
  EXPECT_EQ(admission.AdmitBytes(INT64_MAX, 100, &answer), Verdict::kTooLarge) << "no overflow";
}

TEST(Admission, HasLimitsOfACallerItself) {
  Admission admission(100, 1000);
  const Caller small{.name = "small", .max_requests = 2, .max_bytes = 100};
  Charge request[3], bytes[3], more;
  EXPECT_EQ(admission.AdmitRequest(101, &request[0], &bytes[0], small), Verdict::kTooLarge);
  EXPECT_EQ(admission.AdmitRequest(60, &request[0], &bytes[0], small), Verdict::kAdmitted);
  EXPECT_EQ(admission.AdmitRequest(41, &request[1], &bytes[1], small), Verdict::kOverQuota);
  EXPECT_EQ(admission.AdmitRequest(10, &request[1], &bytes[1], small), Verdict::kAdmitted);
  EXPECT_EQ(admission.AdmitRequest(0, &request[2], &bytes[2], small), Verdict::kOverQuota) << "two requests";
  EXPECT_EQ(admission.AdmitBytes(31, 60, &more, small), Verdict::kOverQuota);
  EXPECT_EQ(admission.AdmitBytes(41, 60, &more, small), Verdict::kTooLarge) << "with its own request it never fits";
  EXPECT_EQ(admission.AdmitBytes(30, 60, &more, small), Verdict::kAdmitted);
  EXPECT_EQ(admission.AdmitRequest(900, &request[2], &bytes[2], {"other"}), Verdict::kAdmitted) << "others are free";
}

TEST(Admission, DrainRefusesRequestsButNotTheAnswersOfThoseInFlight) {
  Admission admission(10, 100);
  Charge request, bytes, answer, late, late_bytes;
  EXPECT_EQ(admission.AdmitRequest(1, &request, &bytes), Verdict::kAdmitted);
  admission.Drain();
  EXPECT_EQ(admission.AdmitRequest(1, &late, &late_bytes), Verdict::kDraining);
  EXPECT_EQ(admission.AdmitBytes(10, 1, &answer), Verdict::kAdmitted);
}

TEST(Admission, ManyThreadsNeverExceedACallersLimitsAndLeaveNothing) {
  constexpr int kThreads = 4, kRounds = 3000;
  Admission admission(100, 10000);
  const Caller caller{.name = "a", .max_requests = 2, .max_bytes = 600};
  std::atomic<int> admitted{0}, refused{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < kThreads; ++n) {
    threads.emplace_back([&, n] {
      std::mt19937 random(n);
      std::vector<Charge> held;
      for (int i = 0; i < kRounds; ++i) {
        admission.CountStart();
        Charge request, bytes, answer;
        if (admission.AdmitRequest(random() % 400, &request, &bytes, caller) == Verdict::kAdmitted) {
          ++admitted;
          const Verdict verdict = admission.AdmitBytes(random() % 200, 400, &answer, caller);
          if (verdict == Verdict::kAdmitted) held.push_back(std::move(answer));
        } else {
          ++refused;
          admission.CountRefusal();
          held.clear();
        }
        const Admission::Counters counters = admission.counters();
        EXPECT_LE(counters.in_flight_requests, caller.max_requests);
        EXPECT_LE(counters.in_flight_bytes, caller.max_bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Admission::Counters counters = admission.counters();
  EXPECT_EQ(counters.started, kThreads * kRounds);
  EXPECT_EQ(counters.refused, refused);
  EXPECT_GT(admitted, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(counters.in_flight_requests, 0);
  EXPECT_EQ(counters.in_flight_bytes, 0);
}

// This mirrors the server: an admitted request is in flight until its answer is sent, and a later one is refused.
TEST(Admission, ADrainUnderLoadAnswersWhatWasAdmittedAndRefusesTheRest) {
  for (int round = 0; round < 20; ++round) {
    Admission admission(1000, 1000);
    std::atomic<int> working{0}, answered{0};
    std::vector<std::thread> callers;
    for (int n = 0; n < 4; ++n) {
      callers.emplace_back([&] {
        for (int refusals = 0; refusals < 3;) {
          admission.CountStart();
          Charge request, bytes;
          if (admission.AdmitRequest(1, &request, &bytes) != Verdict::kAdmitted) {
            admission.CountRefusal();
            ++refusals;
            continue;
          }
          ++working;
          Charge answer;
          EXPECT_EQ(admission.AdmitBytes(1, 1, &answer), Verdict::kAdmitted) << "drain or not";
          std::this_thread::yield();
          --working;
          ++answered;
        }
      });
    }
    while (answered < 50) std::this_thread::yield();
    admission.Drain();
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(working, 0);
    const Admission::Counters counters = admission.counters();
    EXPECT_EQ(counters.refused, 4 * 3);
    EXPECT_EQ(counters.started, answered + counters.refused);
    EXPECT_EQ(counters.in_flight_requests, 0);
    EXPECT_EQ(counters.in_flight_bytes, 0);
  }
}

}  // namespace
}  // namespace posenc::server

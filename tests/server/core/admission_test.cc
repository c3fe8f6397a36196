#include "server/core/admission.h"

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/memory_account.h"

namespace posenc::server {
namespace {

using Verdict = Admission::Verdict;

constexpr std::chrono::steady_clock::time_point kNow{};  // long past: no waiting
constexpr auto kForever = std::chrono::steady_clock::time_point::max();

TEST(Admission, LimitsRequests) {
  const auto admission = Admission::Create(2, 1000);
  Charge request[3], bytes[3];
  EXPECT_EQ(admission->AdmitRequest(1, &request[0], &bytes[0]), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitRequest(1, &request[1], &bytes[1]), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitRequest(1, &request[2], &bytes[2]), Verdict::kOverloaded);
  request[0].Return();
  EXPECT_EQ(admission->AdmitRequest(1, &request[2], &bytes[2]), Verdict::kAdmitted);
  EXPECT_EQ(admission->counters().in_flight_requests, 2);
  EXPECT_EQ(admission->counters().in_flight_bytes, 3) << "a request's bytes may outlive its count";
}

TEST(Admission, LimitsBytesOfRequestsAndAnswersTogether) {
  const auto admission = Admission::Create(10, 100);
  Charge request[2], bytes[2], answer;
  EXPECT_EQ(admission->AdmitRequest(40, &request[0], &bytes[0]), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitBytes(60, 40, &answer), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitRequest(1, &request[1], &bytes[1]), Verdict::kOverloaded);
  EXPECT_EQ(admission->AdmitRequest(0, &request[1], &bytes[1]), Verdict::kAdmitted);
  bytes[0].Return();
  Charge more;
  EXPECT_EQ(admission->AdmitBytes(41, 0, &more), Verdict::kOverloaded);
  EXPECT_EQ(admission->AdmitBytes(40, 0, &more), Verdict::kAdmitted);
}

TEST(Admission, TellsNeverFromNotNow) {
  const auto admission = Admission::Create(10, 100);
  Charge request, bytes, answer;
  EXPECT_EQ(admission->AdmitRequest(101, &request, &bytes), Verdict::kTooLarge);
  EXPECT_EQ(admission->AdmitRequest(100, &request, &bytes), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitBytes(1, 100, &answer), Verdict::kTooLarge) << "with its own request it never fits";
  EXPECT_EQ(admission->AdmitBytes(1, 0, &answer), Verdict::kOverloaded);
  EXPECT_EQ(admission->AdmitBytes(INT64_MAX, 100, &answer), Verdict::kTooLarge) << "no overflow";
}

// A reserve of 100 requests and 1000 bytes, of which a connection may hold a quarter.
TEST(Admission, HasAReserveForConnectionsThatHoldLittle) {
  const auto admission = Admission::Create(1600, 16000);
  Charge request[4], bytes[4], more;
  EXPECT_EQ(admission->AdmitRequest(16000, &request[0], &bytes[0], {"large"}), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitRequest(1, &request[1], &bytes[1], {"large"}), Verdict::kOverloaded);
  EXPECT_EQ(admission->AdmitRequest(1, &request[1], &bytes[1]), Verdict::kOverloaded) << "of no connection";
  EXPECT_EQ(admission->AdmitRequest(251, &request[1], &bytes[1], {"small"}), Verdict::kOverloaded);
  EXPECT_EQ(admission->AdmitRequest(200, &request[1], &bytes[1], {"small"}), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitBytes(51, 200, &more, &request[1]), Verdict::kOverloaded);
  EXPECT_EQ(admission->AdmitBytes(50, 200, &more, &request[1]), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitRequest(250, &request[2], &bytes[2], {"other"}), Verdict::kAdmitted);
  EXPECT_EQ(admission->counters().in_flight_bytes, 16500);
  more.ReturnBytes(30);
  bytes[1].Return();
  EXPECT_EQ(admission->AdmitBytes(230, 20, &more, &request[1]), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitBytes(1, 250, &more, &request[1]), Verdict::kOverloaded);
}

TEST(Admission, HasAReserveOfRequestsToo) {
  const auto admission = Admission::Create(160, 1000);
  std::vector<Charge> charges(2 * 200);
  size_t used = 0;
  const auto admit = [&](const std::string& connection) {
    const Verdict verdict = admission->AdmitRequest(0, &charges[used], &charges[used + 1], {connection});
    used += verdict == Verdict::kAdmitted ? 2 : 0;
    return verdict == Verdict::kAdmitted;
  };
  while (admit("large")) {
  }
  EXPECT_EQ(used, 2u * 160);
  for (const char* connection : {"a", "b", "c", "d"}) {
    EXPECT_TRUE(admit(connection));
    EXPECT_TRUE(admit(connection));
    EXPECT_FALSE(admit(connection)) << "a quarter of the reserve is 2";
  }
  EXPECT_TRUE(admit("e"));
  EXPECT_FALSE(admit("f")) << "it would leave nothing";
}

// Holders "A1" and "A2" are of group "A".
std::string FirstLetter(const std::string& holder) { return holder.substr(0, 1); }

// An account charges what it counts by AdmitBytes(), which would wait for the lock that its own thread holds.
TEST(Admission, CountsNoMemoryUnderItsLock) {
  static bool called = false, counted = false;
  const auto admission = Admission::Create(
      16, 16000, +[](const std::string& holder) {
        called = true;
        counted |= CurrentMemoryAccount() != nullptr;
        return FirstLetter(holder);
      });
  MemoryAccount account([](int64_t) { return true; });
  const MemoryScope scope(&account);
  Charge request[2], bytes[2], more;
  ASSERT_EQ(admission->AdmitRequest(16000, &request[0], &bytes[0], {"B1"}), Verdict::kAdmitted);
  ASSERT_EQ(admission->AdmitRequest(0, &request[1], &bytes[1], {"A1"}), Verdict::kAdmitted);
  EXPECT_FALSE(called);
  ASSERT_EQ(admission->AdmitBytes(100, 0, &more, &request[1]), Verdict::kAdmitted) << "of the reserve";
  EXPECT_TRUE(called);
  EXPECT_FALSE(counted);
}

TEST(Admission, AGroupOfHoldersLeavesAsMuchOfTheReserveAsItHas) {
  const auto admission = Admission::Create(160, 16000, &FirstLetter);
  std::vector<Charge> charges(2 * 200);
  size_t used = 0;
  const auto admit = [&](const std::string& holder, int64_t size) {
    const Verdict verdict = admission->AdmitRequest(size, &charges[used], &charges[used + 1], {holder});
    used += verdict == Verdict::kAdmitted ? 2 : 0;
    return verdict == Verdict::kAdmitted;
  };
  // The reserve is 10 requests.
  while (admit("A0", 0)) {
  }
  EXPECT_EQ(used, 2u * 160) << "what is not of the reserve has no limit for a group";
  const auto admitted = [&](const std::string& group) {
    int count = 0;
    for (int n = 1; n < 10; ++n) count += admit(group + std::to_string(n), 0) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(admitted("A"), 5);
  EXPECT_EQ(admitted("B"), 2);
  EXPECT_EQ(admitted("C"), 1);
  EXPECT_EQ(admitted("D"), 1);
  EXPECT_EQ(admitted("E"), 0) << "one is left, and it would leave none";
  charges[2 * 160].Return();
  EXPECT_EQ(admitted("B"), 0) << "there is room for a group that has less";
  EXPECT_EQ(admitted("E"), 1);
  charges.clear();
  charges.resize(size_t{2} * 200);
  used = 0;

  // It is 1000 bytes, of which a holder may hold 250.
  EXPECT_TRUE(admit("A0", 16000));
  for (const char* holder : {"A1", "A2"}) EXPECT_TRUE(admit(holder, 250));
  EXPECT_FALSE(admit("A3", 1));
  charges[3].ReturnBytes(100);
  EXPECT_TRUE(admit("A3", 100));
  EXPECT_FALSE(admit("A4", 1));
  EXPECT_EQ(admission->AdmitBytes(1, 100, &charges[7], &charges[6]), Verdict::kOverloaded) << "an answer counts too";
  EXPECT_TRUE(admit("B1", 250));
  EXPECT_FALSE(admit("C1", 126));
  EXPECT_TRUE(admit("C1", 125));
  charges.clear();
  EXPECT_EQ(admission->counters().in_flight_bytes, 0);
}

TEST(Admission, HasLimitsOfAHolderItself) {
  const auto admission = Admission::Create(100, 1000);
  const Holder small{.name = "small", .max_requests = 2, .max_bytes = 100};
  Charge request[3], bytes[3], more;
  EXPECT_EQ(admission->AdmitRequest(101, &request[0], &bytes[0], small), Verdict::kTooLarge);
  EXPECT_EQ(admission->AdmitRequest(60, &request[0], &bytes[0], small), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitRequest(41, &request[1], &bytes[1], small), Verdict::kOverQuota);
  EXPECT_EQ(admission->AdmitRequest(10, &request[1], &bytes[1], small), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitRequest(0, &request[2], &bytes[2], small), Verdict::kOverQuota) << "two requests";
  EXPECT_EQ(admission->AdmitBytes(31, 60, &more, &request[0]), Verdict::kOverQuota);
  EXPECT_EQ(admission->AdmitBytes(41, 60, &more, &request[0]), Verdict::kTooLarge)
      << "with its own request it never fits";
  EXPECT_EQ(admission->AdmitBytes(30, 60, &more, &request[0]), Verdict::kAdmitted);
  EXPECT_EQ(admission->AdmitRequest(900, &request[2], &bytes[2], {"other"}), Verdict::kAdmitted) << "others are free";
}

// Admits a request of one byte and keeps it.
Verdict Admit(Admission* admission, std::vector<Charge>* charges, const Holder& holder, int64_t size = 1) {
  Charge request, bytes;
  const Verdict verdict = admission->AdmitRequest(size, &request, &bytes, holder);
  if (verdict != Verdict::kAdmitted) return verdict;
  charges->push_back(std::move(request));
  charges->push_back(std::move(bytes));
  return verdict;
}

TEST(Admission, HoldersWithWeightsShareTheLimits) {
  const auto admission = Admission::Create(90, 9000);
  const Holder one = {.name = "one", .weight = 1}, two = {.name = "two", .weight = 2};
  std::vector<Charge> of_one, of_two;
  while (Admit(admission.get(), &of_one, one) == Verdict::kAdmitted) {
    EXPECT_FALSE(of_one[of_one.size() - 2].is_shared());
  }
  EXPECT_EQ(admission->counters().in_flight_requests, 90) << "alone, it can hold everything";
  EXPECT_EQ(Admit(admission.get(), &of_two, two), Verdict::kAdmitted) << "from the reserve";
  EXPECT_TRUE(of_two[0].is_shared());
  of_one.resize(90);
  EXPECT_EQ(Admit(admission.get(), &of_one, one), Verdict::kOverloaded) << "it holds 45 of 90, more than a third";
  of_one.resize(60);
  while (Admit(admission.get(), &of_two, two) == Verdict::kAdmitted) {
  }
  EXPECT_EQ(of_two.size(), 120U);
  of_one.resize(58);
  EXPECT_EQ(Admit(admission.get(), &of_one, one, 3000), Verdict::kOverloaded) << "a third of the bytes";
  EXPECT_EQ(Admit(admission.get(), &of_one, one, 2900), Verdict::kAdmitted);
  of_one.clear();
  EXPECT_EQ(Admit(admission.get(), &of_one, one, 8000), Verdict::kAdmitted) << "one large request";
  of_one.clear();
  of_two.clear();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  for (int n = 0; n < 90; ++n) EXPECT_EQ(Admit(admission.get(), &of_one, one), Verdict::kAdmitted);
}

TEST(Admission, AHolderOfLittleWeightIsNotRefusedWhileHalfIsFree) {
  const auto admission = Admission::Create(90, 9000);
  const Holder light = {.name = "light", .weight = 1}, heavy = {.name = "heavy", .weight = 100};
  std::vector<Charge> of_light, of_heavy;
  EXPECT_EQ(Admit(admission.get(), &of_heavy, heavy), Verdict::kAdmitted);
  while (Admit(admission.get(), &of_light, light) == Verdict::kAdmitted) {
  }
  EXPECT_EQ(admission->counters().in_flight_requests, 45);
  of_light.resize(20);
  EXPECT_EQ(Admit(admission.get(), &of_light, light, 4500), Verdict::kOverloaded) << "half of the bytes";
  while (Admit(admission.get(), &of_heavy, heavy) == Verdict::kAdmitted) {
  }
  EXPECT_GE(admission->counters().in_flight_requests, 89) << "the heavy one's part is most of both halves";
}

TEST(Admission, DrainRefusesRequestsButNotTheAnswersOfThoseInFlight) {
  const auto admission = Admission::Create(10, 100);
  Charge request, bytes, answer, late, late_bytes;
  EXPECT_EQ(admission->AdmitRequest(1, &request, &bytes), Verdict::kAdmitted);
  admission->Drain();
  EXPECT_EQ(admission->AdmitRequest(1, &late, &late_bytes), Verdict::kDraining);
  EXPECT_EQ(admission->AdmitBytes(10, 1, &answer), Verdict::kAdmitted);
}

TEST(Admission, ChargesKeepTheBooksOpen) {
  auto admission = Admission::Create(10, 100);
  Charge answer;
  ASSERT_EQ(admission->AdmitBytes(7, 0, &answer), Verdict::kAdmitted);
  const std::weak_ptr<Admission> watch = admission;
  admission.reset();
  EXPECT_FALSE(watch.expired());
  answer.Return();
  EXPECT_TRUE(watch.expired());
}

TEST(Admission, MovingAChargeReturnsTheOneOverwritten) {
  const auto admission = Admission::Create(10, 100);
  Charge a, b;
  ASSERT_EQ(admission->AdmitBytes(10, 0, &a), Verdict::kAdmitted);
  ASSERT_EQ(admission->AdmitBytes(20, 0, &b), Verdict::kAdmitted);
  a = std::move(b);
  EXPECT_EQ(admission->counters().in_flight_bytes, 20);
  a = Charge();
  EXPECT_EQ(admission->counters().in_flight_bytes, 0);
}

TEST(Admission, ManyThreadsNeverExceedTheLimitsAndLeaveNothing) {
  constexpr int kRequests = 5, kBytes = 1000, kThreads = 4, kRounds = 3000;
  const auto admission = Admission::Create(kRequests, kBytes);
  std::atomic<int> admitted{0}, refused{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < kThreads; ++n) {
    threads.emplace_back([&, n] {
      std::mt19937 random(n);
      std::vector<Charge> held;
      for (int i = 0; i < kRounds; ++i) {
        admission->CountStart();
        Charge request, bytes, answer;
        if (admission->AdmitRequest(random() % 400, &request, &bytes) == Verdict::kAdmitted) {
          ++admitted;
          const Verdict verdict = admission->AdmitBytes(random() % 400, 400, &answer);
          if (verdict == Verdict::kAdmitted) held.push_back(std::move(answer));
        } else {
          ++refused;
          admission->CountRefusal();
          held.clear();
        }
        const Admission::Counters counters = admission->counters();
        EXPECT_LE(counters.in_flight_requests, kRequests);
        EXPECT_LE(counters.in_flight_bytes, kBytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Admission::Counters counters = admission->counters();
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
    const auto admission = Admission::Create(1000, 1000);
    std::atomic<int> working{0}, answered{0};
    std::vector<std::thread> callers;
    for (int n = 0; n < 4; ++n) {
      callers.emplace_back([&] {
        for (int refusals = 0; refusals < 3;) {
          admission->CountStart();
          Charge request, bytes;
          if (admission->AdmitRequest(1, &request, &bytes) != Verdict::kAdmitted) {
            admission->CountRefusal();
            ++refusals;
            continue;
          }
          ++working;
          Charge answer;
          EXPECT_EQ(admission->AdmitBytes(1, 1, &answer), Verdict::kAdmitted) << "drain or not";
          std::this_thread::yield();
          --working;
          ++answered;
        }
      });
    }
    while (answered < 50) std::this_thread::yield();
    admission->Drain();
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(working, 0);
    const Admission::Counters counters = admission->counters();
    EXPECT_EQ(counters.refused, 4 * 3);
    EXPECT_EQ(counters.started, answered + counters.refused);
    EXPECT_EQ(counters.in_flight_requests, 0);
    EXPECT_EQ(counters.in_flight_bytes, 0);
  }
}

}  // namespace
}  // namespace posenc::server

#include "server/core/fair_limit.h"

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/memory_account.h"

namespace posenc::server {
namespace {

// Callers that keep what they take.
class Callers {
 public:
  explicit Callers(int64_t capacity) : limit(FairLimit::Create(capacity)) {}

  bool Take(const std::string& caller, int64_t amount = 1) {
    Charge charge;
    if (!limit->Take(caller, amount, &charge)) return false;
    charges[caller].push_back(std::move(charge));
    return true;
  }
  // Returns how much the caller then holds.
  int64_t TakeAll(const std::string& caller) {
    while (Take(caller)) {
    }
    return limit->HeldBy(caller);
  }
  void ReturnOne(const std::string& caller) { charges[caller].pop_front(); }
  // In each round, each of them returns one and takes what it can.
  void Compete(const std::vector<std::string>& callers, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (const std::string& caller : callers) {
        if (limit->HeldBy(caller) > 1) ReturnOne(caller);
        TakeAll(caller);
      }
    }
  }

  const std::shared_ptr<FairLimit> limit;
  std::map<std::string, std::list<Charge>> charges;
};

TEST(FairLimit, OneCallerAloneGetsThreeQuarters) {
  for (const auto& [capacity, most] : {std::pair(1, 1), {2, 1}, {3, 2}, {4, 3}, {5, 3}, {8, 6}, {1024, 768}}) {
    Callers callers(capacity);
    EXPECT_EQ(callers.TakeAll("a"), most) << capacity;
    EXPECT_EQ(callers.limit->held(), most);
  }
}

TEST(FairLimit, CallersThatCompeteGetEqualParts) {
  Callers callers(700);
  callers.TakeAll("a");
  callers.Compete({"a", "b"}, 500);
  EXPECT_EQ(callers.limit->HeldBy("a"), 300) << "three sevenths";
  EXPECT_EQ(callers.limit->HeldBy("b"), 300);
  callers.charges.erase("a");
  EXPECT_EQ(callers.TakeAll("b"), 525) << "alone again";
}

TEST(FairLimit, ANewcomerFindsAPlaceBesideManyWhoCompete) {
  Callers callers(1024);
  std::vector<std::string> names;
  for (int n = 0; n < 200; ++n) {
    names.push_back(std::to_string(n));
    ASSERT_TRUE(callers.Take(names.back())) << n;
    callers.Compete(names, 10);
    ASSERT_LT(callers.limit->held(), 1024) << n;
  }
}

TEST(FairLimit, WhoComesAfterOthersGetsThreeQuartersOfWhatTheyLeave) {
  Callers callers(1024);
  EXPECT_EQ(callers.TakeAll("a"), 768);
  EXPECT_EQ(callers.TakeAll("b"), 192);
  EXPECT_EQ(callers.TakeAll("c"), 48);
  EXPECT_EQ(callers.TakeAll("d"), 12);
  EXPECT_EQ(callers.TakeAll("e"), 3);
  EXPECT_EQ(callers.TakeAll("f"), 1);
  EXPECT_FALSE(callers.Take("g"));
  callers.ReturnOne("a");
  EXPECT_EQ(callers.TakeAll("a"), 767) << "it holds more than three times what is free";
  EXPECT_TRUE(callers.Take("g"));
}

TEST(FairLimit, TheFirstOnlyHasToFit) {
  Callers callers(100);
  EXPECT_FALSE(callers.Take("a", 101));
  EXPECT_TRUE(callers.Take("a", 80));
  EXPECT_FALSE(callers.Take("a", 1));
  EXPECT_FALSE(callers.Take("a", 0)) << "it holds more than three times what is free";
  EXPECT_FALSE(callers.Take("b", 21));
  EXPECT_TRUE(callers.Take("b", 20));
  EXPECT_TRUE(callers.Take("c", 0));
  EXPECT_FALSE(callers.Take("c", INT64_MAX)) << "no overflow";
}

TEST(FairLimit, ALargeAmountCountsAsIfItWereHeld) {
  Callers callers(100);
  EXPECT_TRUE(callers.Take("a", 30));
  EXPECT_FALSE(callers.Take("a", 46));
  EXPECT_TRUE(callers.Take("a", 45));
}

TEST(FairLimit, GrowthOnlyHasToFit) {
  const auto limit = FairLimit::Create(100);
  Charge a, b;
  ASSERT_TRUE(limit->Take("a", 75, &a));
  EXPECT_FALSE(limit->Take("a", 1, &b));
  EXPECT_TRUE(limit->Grow("a", 20, &a));
  EXPECT_FALSE(limit->Grow("a", 6, &a));
  EXPECT_TRUE(limit->Grow("a", 5, &b)) << "an empty charge too";
  EXPECT_EQ(limit->HeldBy("a"), 100);
  a.Return(60);
  EXPECT_EQ(limit->held(), 40);
  a.Return();
  a.Return();
  EXPECT_EQ(limit->HeldBy("a"), 5);
}

TEST(FairLimit, KeepsNothingForCallersThatHoldNothing) {
  const auto limit = FairLimit::Create(100);
  Charge a, b;
  ASSERT_TRUE(limit->Take("a", 0, &a));
  ASSERT_TRUE(limit->Take("a", 10, &a));
  ASSERT_TRUE(limit->Take("a", 20, &b));
  a.Return(10);
  EXPECT_EQ(limit->HeldBy("a"), 20);
  b.Return();
  ASSERT_TRUE(limit->Take("a", 90, &a)) << "a first one again";
  a = Charge();
  EXPECT_EQ(limit.use_count(), 1) << "no charge refers to it";
  EXPECT_EQ(limit->callers(), 0U);
}

TEST(FairLimit, ChargesKeepItAlive) {
  auto limit = FairLimit::Create(100);
  Charge answer;
  ASSERT_TRUE(limit->Take("a", 7, &answer));
  const std::weak_ptr<FairLimit> watch = limit;
  limit.reset();
  EXPECT_FALSE(watch.expired());
  answer.Return();
  EXPECT_TRUE(watch.expired());
}

TEST(FairLimit, MovingAChargeReturnsTheOneOverwritten) {
  const auto limit = FairLimit::Create(100);
  Charge a, b;
  const auto move = [](Charge* from, Charge* to) { *to = std::move(*from); };
  ASSERT_TRUE(limit->Take("a", 10, &a));
  ASSERT_TRUE(limit->Take("b", 20, &b));
  move(&b, &a);
  EXPECT_EQ(limit->held(), 20);
  ASSERT_TRUE(limit->Take("b", 1, &b)) << "it is empty";
  b.Return();
  EXPECT_EQ(limit->held(), 20);
}

TEST(FairLimit, CountsNoMemoryUnderItsLock) {
  const auto limit = FairLimit::Create(100);
  bool counted = false;
  MemoryAccount account([&](int64_t) { return counted = true; });
  const std::string name(size_t{1} << 20, 'a');
  Charge charge;
  {
    const MemoryScope scope(&account);
    ASSERT_TRUE(limit->Take(name, 1, &charge));
    EXPECT_FALSE(counted);
    const std::string copy = name;
    EXPECT_TRUE(counted) << "this program counts memory";
  }
}

TEST(FairLimit, ManyThreadsNeverExceedItAndLeaveNothing) {
  constexpr int64_t kCapacity = 100;
  const auto limit = FairLimit::Create(kCapacity);
  std::atomic<int> taken{0}, refused{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      std::mt19937 random(n);
      const std::string name = std::to_string(n / 2);
      std::vector<Charge> held;
      for (int i = 0; i < 3000; ++i) {
        Charge charge;
        if (limit->Take(name, random() % 20, &charge)) {
          ++taken;
          limit->Grow(name, random() % 5, &charge);
          held.push_back(std::move(charge));
        } else {
          ++refused;
          held.clear();
        }
        EXPECT_LE(limit->held(), kCapacity);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(limit->held(), 0);
  EXPECT_EQ(limit->callers(), 0U);
}

}  // namespace
}  // namespace posenc::server

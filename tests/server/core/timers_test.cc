#include "server/core/timers.h"

#include <atomic>
#include <future>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(Timers, ActInTheOrderOfTheirTimes) {
  std::vector<int> acted;
  std::promise<void> last;
  Timers timers;
  const auto now = steady_clock::now() + milliseconds(500);  // none acts before all are there
  std::vector<Timers::Timer> handles;
  handles.push_back(timers.At(now + milliseconds(60), [&] {
    acted.push_back(3);
    last.set_value();
  }));
  handles.push_back(timers.At(now + milliseconds(20), [&] { acted.push_back(1); }));
  handles.push_back(timers.At(now + hours(1), [&] { acted.push_back(4); }));
  handles.push_back(timers.At(now + milliseconds(40), [&] { acted.push_back(2); }));
  last.get_future().wait();
  EXPECT_THAT(acted, testing::ElementsAre(1, 2, 3));
}

TEST(Timers, AnEarlierOneWakesTheThread) {
  std::promise<void> acted;
  Timers timers;
  const Timers::Timer far = timers.At(steady_clock::now() + hours(1), [] {});
  const Timers::Timer near = timers.At(steady_clock::now() + milliseconds(1), [&] { acted.set_value(); });
  acted.get_future().wait();
}

TEST(Timers, GoOnAfterAnException) {
  std::promise<void> acted;
  Timers timers;
  Timers::Timer thrown = timers.At(steady_clock::now(), [] { throw std::bad_alloc(); });
  const Timers::Timer next = timers.At(steady_clock::now() + milliseconds(1), [&] { acted.set_value(); });
  acted.get_future().wait();
  thrown.Revoke();
}

TEST(Timers, RevokeWaitsForAnActionUnderWay) {
  std::promise<void> begun, may_end;
  std::atomic<bool> ended{false};
  Timers timers;
  Timers::Timer timer = timers.At(steady_clock::now(), [&] {
    begun.set_value();
    may_end.get_future().wait();
    ended = true;
  });
  begun.get_future().wait();
  std::thread revoker([&] {
    timer.Revoke();
    EXPECT_TRUE(ended);
  });
  may_end.set_value();
  revoker.join();
}

TEST(Timers, AnActionMayEndItsOwnTimer) {
  std::promise<void> acted;
  Timers timers;
  auto timer = std::make_unique<Timers::Timer>();
  std::promise<void> set;
  *timer = timers.At(steady_clock::now(), [&] {
    set.get_future().wait();
    timer.reset();
    acted.set_value();
  });
  set.set_value();
  acted.get_future().wait();
}

TEST(Timers, WaitsCanBeLimited) {
  std::promise<void> first, later;
  Timers timers;
  const Timers::Timer pending = timers.After(hours(1), [&] { first.set_value(); });
  const Timers::Timer fixed = timers.At(steady_clock::now() + hours(1), [] { ADD_FAILURE() << "is not a wait"; });
  Timers::Timer revoked = timers.After(hours(1), [] { ADD_FAILURE() << "is revoked"; });
  timers.LimitWaits(milliseconds(20));
  revoked.Revoke();
  first.get_future().wait();
  const Timers::Timer added = timers.After(hours(1), [&] { later.set_value(); });
  later.get_future().wait();
}

// The end of a call destroys what its timer's action refers to.
TEST(Timers, NothingActsAfterItIsRevoked) {
  Timers timers;
  std::atomic<int> acted{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&timers, &acted, caller] {
      std::mt19937 random(caller);
      for (int round = 0; round < 2000; ++round) {
        auto alive = std::make_unique<int>(0);
        Timers::Timer timer = timers.At(steady_clock::now() + microseconds(random() % 40), [&acted, &alive] {
          ++*alive;
          ++acted;
        });
        if (random() % 2) std::this_thread::yield();
        timer.Revoke();
        alive.reset();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_GT(acted, 0);
}

}  // namespace
}  // namespace posenc::server

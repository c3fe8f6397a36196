// Which tasks a pool runs first, and which run on the stacks of others.
#include "posenc/base/work_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/real_precision.h"
#include "posenc/base/shared_cache.h"
#include "tests/base/blocked_threads.h"

namespace posenc {
namespace {

using Clock = std::chrono::steady_clock;

// A pool with one thread besides the one for small tasks.
class WorkPoolTurns : public testing::Test {
 protected:
  // Runs a task on the thread that is not for small tasks. Returns when it has ended, and all tasks in the queue.
  void Run(const std::function<void()>& task, Lane lane = Lane::kBulk, const TaskOwner& owner = kA) {
    small_thread_.emplace(&pool_);
    std::atomic<bool> ended{false};
    pool_.Submit(
        [&] {
          task();
          ended = true;
        },
        lane, &owner);
    EXPECT_TRUE(Wait(ended));
    EXPECT_TRUE(Wait([&] { return pool_.waiting() == 0; }));
    small_thread_.reset();
    const Blocker last(&pool_, Lane::kBulk);  // begins when the last of them has ended
  }
  // Submits a task that adds a letter to ran_.
  void Note(char letter, Lane lane, const TaskOwner& owner) {
    pool_.Submit(
        [this, letter] {
          ran_ += letter;
          ++count_;
        },
        lane, &owner);
  }
  // Calls GiveWay() until so many tasks have noted.
  bool GiveWayUntil(size_t count) {
    return Wait([&] {
      pool_.GiveWay();
      return count_ >= count;
    });
  }
  // Calls GiveWay() often, for longer than a task must go on after the nested ones here.
  void GiveWayOften() {
    for (int n = 0; n < 50; ++n) {
      pool_.GiveWay();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  std::string ran_;  // by one thread
  std::atomic<size_t> count_{0};
  WorkPool pool_{1};
  std::optional<BlockedSmallThread> small_thread_;
};

TEST_F(WorkPoolTurns, LanesTakeTurns) {
  Run([&] {
    for (const char letter : {'1', '2', '3'}) Note(letter, Lane::kBulk, kA);
    for (const char letter : {'a', 'b', 'c'}) Note(letter, Lane::kSmall, kA);
  });
  EXPECT_EQ(ran_, "a1b2c3");
}

TEST_F(WorkPoolTurns, CallersAndConnectionsTakeTurns) {
  const TaskOwner other{"a", 2};
  for (const Lane lane : {Lane::kSmall, Lane::kBulk, Lane::kBlocking}) {
    ran_.clear();
    Run([&] {
      for (const char letter : {'1', '2', '3'}) Note(letter, lane, kA);
      Note('x', lane, other);
      for (const char letter : {'b', 'B'}) Note(letter, lane, kB);
    });
    EXPECT_EQ(ran_, "1bxB23");
  }
}

// All threads are in tiles that last until the small task has run.
TEST_F(WorkPoolTurns, ASmallTaskDoesNotWaitForLongTiles) {
  const Blocker bulk(&pool_, Lane::kBulk);
  std::atomic<bool> ran{false};
  pool_.Submit([&] { ran = true; }, Lane::kSmall);
  EXPECT_TRUE(Wait(ran));
}

// The idle thread is woken for both, and takes the bulk one, which lasts until the small one has run.
TEST_F(WorkPoolTurns, ASmallTaskThatComesWithABulkOneDoesNotWaitForIt) {
  for (int round = 0; round < 300; ++round) {
    std::atomic<bool> first_ran{false}, small_ran{false}, bulk_ended{false};
    pool_.Submit([&] { first_ran = true; }, Lane::kSmall);  // then it is a bulk task's turn
    ASSERT_TRUE(Wait(first_ran));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    pool_.Submit([&] { bulk_ended = Wait(small_ran); });
    pool_.Submit([&] { small_ran = true; }, Lane::kSmall);
    ASSERT_TRUE(Wait([&] { return small_ran && bulk_ended; }));
  }
}

TEST_F(WorkPoolTurns, SmallTasksRunOnABulkTasksStackThenBulkOnesOfOtherCallers) {
  Run([&] {
    Note('b', Lane::kBulk, kB);
    Note('s', Lane::kSmall, kA);
    Note('c', Lane::kBulk, kC);
    EXPECT_TRUE(GiveWayUntil(3));
    ran_ += '.';
  });
  EXPECT_EQ(ran_, "sbc.");
}

TEST_F(WorkPoolTurns, ALoopLetsOthersRunBetweenTiles) {
  Run([&] {
    Note('s', Lane::kSmall, kA);
    Note('b', Lane::kBulk, kB);
    const Cancellation until_both_ran = [&] { return count_ >= 2 ? absl::CancelledError() : absl::OkStatus(); };
    const auto end = Clock::now() + std::chrono::minutes(1);
    while (count_ < 2 && Clock::now() < end) {
      (void)pool_.ParallelFor(100, 1, until_both_ran, [](size_t, size_t) {});
    }
    ran_ += '.';
  });
  EXPECT_EQ(ran_, "sb.");
}

TEST_F(WorkPoolTurns, TasksOfItsCallerAndBlockingOnesDoNotRunOnATasksStack) {
  const TaskOwner other{"a", 2};
  Run([&] {
    Note('1', Lane::kBulk, other);
    Note('2', Lane::kBlocking, kB);
    GiveWayOften();
    ran_ += '.';
  });
  EXPECT_EQ(ran_, ".12");
}

TEST_F(WorkPoolTurns, NestedTasksNestNone) {
  for (const Lane lane : {Lane::kSmall, Lane::kBulk}) {
    ran_.clear();
    count_ = 0;
    Run([&] {
      const auto nested = [&] {
        Note('s', Lane::kSmall, kA);
        Note('c', Lane::kBulk, kC);
        std::this_thread::sleep_for(2 * WorkPool::kSmallTime);  // a small task counts as a bulk one
        GiveWayOften();
        EXPECT_TRUE(pool_.ParallelFor(3, 1, NeverCancelled, [](size_t, size_t) {}).ok());
        ran_ += '.';
      };
      pool_.Submit(nested, lane, &kB);
      EXPECT_TRUE(GiveWayUntil(2));
    });
    EXPECT_EQ(ran_, ".sc");
  }
}

// After a nested task, the outer one goes on for as long as that took.
TEST_F(WorkPoolTurns, NestedTasksTakeAtMostHalfOfTheTime) {
  std::vector<Clock::time_point> begin, end;
  const auto nested = [&] {
    begin.push_back(Clock::now());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    end.push_back(Clock::now());
    ++count_;
  };
  Run([&] {
    for (const TaskOwner& owner : {kB, kB, kC}) pool_.Submit(nested, Lane::kSmall, &owner);
    pool_.Submit(nested, Lane::kBulk, &kB);
    EXPECT_TRUE(GiveWayUntil(4));
  });
  ASSERT_EQ(begin.size(), 4U);
  for (size_t n = 1; n < 4; ++n) EXPECT_GE(begin[n] - end[n - 1], end[n - 1] - begin[n - 1]);
}

TEST_F(WorkPoolTurns, ASmallTaskThatTakesLongCountsAsABulkOne) {
  std::atomic<Clock::time_point> first;
  const auto begin = Clock::now();
  Run(
      [&] {
        pool_.Submit([&] { first = Clock::now(); }, Lane::kSmall, &kB);
        Note('b', Lane::kBulk, kB);
        EXPECT_TRUE(GiveWayUntil(1));
        ran_ += '.';
      },
      Lane::kSmall);
  EXPECT_GE(first.load() - begin, WorkPool::kSmallTime) << "it had not yet taken long";
  EXPECT_EQ(ran_, "b.");
}

TEST_F(WorkPoolTurns, TheThreadForSmallTasksRunsNoOthers) {
  std::atomic<bool> ended{false};
  {
    const Blocker bulk(&pool_, Lane::kBulk);
    pool_.Submit(
        [&] {
          Note('b', Lane::kBulk, kB);
          for (size_t n = 1; n <= 3; ++n) {
            Note('s', Lane::kSmall, kA);
            EXPECT_TRUE(GiveWayUntil(n));
            GiveWayOften();
          }
          ran_ += '.';
          ended = true;
        },
        Lane::kSmall, &kA);
    EXPECT_TRUE(Wait(ended));
  }
  EXPECT_TRUE(Wait([&] { return count_ == 4; }));
  EXPECT_EQ(ran_, "sss.b");
}

TEST_F(WorkPoolTurns, NoneRunOnAStackWithoutWorkStealing) {
  Run([&] {
    Note('s', Lane::kSmall, kB);
    Note('b', Lane::kBulk, kB);
    {
      const NoWorkStealing alone;
      GiveWayOften();
      EXPECT_TRUE(pool_.ParallelFor(3, 1, NeverCancelled, [](size_t, size_t) {}).ok());
      ran_ += '.';
    }
    EXPECT_TRUE(GiveWayUntil(2));
  });
  EXPECT_EQ(ran_, ".sb");
}

TEST_F(WorkPoolTurns, NoneRunOnThreadsThatAreNotThePools) {
  const Blocker bulk(&pool_, Lane::kBulk);
  const Blocker small(&pool_, Lane::kSmall);
  Note('s', Lane::kSmall, kB);
  GiveWayOften();
  EXPECT_TRUE(pool_.ParallelFor(3, 1, NeverCancelled, [](size_t, size_t) {}).ok());
  EXPECT_EQ(count_, 0U);
}

// Others wait for the value that this thread computes. A nested task that needs it would wait for its own thread.
TEST_F(WorkPoolTurns, NoneRunOnAStackThatIsAwaited) {
  Run([&] {
    Note('s', Lane::kSmall, kB);
    Note('b', Lane::kBulk, kB);
    {
      const ActivityScope awaited(Activity::kAwaited);
      GiveWayOften();
      EXPECT_TRUE(pool_.ParallelFor(3, 1, NeverCancelled, [](size_t, size_t) {}).ok());
      const ActivityScope waiting(Activity::kWaiting);  // for another value, on which this one depends
      GiveWayOften();
      ran_ += '.';
    }
    EXPECT_TRUE(GiveWayUntil(2));
  });
  EXPECT_EQ(ran_, ".sb");
}

size_t SizeOfText(const std::string& text) { return text.size(); }
using Cache = SharedCache<std::string>;

// A small task waits for a value that is complete only when the next small tasks have run, which have one thread.
TEST_F(WorkPoolTurns, ATaskThatWaitsForAValueLetsOthersRun) {
  for (const bool in_loop : {false, true}) {
    count_ = 0;
    std::atomic<bool> computing{false}, ended{false};
    Cache cache(10000, SizeOfText);
    const auto never = []() -> absl::StatusOr<std::string> { return absl::InternalError("computed twice"); };
    const auto get = [&] { EXPECT_TRUE(cache.Get("key", never).ok()); };
    std::thread computes([&] {
      const auto compute = [&]() -> absl::StatusOr<std::string> {
        computing = true;
        EXPECT_TRUE(Wait([&] { return count_ == 3; }));
        return "value";
      };
      EXPECT_TRUE(cache.Get("key", compute).ok());
    });
    EXPECT_TRUE(Wait(computing));
    const Blocker bulk(&pool_, Lane::kBulk);
    pool_.Submit(
        [&] {
          for (const TaskOwner& owner : {kA, kB, kC}) Note('s', Lane::kSmall, owner);
          size_t asked = 0;
          const Cancellation step = [&] {
            if (!in_loop) pool_.GiveWay();
            if (ActivityScope::Current() == Activity::kWaiting) {
              EXPECT_EQ(count_, std::min<size_t>(++asked, 3)) << "one each time, although this task is short";
            }
            return absl::OkStatus();
          };
          const auto tile = [&](size_t, size_t) { get(); };
          if (in_loop) {
            EXPECT_TRUE(pool_.ParallelFor(1, 1, step, tile).ok());
          } else {
            EXPECT_TRUE(RunInterruptibly(step, [&] { return get(), absl::OkStatus(); }).ok());
          }
          ended = true;
        },
        Lane::kSmall, &kA);
    computes.join();
    EXPECT_TRUE(Wait(ended));
  }
}

// Tasks of several callers need the same values, whose computations have loops and need values themselves: all of them
// end, whichever runs on whose stack.
TEST(WorkPoolWaits, NoCycleArises) {
  constexpr int kTasks = 400, kKeys = 3;
  for (const size_t threads : {1, 2, 3}) {
    std::atomic<int> ended{0};
    Cache cache(0, SizeOfText);  // keeps no value: all are computed again and again
    WorkPool pool(threads);
    const Cancellation step = [&pool] {
      pool.GiveWay();
      return absl::OkStatus();
    };
    const std::function<absl::StatusOr<std::string>(int)> get = [&](int key) {
      const auto compute = [&, key]() -> absl::StatusOr<std::string> {
        const auto body = [&](size_t tile, size_t) {
          InterruptionPoint();
          if (key > 0 && tile % 2 == 0) {
            EXPECT_TRUE(get(key - 1).ok());
          }
        };
        EXPECT_TRUE(pool.ParallelFor(4, 1, step, body).ok());
        InterruptionPoint();
        return "value";
      };
      const auto found = cache.Get(std::to_string(key), compute);
      return found.ok() ? absl::StatusOr<std::string>(**found) : found.status();
    };
    for (int n = 0; n < kTasks; ++n) {
      const TaskOwner owner{std::string(1, static_cast<char>('a' + n % 5)), static_cast<uint64_t>(n % 2)};
      const auto task = [&, n] {
        const absl::Status status = RunInterruptibly(step, [&] {
          return pool.ParallelFor(3, 1, step, [&](size_t, size_t) { EXPECT_TRUE(get(n % kKeys).ok()); });
        });
        EXPECT_TRUE(status.ok());
        ++ended;
      };
      pool.Submit(task, n % 3 == 0 ? Lane::kSmall : Lane::kBulk, &owner);
    }
    if (!Wait([&] { return ended == kTasks; })) {
      ADD_FAILURE() << ended << " of " << kTasks << " tasks on " << threads << " threads have ended";
      std::abort();  // the pool's destructor would wait for the others
    }
  }
}

TEST_F(WorkPoolTurns, NestedTasksBeginAsIfAlone) {
  std::atomic<int64_t> charged{0};
  MemoryAccount account([&](int64_t bytes) { return charged += bytes, true; });
  Run([&] {
    const auto nested = [&] {
      EXPECT_EQ(InterruptionScope::Current(), nullptr);
      EXPECT_EQ(ActivityScope::Current(), Activity::kComputing);
      EXPECT_FALSE(WaitingLimit::IsOver());
      EXPECT_EQ(CurrentMemoryAccount(), nullptr);
      EXPECT_EQ(RealPrecision::Current(), RealPrecision::kDefault);
      ++count_;
    };
    const Cancellation gone = [] { return absl::CancelledError("gone"); };
    const InterruptionScope scope(&gone);
    const WaitingLimit none(std::chrono::milliseconds(0));
    const MemoryScope counted(&account);
    const RealPrecision precision(1200);
    const ActivityScope waiting(Activity::kWaiting);
    for (const Lane lane : {Lane::kSmall, Lane::kBulk}) pool_.Submit(nested, lane, &kB);
    EXPECT_TRUE(GiveWayUntil(2));
    EXPECT_EQ(RealPrecision::Current(), 1200);
    EXPECT_EQ(CurrentMemoryAccount(), &account);
  });
}

TEST_F(WorkPoolTurns, TheTimeOfNestedTasksIsKnown) {
  Clock::duration nested_time{0};
  Run([&] {
    const auto begin = Clock::now();
    const auto before = WorkPool::TimeBetweenSlabs();
    const auto nested = [&] {
      const auto nested_begin = Clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      nested_time = Clock::now() - nested_begin;
      ++count_;
    };
    pool_.Submit(nested, Lane::kSmall, &kB);
    EXPECT_TRUE(GiveWayUntil(1));
    const auto between = WorkPool::TimeBetweenSlabs() - before;
    EXPECT_GE(between, nested_time);
    EXPECT_LE(between, Clock::now() - begin);
  });
  EXPECT_GT(nested_time, Clock::duration(0));
}

// A task that reaches its next tile, or lets another run, is no long task, whatever the time since it began.
TEST_F(WorkPoolTurns, ATaskThatReachesItsNextTileIsNotLong) {
  constexpr std::chrono::milliseconds kTile(30);
  Run([&] {
    small_thread_.reset();  // it would be in a long task
    // A thread that has begun something since then has been in it for at most the time since then.
    auto before = Clock::now();
    const auto expect_none_longer = [&] {
      const auto time = Clock::now() - before;
      EXPECT_EQ(pool_.CountLongTasks(Clock::now() - before), 0U) << time.count();
    };
    const auto body = [&](size_t, size_t) {
      expect_none_longer();
      std::this_thread::sleep_for(kTile);
      EXPECT_EQ(pool_.CountLongTasks(kTile / 2), 1U);
      before = Clock::now();
    };
    EXPECT_TRUE(pool_.ParallelFor(4, 1, NeverCancelled, body).ok());
  });
  Run([&] {
    auto before = Clock::now();
    const size_t blocked = 1;  // the thread for small tasks
    const auto nested = [&] {
      EXPECT_EQ(pool_.CountLongTasks(Clock::now() - before), blocked);
      std::this_thread::sleep_for(kTile);
      before = Clock::now();
      ++count_;
    };
    std::this_thread::sleep_for(kTile);
    pool_.Submit(nested, Lane::kBulk, &kB);
    before = Clock::now();
    EXPECT_TRUE(GiveWayUntil(1));
    EXPECT_EQ(pool_.CountLongTasks(Clock::now() - before), blocked) << "of the outer task";
  });
}

}  // namespace
}  // namespace posenc

// Whose tasks a pool runs first: small ones before bulk ones, owners and connections in turn.
#include "posenc/base/work_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace posenc {
namespace {

// Collects what tasks write, in the order in which they write it, and which threads ran them.
class Notes {
 public:
  void Add(int note) {
    const std::lock_guard lock(mutex_);
    order_.push_back(note);
    threads_.insert(std::this_thread::get_id());
  }
  const std::vector<int>& order() const { return order_; }
  bool of_one_thread() const { return threads_.size() == 1; }

 private:
  std::mutex mutex_;
  std::vector<int> order_;
  std::set<std::thread::id> threads_;
};

// Runs a task on a pool with one thread, and returns what it and its tasks noted. The relief thread runs a small task
// if the only thread waits for a processor; then it tries again.
std::vector<int> OrderOnOneThread(const std::function<void(WorkPool* pool, Notes* notes)>& task) {
  for (;;) {
    Notes notes;
    {
      WorkPool pool(1);
      pool.Submit([&] { task(&pool, &notes); });
    }
    if (notes.of_one_thread()) return notes.order();
  }
}

// On one thread, small tasks run between a loop's slabs, one at a time, in order, and before earlier bulk tasks.
TEST(WorkPoolTurns, SmallTasksNeedNotWaitForALoop) {
  const auto order = OrderOnOneThread([](WorkPool* pool, Notes* notes) {
    const auto body = [=](size_t begin, size_t) {
      notes->Add(static_cast<int>(begin));
      if (begin != 1) return;
      pool->Submit([=] { notes->Add(100); }, Lane::kBulk);
      for (int n = 0; n < 3; ++n) {
        pool->Submit(
            [=] {
              // A small task's loop does not run other small tasks.
              EXPECT_TRUE(pool->ParallelFor(2, 1, NeverCancelled, [=](size_t, size_t) { notes->Add(10 + n); }).ok());
            },
            Lane::kSmall);
      }
    };
    EXPECT_TRUE(pool->ParallelFor(4, 1, NeverCancelled, body).ok());
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 10, 10, 2, 11, 11, 3, 12, 12, 100}));
}

// However many small tasks run between its slabs, a task that goes on is no long task.
TEST(WorkPoolTurns, ATaskMakesProgressBetweenSlabs) {
  size_t in_slab = 0, in_small_task = 1;
  std::thread::id worker, of_small_task;
  {
    WorkPool pool(1);
    pool.Submit([&] {
      const auto body = [&](size_t begin, size_t) {
        if (begin != 0) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        in_slab = pool.CountLongTasks(std::chrono::milliseconds(500));
        worker = std::this_thread::get_id();
        pool.Submit(
            [&] {
              in_small_task = pool.CountLongTasks(std::chrono::milliseconds(500));
              of_small_task = std::this_thread::get_id();
            },
            Lane::kSmall);
      };
      EXPECT_TRUE(pool.ParallelFor(2, 1, NeverCancelled, body).ok());
    });
  }
  EXPECT_EQ(in_slab, 1U);
  // The relief thread may have been faster, if this one had to wait for a processor.
  if (of_small_task == worker) {
    EXPECT_EQ(in_small_task, 0U);
  }
}

TEST(WorkPoolTurns, ATaskThatReachesItsNextSlabIsNotLong) {
  constexpr std::chrono::milliseconds kSlab(50);
  WorkPool pool(1);
  std::promise<void> ended;
  pool.Submit([&] {
    // The longest slab, in which the thread may have waited for a processor.
    std::chrono::steady_clock::duration slab{0};
    auto begun = std::chrono::steady_clock::now();
    size_t long_tasks = 0;
    const auto body = [&](size_t, size_t) {
      std::this_thread::sleep_for(kSlab);
      const auto now = std::chrono::steady_clock::now();
      slab = std::max(slab, now - std::exchange(begun, now));
      long_tasks = std::max(long_tasks, pool.CountLongTasks(slab + kSlab));
    };
    EXPECT_TRUE(pool.ParallelFor(8, 1, NeverCancelled, body).ok());
    EXPECT_EQ(long_tasks, 0U);
    ended.set_value();
  });
  ended.get_future().wait();
}

// Small tasks that take long do not all come before the next slabs of a bulk task.
TEST(WorkPoolTurns, SmallTasksDoNotStopALoop) {
  constexpr int kSmall = 100;
  std::atomic<int> ended = 0;
  int ended_before = 0;
  {
    WorkPool pool(1);
    pool.Submit([&] {
      const auto small = [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ++ended;
      };
      for (int n = 0; n < kSmall; ++n) pool.Submit(small, Lane::kSmall);
      EXPECT_TRUE(pool.ParallelFor(10 * kSmall, 1, NeverCancelled, [](size_t, size_t) {}).ok());
      ended_before = ended;
    });
  }
  EXPECT_EQ(ended, kSmall);
  EXPECT_GT(ended_before, 0);
  EXPECT_LT(ended_before, kSmall);
}

TEST(WorkPoolTurns, SmallTasksEndInTheirOrder) {
  const auto order = OrderOnOneThread([](WorkPool* pool, Notes* notes) {
    for (int n = 0; n < 50; ++n) {
      pool->Submit(
          [=] {
            EXPECT_TRUE(pool->ParallelFor(1, 1, NeverCancelled, [](size_t, size_t) {}).ok());
            notes->Add(n);
          },
          Lane::kSmall);
    }
  });
  std::vector<int> expected(50);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(WorkPoolTurns, SmallTasksOfAnotherConnectionNeedNotWaitForManyOfOne) {
  const auto order = OrderOnOneThread([](WorkPool* pool, Notes* notes) {
    const TaskOwner one{"owner", 1, 1}, another{"owner", 1, 2};
    for (int n = 0; n < 50; ++n) pool->Submit([=] { notes->Add(1); }, Lane::kSmall, &one);
    pool->Submit([=] { notes->Add(2); }, Lane::kSmall, &another);
  });
  EXPECT_LT(std::find(order.begin(), order.end(), 2) - order.begin(), 3);
  EXPECT_EQ(order.size(), 51U);
}

// A bulk task gets its turn, however many small tasks are queued.
TEST(WorkPoolTurns, SmallTasksDoNotStarveBulkOnes) {
  const auto order = OrderOnOneThread([](WorkPool* pool, Notes* notes) {
    for (int n = 0; n < 50; ++n) pool->Submit([=] { notes->Add(n); }, Lane::kSmall);
    pool->Submit([=] { notes->Add(-1); }, Lane::kBulk);
  });
  EXPECT_LT(std::find(order.begin(), order.end(), -1) - order.begin(), 20);
  EXPECT_EQ(order.size(), 51U);
}

// A loop lets another owner's loop run, and goes on before that one ends, whatever its length.
TEST(WorkPoolTurns, LoopsOfTwoOwnersTakeTurns) {
  const TaskOwner first{"first", 1}, second{"second", 0.01};  // which has saved ten milliseconds, not a second
  for (const size_t threads : {1, 2}) {
    std::atomic<bool> second_runs{false}, ended{false};
    std::promise<bool> saw_the_end;
    const auto work = [] { std::this_thread::sleep_for(std::chrono::microseconds(500)); };
    WorkPool pool(threads);
    const auto long_loop = [&] {
      const Cancellation until_the_end = [&] { return ended ? absl::CancelledError("seen") : absl::OkStatus(); };
      second_runs = true;
      saw_the_end.set_value(!pool.ParallelFor(20000, 1, until_the_end, [&](size_t, size_t) { work(); }).ok());
    };
    pool.Submit(
        [&] {
          pool.Submit(long_loop, Lane::kBulk, &second);
          const Cancellation until_it_runs = [&] { return second_runs ? absl::CancelledError("") : absl::OkStatus(); };
          EXPECT_FALSE(pool.ParallelFor(20000, 1, until_it_runs, [&](size_t, size_t) { work(); }).ok());
          EXPECT_TRUE(pool.ParallelFor(100, 1, NeverCancelled, [&](size_t, size_t) { work(); }).ok());
          ended = true;
        },
        Lane::kBulk, &first);
    EXPECT_TRUE(saw_the_end.get_future().get()) << threads << " threads";
  }
}

// The first owner computes alone for longer than what can be saved, in a task without slabs. The second one, which
// comes then, may use only kSavedSeconds before it is the first one's turn again.
TEST(WorkPoolTurns, WhoComesHasNotSavedTheTimeOfTheTaskThatRuns) {
  const TaskOwner first{"first", 1}, second{"second", 1};
  const auto sleep = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
  const auto order = OrderOnOneThread([&](WorkPool* pool, Notes* notes) {
    const auto long_task = [=, &first, &second] {
      sleep(1500);
      const auto note_after = [=](int note) {
        sleep(100);
        notes->Add(note);
      };
      for (int n = 0; n < 15; ++n) pool->Submit([=] { note_after(2); }, Lane::kBulk, &second);
      pool->Submit([=] { note_after(1); }, Lane::kBulk, &first);
    };
    pool->Submit(long_task, Lane::kBulk, &first);
  });
  EXPECT_LE(std::find(order.begin(), order.end(), 1) - order.begin(), 12);
}

// Each of many owners' loops, which take turns all the time, covers its items once; the pool waits for all of them.
TEST(WorkPoolTurns, LoopsOfManyOwnersEnd) {
  constexpr int kOwners = 12, kLoops = 6, kItems = 200;
  std::vector<TaskOwner> owners;
  for (int n = 0; n < kOwners; ++n) owners.push_back({"owner " + std::to_string(n), 1.0 + n % 3});
  for (const size_t threads : {1, 3}) {
    std::atomic<int> covered{0}, ended{0}, at_once{0}, most_at_once{0};
    {
      WorkPool pool(threads);
      for (int n = 0; n < kOwners * kLoops; ++n) {
        const auto loop = [&] {
          EXPECT_TRUE(pool.ParallelFor(kItems, 1, NeverCancelled,
                                       [&](size_t, size_t) {
                                         const int now = ++at_once;
                                         for (int most = most_at_once; most < now;) {
                                           most_at_once.compare_exchange_weak(most, now);
                                         }
                                         std::this_thread::sleep_for(std::chrono::microseconds(50));
                                         ++covered;
                                         --at_once;
                                       })
                          .ok());
          ++ended;
        };
        pool.Submit(loop, Lane::kBulk, &owners[n % kOwners]);
      }
      while (ended < kOwners * kLoops / 2) std::this_thread::yield();  // the others end with the pool
    }
    EXPECT_EQ(covered, kOwners * kLoops * kItems);
    EXPECT_LE(most_at_once, static_cast<int>(threads));
  }
}

// A loop that has let another owner's run ends soon after it is cancelled, although the other one goes on.
TEST(WorkPoolTurns, ACancelledLoopDoesNotWaitForItsTurn) {
  const TaskOwner first{"first", 1e-9}, second{"second", 1};
  WorkPool pool(1);
  std::atomic<bool> second_runs{false}, first_ended{false};
  std::promise<bool> saw_the_end;
  const auto work = [] { std::this_thread::sleep_for(std::chrono::microseconds(500)); };
  const auto long_loop = [&] {
    second_runs = true;
    const Cancellation until_the_end = [&] { return first_ended ? absl::CancelledError("seen") : absl::OkStatus(); };
    saw_the_end.set_value(!pool.ParallelFor(20000, 1, until_the_end, [&](size_t, size_t) { work(); }).ok());
  };
  pool.Submit(
      [&] {
        pool.Submit(long_loop, Lane::kBulk, &second);
        const Cancellation until_it_runs = [&] { return second_runs ? absl::CancelledError("") : absl::OkStatus(); };
        EXPECT_FALSE(pool.ParallelFor(20000, 1, until_it_runs, [&](size_t, size_t) { work(); }).ok());
        first_ended = true;
      },
      Lane::kBulk, &first);
  EXPECT_TRUE(saw_the_end.get_future().get());
}

// The cancellation of a loop that waits for its turn is told so, because waiting costs no steps.
TEST(WorkPoolTurns, ALoopThatWaitsForItsTurnTakesNoSteps) {
  constexpr int kSlabs = 1000;
  const TaskOwner first{"first", 1}, second{"second", 1};
  std::atomic<int> looks{0}, steps{0};
  std::atomic<bool> second_ended{false};
  std::promise<void> ended;
  {
    WorkPool pool(1);
    pool.Submit(
        [&] {
          pool.Submit(
              [&] {
                while (looks == 0) std::this_thread::yield();
                second_ended = true;
              },
              Lane::kBulk, &second);
          const Cancellation count = [&] {
            ++(ActivityScope::Current() == Activity::kWaiting ? looks : steps);
            return absl::OkStatus();
          };
          const auto body = [&](size_t, size_t) {
            if (!second_ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          };
          EXPECT_TRUE(pool.ParallelFor(kSlabs, 1, count, body).ok());
          ended.set_value();
        },
        Lane::kBulk, &first);
    ended.get_future().wait();  // a pool that ends lets each task end at once
  }
  EXPECT_GT(looks, 0);
  EXPECT_EQ(steps, kSlabs);
}

// A computation without loops lets another owner's run, except while others may wait for it.
TEST(WorkPoolTurns, ALongComputationGivesWay) {
  const TaskOwner first{"first", 1}, second{"second", 1};
  for (const bool awaited : {false, true}) {
    std::atomic<bool> second_ran{false};
    std::promise<void> ended;
    WorkPool pool(1);
    pool.Submit(
        [&] {
          const ActivityScope scope(awaited ? Activity::kAwaited : Activity::kComputing);
          pool.Submit([&] { second_ran = true; }, Lane::kBulk, &second);
          for (int n = 0; !second_ran && n < (awaited ? 50 : 20000); ++n) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            pool.GiveWay(NeverCancelled);
          }
          EXPECT_NE(second_ran, awaited);
          ended.set_value();
        },
        Lane::kBulk, &first);
    ended.get_future().wait();  // a pool that ends lets each task end at once
  }
}

// A helper leaves its loop for another owner's task, and helps again afterwards.
TEST(WorkPoolTurns, AHelperLeavesItsLoopForOthers) {
  const TaskOwner first{"first", 1}, second{"second", 1};
  std::atomic<int> slabs_of_helper{0}, slabs_at_the_end{-1};
  const auto wait_for = [](const auto& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return holds();
  };
  std::atomic<bool> helped_again{false};
  std::promise<void> done;
  {
    WorkPool pool(2);
    pool.Submit(
        [&] {
          const auto here = std::this_thread::get_id();
          const auto body = [&](size_t, size_t) {
            if (std::this_thread::get_id() != here) {
              ++slabs_of_helper;
              std::this_thread::sleep_for(std::chrono::milliseconds(20));
              return;
            }
            // One slab: this thread never reaches the next one, so only the helper can leave.
            EXPECT_TRUE(wait_for([&] { return slabs_of_helper > 0; }));
            pool.Submit([&] { slabs_at_the_end = slabs_of_helper.load(); }, Lane::kBulk, &second);
            helped_again = wait_for([&] { return slabs_at_the_end >= 0 && slabs_of_helper > slabs_at_the_end; });
          };
          const Cancellation until_then = [&] { return helped_again ? absl::CancelledError("") : absl::OkStatus(); };
          (void)pool.ParallelFor(100000, 1, until_then, body);
          done.set_value();
        },
        Lane::kBulk, &first);
    done.get_future().wait();
  }
  EXPECT_TRUE(helped_again);
}

TEST(WorkPoolTurns, ASmallTaskDoesNotWaitForLongSlabs) {
  WorkPool pool(2);
  std::promise<void> small_ran;
  const std::shared_future<void> ran = small_ran.get_future().share();
  std::atomic<int> in_slabs{0};
  std::vector<std::promise<void>> ended(2);
  for (std::promise<void>& end : ended) {
    pool.Submit([&] {
      ++in_slabs;
      ran.wait();  // a slab that lasts until the small task has run
      end.set_value();
    });
  }
  while (in_slabs < 2) std::this_thread::yield();
  pool.Submit([&] { small_ran.set_value(); }, Lane::kSmall);
  for (std::promise<void>& end : ended) end.get_future().wait();
}

}  // namespace
}  // namespace posenc

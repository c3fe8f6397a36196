#include "posenc/base/work_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace posenc {
namespace {

void OnThreads(int count, const std::function<void(int thread)>& body) {
  std::vector<std::thread> threads;
  for (int n = 0; n < count; ++n) threads.emplace_back([&body, n] { body(n); });
  for (std::thread& thread : threads) thread.join();
}

// Keeps the threads of a pool busy until it is destroyed, which must be before the pool.
class BusyThreadsOf {
 public:
  BusyThreadsOf(WorkPool* pool, int threads) {
    for (int n = 0; n < threads; ++n) {
      pool->Submit([this] {
        ++busy_;
        while (shut_) std::this_thread::yield();
        --busy_;
      });
    }
    while (busy_ < threads) std::this_thread::yield();
  }
  ~BusyThreadsOf() {
    shut_ = false;
    while (busy_ > 0) std::this_thread::yield();
  }

 private:
  std::atomic<bool> shut_{true};
  std::atomic<int> busy_{0};
};

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

// The seconds that a pool told of each owner.
class Bill {
 public:
  WorkPool::Meter meter() {
    return [this](const std::string& owner, double seconds) {
      const std::lock_guard lock(mutex_);
      seconds_[owner] += seconds;
    };
  }
  double Of(const std::string& owner) {
    const std::lock_guard lock(mutex_);
    return seconds_[owner];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, double> seconds_;
};

TEST(WorkPool, EachOwnerIsToldOfItsOwnTime) {
  constexpr std::chrono::milliseconds kWork(50);
  const TaskOwner first{"first", 1}, second{"second", 1};
  Bill bill;
  const auto begin = std::chrono::steady_clock::now();
  bool was_between = false;
  {
    WorkPool pool(1, bill.meter());
    std::promise<void> done;
    bool ended = false;
    const auto long_task = [&] {
      EXPECT_TRUE(
          pool.ParallelFor(3, 1, NeverCancelled, [&](size_t, size_t) { std::this_thread::sleep_for(kWork); }).ok());
      EXPECT_TRUE(pool.ChargeSoFar());
      EXPECT_GE(bill.Of("first"), 0.15) << "told before the task ends";
      ended = true;
    };
    pool.Submit(
        [&] {
          pool.Submit(
              [&] {
                was_between = !ended;
                std::this_thread::sleep_for(kWork);
              },
              Lane::kBulk, &second);
          long_task();
          done.set_value();
        },
        Lane::kBulk, &first);
    done.get_future().wait();  // a pool that ends lets each task end at once
  }
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_TRUE(was_between);
  EXPECT_GE(bill.Of("second"), 0.05);
  EXPECT_LE(bill.Of("first") + bill.Of("second"), all) << "time of one thread was told twice";
}

TEST(WorkPool, HelpersWorkOnAccountOfTheOwner) {
  const TaskOwner owner{"owner", 1};
  Bill bill;
  {
    WorkPool pool(2, bill.meter());
    std::atomic<bool> helped{false};
    const NoWorkStealing scope(Help::kIdleThreads, &owner);  // as on a thread that is not the pool's
    const auto here = std::this_thread::get_id();
    EXPECT_TRUE(pool.ParallelFor(2, 1, NeverCancelled,
                                 [&](size_t, size_t) {
                                   if (std::this_thread::get_id() != here) helped = true;
                                   while (!helped) std::this_thread::yield();  // one slab for each thread
                                 })
                    .ok());
  }
  EXPECT_GT(bill.Of("owner"), 0);
}

TEST(WorkPool, CoversEveryItemOnce) {
  WorkPool pool(3);
  for (const size_t count : {0, 1, 7, 64, 1000}) {
    for (const size_t grain : {0, 1, 7, 999, 5000}) {
      std::vector<int> visits(count);  // not atomic: two threads visiting one item are a data race
      const auto visit = [&](size_t begin, size_t end) {
        EXPECT_LE(end - begin, std::max<size_t>(grain, 1));
        for (size_t i = begin; i < end; ++i) ++visits[i];
      };
      EXPECT_TRUE(pool.ParallelFor(count, grain, NeverCancelled, visit).ok());
      EXPECT_EQ(visits, std::vector<int>(count, 1)) << count << " by " << grain;
    }
  }
}

TEST(WorkPool, RunsWhatWasSubmittedBeforeItEnds) {
  std::atomic<int> ran{0};
  {
    WorkPool pool(2);
    for (int n = 0; n < 1000; ++n) pool.Submit([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 1000);
}

// Threads spin for about fifty microseconds after a task, and a task submitted then wakes nobody.
TEST(WorkPool, ThrowsIfItCannotHaveItsThreads) {
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  constexpr rlim_t kMemory = rlim_t{1} << 30;  // is full of stacks long before all threads have one
  constexpr size_t kThreads = 10'000;
  const auto start = [] {
    const rlimit limit = {kMemory, kMemory};
    setrlimit(RLIMIT_AS, &limit);
    try {
      const WorkPool pool(kThreads);
    } catch (const std::system_error&) {
      std::_Exit(EXIT_SUCCESS);
    }
    std::_Exit(EXIT_FAILURE);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(EXIT_SUCCESS), "");
#else
  GTEST_SKIP() << "sanitizers need more virtual memory";
#endif
}

TEST(WorkPool, ATaskThatComesAsThreadsFallAsleepRuns) {
  std::atomic<int> ran{0};  // outlives the pool, whose destructor runs late tasks
  WorkPool pool(2);
  for (int pause = 0; pause < 4000; ++pause) {
    pool.Submit([&ran] { ++ran; });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (ran <= pause) ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "after a pause of " << pause % 200;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(pause % 200);
    while (std::chrono::steady_clock::now() < end) continue;
  }
}

// Nested loops run from pool threads and from others, more than there are threads: no loop may wait for itself.
TEST(WorkPool, LoopsMayBeNestedAndCalledFromEverywhere) {
  constexpr int kCallers = 6, kRounds = 60, kOuter = 8, kInner = 50;
  WorkPool pool(3);
  std::atomic<int> visits{0};
  const auto nested = [&] {
    const auto outer = [&](size_t, size_t) {
      std::vector<int> inner(kInner);
      EXPECT_TRUE(pool.ParallelFor(kInner, 3, NeverCancelled,
                                   [&](size_t begin, size_t end) {
                                     for (size_t i = begin; i < end; ++i) ++inner[i];
                                   })
                      .ok());
      for (const int visit : inner) visits += visit;
    };
    EXPECT_TRUE(pool.ParallelFor(kOuter, 1, NeverCancelled, outer).ok());
  };
  std::atomic<int> submitted_left{kRounds};
  for (int n = 0; n < kRounds; ++n) {
    pool.Submit([&] {
      nested();
      --submitted_left;
    });
  }
  OnThreads(kCallers, [&](int) {
    for (int n = 0; n < kRounds; ++n) nested();
  });
  while (submitted_left > 0) std::this_thread::yield();
  EXPECT_EQ(visits, (kCallers + 1) * kRounds * kOuter * kInner);
}

// The body's memory ends with the loop: a late helper must not touch it.
TEST(WorkPool, ACancelledLoopEndsWithTheFirstStatusAndLeavesNobodyBehind) {
  WorkPool pool(4);
  OnThreads(4, [&](int thread) {
    for (int round = 0; round < 300; ++round) {
      auto visits = std::make_unique<std::vector<int>>(64);
      std::atomic<int> asked{0};
      const int patience = (round + thread) % 70;
      const Cancellation cancelled = [&asked, patience] {
        return ++asked > patience ? absl::CancelledError("enough") : absl::OkStatus();
      };
      const absl::Status status = pool.ParallelFor(64, 1, cancelled, [&](size_t begin, size_t) { ++(*visits)[begin]; });
      EXPECT_EQ(status.code(), patience < 64 ? absl::StatusCode::kCancelled : absl::StatusCode::kOk);
      int sum = 0;
      for (const int visit : *visits) sum += visit;
      EXPECT_EQ(sum, std::min(patience, 64)) << "as often as it was allowed to";
      visits.reset();
    }
  });
}

// On one thread, small tasks run between a loop's slabs, one at a time, in order, and before earlier bulk tasks.
TEST(WorkPool, SmallTasksNeedNotWaitForALoop) {
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
TEST(WorkPool, ATaskMakesProgressBetweenSlabs) {
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

TEST(WorkPool, ATaskThatReachesItsNextSlabIsNotLong) {
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

// A loop does not wait for helpers that have not begun: many of them would only fill the queue.
TEST(WorkPool, HelpersOfEndedLoopsDoNotPileUp) {
  const TaskOwner owner{"owner", 1};
  std::atomic<int> tasks{0};
  {
    WorkPool pool(2, [&](const std::string&, double) { ++tasks; });
    const BusyThreadsOf busy(&pool, 2);
    const NoWorkStealing scope(Help::kIdleThreads, &owner);
    for (int n = 0; n < 1000; ++n) EXPECT_TRUE(pool.ParallelFor(2, 1, NeverCancelled, [](size_t, size_t) {}).ok());
  }
  EXPECT_GT(tasks, 0);
  EXPECT_LE(tasks, 8);
}

// Small tasks that take long do not all come before the next slabs of a bulk task.
TEST(WorkPool, SmallTasksDoNotStopALoop) {
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

TEST(WorkPool, SmallTasksEndInTheirOrder) {
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

TEST(WorkPool, SmallTasksOfAnotherConnectionNeedNotWaitForManyOfOne) {
  const auto order = OrderOnOneThread([](WorkPool* pool, Notes* notes) {
    const TaskOwner one{"owner", 1, 1}, another{"owner", 1, 2};
    for (int n = 0; n < 50; ++n) pool->Submit([=] { notes->Add(1); }, Lane::kSmall, &one);
    pool->Submit([=] { notes->Add(2); }, Lane::kSmall, &another);
  });
  EXPECT_LT(std::find(order.begin(), order.end(), 2) - order.begin(), 3);
  EXPECT_EQ(order.size(), 51U);
}

// A bulk task gets its turn, however many small tasks are queued.
TEST(WorkPool, SmallTasksDoNotStarveBulkOnes) {
  const auto order = OrderOnOneThread([](WorkPool* pool, Notes* notes) {
    for (int n = 0; n < 50; ++n) pool->Submit([=] { notes->Add(n); }, Lane::kSmall);
    pool->Submit([=] { notes->Add(-1); }, Lane::kBulk);
  });
  EXPECT_LT(std::find(order.begin(), order.end(), -1) - order.begin(), 20);
  EXPECT_EQ(order.size(), 51U);
}

TEST(WorkPool, WhoIsAloneRunsNoOthersTasksAndHasNoHelpers) {
  WorkPool pool(2);
  const BusyThreadsOf busy(&pool, 2);  // otherwise one of them would run the next task
  std::atomic<std::thread::id> ran_by;
  pool.Submit([&] { ran_by = std::this_thread::get_id(); }, Lane::kSmall);
  {
    const NoWorkStealing alone;
    size_t slabs = 0;
    EXPECT_TRUE(pool.ParallelFor(8, 1, NeverCancelled, [&](size_t, size_t) { ++slabs; }).ok());
    EXPECT_EQ(slabs, 8U);
    EXPECT_NE(ran_by.load(), std::this_thread::get_id());
  }
  EXPECT_TRUE(pool.ParallelFor(1, 1, NeverCancelled, [](size_t, size_t) {}).ok());
  // Others do, between slabs, unless the relief thread was faster.
  while (ran_by.load() == std::thread::id()) std::this_thread::yield();
}

TEST(WorkPool, WhoIsAloneDoesNotWaitForOtherTasksOfHelpers) {
  std::atomic<bool> open{false}, busy{false}, helps{false};
  const auto wait_for = [](const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::yield();
  };
  WorkPool pool(2);
  pool.Submit([&] {
    busy = true;
    wait_for(open);
  });
  wait_for(busy);
  const NoWorkStealing alone(Help::kIdleThreads);
  const auto here = std::this_thread::get_id();
  const auto body = [&](size_t, size_t) {
    if (std::this_thread::get_id() == here) return wait_for(helps);
    if (!helps) pool.Submit([&] { wait_for(open); }, Lane::kSmall);
    helps = true;
  };
  EXPECT_TRUE(pool.ParallelFor(3, 1, NeverCancelled, body).ok());  // else it waits for what is opened only now
  open = true;
}

// Its thread would wait meanwhile for the helper, which would run a task of any length.
TEST(WorkPool, ASmallTaskDoesNotWaitForOtherTasksOfHelpers) {
  const TaskOwner first{"first", 1}, other{"other", 100};
  std::atomic<int> slabs_of_helper{0};
  std::atomic<bool> submitted{false}, other_runs{false}, ended{false};
  const auto wait_for = [](const auto& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return holds();
  };
  std::promise<bool> saw_the_end;
  WorkPool pool(2);
  const auto small = [&] {
    const auto here = std::this_thread::get_id();
    const auto body = [&](size_t, size_t) {
      if (std::this_thread::get_id() != here) {
        ++slabs_of_helper;
        wait_for([&] { return submitted.load(); });
      } else {
        wait_for([&] { return slabs_of_helper >= 2 || other_runs; });
      }
    };
    EXPECT_TRUE(pool.ParallelFor(4, 1, NeverCancelled, body).ok());
    ended = true;
  };
  pool.Submit(small, Lane::kSmall, &first);
  wait_for([&] { return slabs_of_helper > 0; });
  const auto long_task = [&] {
    other_runs = true;
    saw_the_end.set_value(wait_for([&] { return ended.load(); }));
  };
  pool.Submit(long_task, Lane::kBulk, &other);
  submitted = true;
  EXPECT_TRUE(saw_the_end.get_future().get());
}

// Owners of such a weight have saved ten milliseconds, not a second, when they come.
constexpr double kLittleSaved = TaskQueue::kSavedSeconds / 0.01;

// A loop lets another owner's loop run, and goes on before that one ends, whatever its length.
TEST(WorkPool, LoopsOfTwoOwnersTakeTurns) {
  const TaskOwner first{"first", kLittleSaved}, second{"second", kLittleSaved};
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

// Each of many owners' loops, which take turns all the time, covers its items once; the pool waits for all of them.
TEST(WorkPool, LoopsOfManyOwnersEnd) {
  constexpr int kOwners = 12, kLoops = 6, kItems = 200;
  std::vector<TaskOwner> owners;
  for (int n = 0; n < kOwners; ++n) owners.push_back({"owner " + std::to_string(n), kLittleSaved * (1 + n % 3)});
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
TEST(WorkPool, ACancelledLoopDoesNotWaitForItsTurn) {
  const TaskOwner first{"first", kLittleSaved / 1e9}, second{"second", kLittleSaved};
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

// A helper leaves its loop for another owner's task, and helps again afterwards.
TEST(WorkPool, AHelperLeavesItsLoopForOthers) {
  const TaskOwner first{"first", kLittleSaved}, second{"second", kLittleSaved};
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

TEST(WorkPool, WhoIsAloneMayBeHelped) {
  WorkPool pool(2);
  const NoWorkStealing outer;
  const auto threads = [&] {
    std::mutex mutex;
    std::set<std::thread::id> seen;
    std::condition_variable both;
    const auto wait_for_two = [&](size_t, size_t) {
      std::unique_lock lock(mutex);
      seen.insert(std::this_thread::get_id());
      both.notify_all();
      both.wait_for(lock, std::chrono::seconds(5), [&] { return seen.size() == 2; });
    };
    EXPECT_TRUE(pool.ParallelFor(2, 1, NeverCancelled, wait_for_two).ok());
    return seen.size();
  };
  {
    const NoWorkStealing inner(Help::kIdleThreads);
    EXPECT_EQ(threads(), 2u);
  }
  std::set<std::thread::id> seen;
  EXPECT_TRUE(
      pool.ParallelFor(2, 1, NeverCancelled, [&](size_t, size_t) { seen.insert(std::this_thread::get_id()); }).ok());
  EXPECT_EQ(seen.size(), 1u);
}

// An endless slab, on the calling thread or on a helper, ends when its loop is cancelled.
TEST(WorkPool, ASlabIsInterrupted) {
  WorkPool pool(2);
  std::atomic<int> begun{0};
  const Cancellation cancelled = [&begun]() -> absl::Status {
    return begun == 2 ? absl::CancelledError("enough") : absl::OkStatus();
  };
  const absl::Status status = pool.ParallelFor(2, 1, cancelled, [&](size_t, size_t) {
    ++begun;
    for (;;) InterruptionPoint();
  });
  EXPECT_EQ(status, absl::CancelledError("enough"));
  InterruptionPoint();  // no effect: the interruptible scope has ended
}

// A small task that runs between the slabs of another caller's loop is not interrupted with that loop.
TEST(WorkPool, ATaskIsNotInterruptedForAnotherCaller) {
  WorkPool pool(1);
  std::atomic<bool> ran{false};
  absl::Status status;
  std::atomic<bool> ended{false};
  pool.Submit([&] {
    const Cancellation gone = [] { return absl::CancelledError("gone"); };
    status = RunInterruptibly(gone, [&] {
      pool.Submit(
          [&ran] {
            InterruptionPoint();
            ran = true;
          },
          Lane::kSmall);
      return pool.ParallelFor(1, 1, NeverCancelled, [](size_t, size_t) {});
    });
    ended = true;
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!ended || !ran) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_TRUE(status.ok());
}

TEST(WorkPool, ASlabOutOfMemoryFailsItsLoopAlone) {
  WorkPool pool(3);
  OnThreads(3, [&](int thread) {
    for (size_t round = 0; round < 100; ++round) {
      const absl::Status status = pool.ParallelFor(32, 1, NeverCancelled, [&](size_t begin, size_t) {
        if (thread != 0 && begin == round % 32) throw std::bad_alloc();
      });
      EXPECT_EQ(status.code(), thread == 0 ? absl::StatusCode::kOk : absl::StatusCode::kUnavailable);
    }
  });
}

TEST(WorkPool, ASmallTaskDoesNotWaitForLongSlabs) {
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

// Loops and tasks on a pool: each runs once, on account of its owner, and ends.
#include "posenc/base/work_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
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

// Threads spin for about fifty microseconds after a task, and a task submitted then wakes nobody.
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

}  // namespace
}  // namespace posenc

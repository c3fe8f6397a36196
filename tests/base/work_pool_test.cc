// Loops and tasks on a pool: each runs once and ends.
#include "posenc/base/work_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <future>
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

// The last task is on the thread for small tasks, while the others have nothing to do.
TEST(WorkPool, RunsWhatItsLastTaskSubmits) {
  std::atomic<bool> small_runs{false}, ends{false}, ran{false};
  auto pool = std::make_unique<WorkPool>(1);
  {
    const BusyThreadsOf busy(pool.get(), 1);
    pool->Submit(
        [&, to = pool.get()] {
          small_runs = true;
          while (!ends) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(50));  // in which the pool's other thread ends
          to->Submit([&] { ran = true; });
        },
        Lane::kSmall);
    while (!small_runs) std::this_thread::yield();
  }
  ends = true;
  pool.reset();
  EXPECT_TRUE(ran);
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
  const TaskOwner owner{"owner", 1}, other{"owner", 2};
  WorkPool pool(2);
  const BusyThreadsOf busy(&pool, 2);
  const auto loops = [&](const TaskOwner& of) {
    const NoWorkStealing scope(Help::kIdleThreads, &of);
    for (int n = 0; n < 1000; ++n) EXPECT_TRUE(pool.ParallelFor(2, 1, NeverCancelled, [](size_t, size_t) {}).ok());
    return pool.waiting();
  };
  const size_t of_one = loops(owner);
  EXPECT_GT(of_one, 0U);
  EXPECT_LE(of_one, 8U);
  EXPECT_EQ(loops(other), 2 * of_one) << "each connection may have as many";
}

// A task that a helper submits waits behind the other tasks of the loop's owner.
TEST(WorkPool, HelpersWorkForTheLoopsOwner) {
  const TaskOwner owner{"owner", 1}, other{"other", 1};
  std::string order;
  {
    WorkPool pool(2);
    const BusyThreadsOf busy(&pool, 1);
    std::atomic<bool> submitted{false};
    const NoWorkStealing scope(Help::kIdleThreads, &owner);
    const auto here = std::this_thread::get_id();
    const auto body = [&](size_t, size_t) {
      if (std::this_thread::get_id() != here && !submitted) {  // a helper may also have both tiles
        for (const char name : {'1', '2'}) pool.Submit([&order, name] { order += name; }, Lane::kBulk, &owner);
        pool.Submit([&order] { order += 'o'; }, Lane::kBulk, &other);
        pool.Submit([&order] { order += '3'; });
        submitted = true;
      }
      while (!submitted) std::this_thread::yield();
    };
    EXPECT_TRUE(pool.ParallelFor(2, 1, NeverCancelled, body).ok());
    while (pool.waiting() > 0) std::this_thread::yield();
  }
  EXPECT_EQ(order, "1o23");
}

TEST(WorkPool, RunsTaskTellsItsOwnThreads) {
  WorkPool pool(1), other(1);
  EXPECT_FALSE(pool.RunsTask());
  std::promise<void> done;
  pool.Submit([&] {
    EXPECT_TRUE(pool.RunsTask());
    EXPECT_FALSE(other.RunsTask());
    done.set_value();
  });
  done.get_future().wait();
}

TEST(WorkPool, ALoopHasHelpersUnlessItsThreadWantsNone) {
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

// An endless tile, on the calling thread or on a helper, ends when its loop is cancelled.
TEST(WorkPool, ATileIsInterrupted) {
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

TEST(WorkPool, ATileOutOfMemoryFailsItsLoopAlone) {
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

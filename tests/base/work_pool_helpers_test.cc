// Threads of a pool that help a loop: on whose account, for how long, and what runs on their stacks.
#include <atomic>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "posenc/base/work_pool.h"
#include "tests/base/blocked_threads.h"

namespace posenc {
namespace {

// A loop's caller waits for its helpers' tiles, but not for tasks that run on their stacks.
TEST(WorkPoolHelpers, NoneRunOnTheirStacks) {
  WorkPool pool(2);
  const BlockedSmallThread small(&pool);
  const Blocker bulk(&pool, Lane::kBulk);
  std::atomic<bool> helped{false}, ran{false};
  const NoWorkStealing alone(Help::kIdleThreads, &kA);
  const auto here = std::this_thread::get_id();
  const auto body = [&](size_t, size_t) {
    if (std::this_thread::get_id() == here) {
      EXPECT_TRUE(Wait(helped));
      return;
    }
    for (const Lane lane : {Lane::kSmall, Lane::kBulk}) pool.Submit([&] { ran = true; }, lane, &kB);
    for (int n = 0; n < 50; ++n) {
      pool.GiveWay();
      std::this_thread::sleep_for(WorkPool::kSmallTime / 10);
    }
    EXPECT_FALSE(ran);
    helped = true;
  };
  EXPECT_TRUE(pool.ParallelFor(2, 1, NeverCancelled, body).ok());
  EXPECT_TRUE(Wait(ran));
}

// A helper leaves its loop for another caller's task, or a small one, and helps again afterwards.
TEST(WorkPoolHelpers, AHelperLeavesItsLoopForOthers) {
  for (const Lane lane : {Lane::kBulk, Lane::kBlocking, Lane::kSmall}) {
    std::atomic<bool> ended{false};
    WorkPool pool(2);
    const BlockedSmallThread small(&pool);
    pool.Submit(
        [&] {
          std::atomic<int> tiles_of_helper{0}, tiles_at_the_end{-1};
          std::atomic<bool> helped_again{false};
          const auto here = std::this_thread::get_id();
          const auto body = [&](size_t, size_t) {
            if (std::this_thread::get_id() != here) {
              ++tiles_of_helper;
              std::this_thread::yield();
              return;
            }
            // One tile: this thread never reaches the next one, so only the helper can leave.
            EXPECT_TRUE(Wait([&] { return tiles_of_helper > 0; }));
            pool.Submit([&] { tiles_at_the_end = tiles_of_helper.load(); }, lane, &kB);
            helped_again = Wait([&] { return tiles_at_the_end >= 0 && tiles_of_helper > tiles_at_the_end; });
            EXPECT_TRUE(helped_again);
          };
          const Cancellation until_then = [&] { return helped_again ? absl::CancelledError("") : absl::OkStatus(); };
          (void)pool.ParallelFor(size_t{1} << 40, 1, until_then, body);
          ended = true;
        },
        Lane::kBulk, &kA);
    EXPECT_TRUE(Wait(ended));
  }
}

// A helper on the stack of another caller's task runs one tile, although nobody else waits and its loop has more.
TEST(WorkPoolHelpers, AHelperOnAnotherStackRunsOneTile) {
  WorkPool pool(2);
  std::atomic<bool> outer_runs{false}, loop_runs{false}, done{false}, loop_ended{false};
  std::atomic<int> tiles{0};
  pool.Submit(
      [&] {
        outer_runs = true;
        EXPECT_TRUE(Wait(loop_runs));
        EXPECT_TRUE(Wait([&] {
          pool.GiveWay();
          return tiles > 0;
        }));
        EXPECT_EQ(tiles, 1);
        done = true;
      },
      Lane::kBulk, &kA);
  EXPECT_TRUE(Wait(outer_runs));
  pool.Submit(
      [&] {
        const auto here = std::this_thread::get_id();
        const auto body = [&](size_t, size_t) {
          if (std::this_thread::get_id() != here) {
            ++tiles;
            return;
          }
          loop_runs = true;
          EXPECT_TRUE(Wait(done));
        };
        const Cancellation until_then = [&] { return done ? absl::CancelledError("") : absl::OkStatus(); };
        (void)pool.ParallelFor(1000, 1, until_then, body);
        loop_ended = true;
      },
      Lane::kBulk, &kB);
  EXPECT_TRUE(Wait(done));
  EXPECT_TRUE(Wait(loop_ended));
}

// Each of many callers' loops covers its items once; the pool waits for all of them.
TEST(WorkPoolHelpers, LoopsOfManyCallersEnd) {
  constexpr int kCallers = 12, kLoops = 6, kItems = 100;
  for (const size_t threads : {1, 3}) {
    std::atomic<int> covered{0}, ended{0}, now{0}, most{0};
    {
      WorkPool pool(threads);
      const auto body = [&](size_t, size_t) {
        const int in_body = ++now;
        for (int before = most; before < in_body && !most.compare_exchange_weak(before, in_body);) continue;
        std::this_thread::yield();
        ++covered;
        --now;
      };
      const auto loop = [&] {
        EXPECT_TRUE(pool.ParallelFor(kItems, 1, NeverCancelled, body).ok());
        ++ended;
      };
      for (int n = 0; n < kCallers * kLoops; ++n) {
        const TaskOwner owner{"caller " + std::to_string(n % kCallers), static_cast<uint64_t>(n % 2)};
        pool.Submit(loop, Lane::kBulk, &owner);
      }
      EXPECT_TRUE(Wait([&] { return ended >= kCallers * kLoops / 2; }));  // the others end with the pool
    }
    EXPECT_EQ(covered, kCallers * kLoops * kItems);
    EXPECT_LE(most, static_cast<int>(threads));
  }
}

}  // namespace
}  // namespace posenc

#include "posenc/base/memory_account.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/work_pool.h"

namespace posenc {
namespace {

constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20, kAll = std::numeric_limits<int64_t>::max();

TEST(MemoryAccount, ChargesMoreThanIsHeldInFewSteps) {
  int64_t charged = 0;
  int charges = 0;
  MemoryAccount account([&](int64_t bytes) {
    charged += bytes;
    ++charges;
    return true;
  });
  EXPECT_TRUE(account.Add(32 * kKiB));
  EXPECT_EQ(charges, 0) << "small calls are not charged";
  for (int n = 0; n < 1024; ++n) EXPECT_TRUE(account.Add(kKiB));
  EXPECT_EQ(charged, kMiB);
  EXPECT_EQ(account.charged(), charged);
  EXPECT_EQ(charges, 16);
  EXPECT_TRUE(account.Add(100 * kMiB));
  EXPECT_EQ(charged, 101 * kMiB);
  EXPECT_EQ(charges, 17);
}

TEST(MemoryAccount, ShrinksToWhatIsHeld) {
  MemoryAccount account([](int64_t) { return true; });
  account.Add(10 * kMiB);
  account.Add(kMiB);
  EXPECT_EQ(account.Shrink(kAll), 0);
  account.Remove(10 * kMiB);
  EXPECT_EQ(account.Shrink(kAll), 10 * kMiB);
  EXPECT_EQ(account.charged(), kMiB);
  account.Remove(5 * kMiB);  // a block that was allocated outside
  EXPECT_EQ(account.Shrink(kAll), kMiB);
  EXPECT_TRUE(account.Add(kMiB));
  EXPECT_EQ(account.charged(), kMiB);
}

TEST(MemoryAccount, ForgetsWhatOthersReleased) {
  MemoryAccount account([](int64_t) { return true; });
  account.Add(kMiB + 32 * kKiB);
  const int64_t kept = account.held();
  account.Add(5 * kMiB);
  EXPECT_EQ(account.Shrink(kept), 5 * kMiB);
  EXPECT_EQ(account.charged(), kMiB);
}

TEST(MemoryAccount, AsksNoMoreOnceRefused) {
  int asked = 0;
  MemoryAccount account([&](int64_t) { return ++asked < 2; });
  EXPECT_TRUE(account.Add(kMiB));
  EXPECT_FALSE(account.refused());
  EXPECT_FALSE(account.Add(kMiB));
  EXPECT_FALSE(account.Add(kMiB));
  EXPECT_TRUE(account.refused());
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(account.charged(), kMiB);
}

TEST(MemoryScope, IsOfTheThreadAndTheInnermostApplies) {
  MemoryAccount account([](int64_t) { return true; });
  EXPECT_EQ(CurrentMemoryAccount(), nullptr);
  {
    const MemoryScope scope(&account);
    EXPECT_EQ(CurrentMemoryAccount(), &account);
    {
      const MemoryScope none(nullptr);
      EXPECT_EQ(CurrentMemoryAccount(), nullptr);
    }
    WorkPool pool(2);
    EXPECT_TRUE(
        pool.ParallelFor(8, 1, NeverCancelled, [](size_t, size_t) { EXPECT_EQ(CurrentMemoryAccount(), nullptr); })
            .ok());
    EXPECT_EQ(CurrentMemoryAccount(), &account);
  }
  EXPECT_EQ(CurrentMemoryAccount(), nullptr);
}

TEST(CountedBytes, AreTheCallersAndThoseOfALoopOfEachThread) {
  int64_t charged = 0;
  MemoryAccount account([&](int64_t bytes) {
    charged += bytes;
    return charged <= 3 * kMiB;
  });
  const MemoryScope scope(&account);
  {
    const CountedBytes counted(kMiB);
    EXPECT_FALSE(counted.refused());
    EXPECT_EQ(account.held(), kMiB);
  }
  EXPECT_EQ(account.held(), 0);
  WorkPool pool(2);
  const auto held_is = [&](int64_t bytes) { return [&, bytes](size_t, size_t) { EXPECT_EQ(account.held(), bytes); }; };
  EXPECT_TRUE(pool.ParallelFor(1, 1, NeverCancelled, held_is(kMiB), kMiB).ok()) << "one slab has one thread";
  EXPECT_TRUE(pool.ParallelFor(8, 1, NeverCancelled, held_is(2 * kMiB), kMiB).ok());
  EXPECT_EQ(account.held(), 0);
  int slabs = 0;
  const absl::Status status = pool.ParallelFor(
      8, 1, NeverCancelled, [&](size_t, size_t) { ++slabs; }, 2 * kMiB);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(slabs, 0);
}

}  // namespace
}  // namespace posenc

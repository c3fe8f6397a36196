#include "server/core/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace posenc::server {
namespace {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;

TEST(BufferPool, GivesAtMostAnEighthMoreThanWasAsked) {
  BufferPool pool(0);
  for (const size_t size : {size_t{0}, size_t{1}, 64 * kKiB - 1, 64 * kKiB, 64 * kKiB + 1, 100 * kKiB, 3 * kMiB + 7}) {
    const BufferPool::Block block = pool.Take(size);
    EXPECT_GE(block.capacity, size);
    EXPECT_LE(block.capacity, std::max<size_t>(size + size / 8, 1));
    std::memset(block.data, 1, block.capacity);
    pool.Give(block);
  }
}

TEST(BufferPool, TakesWhatWasGivenLast) {
  BufferPool pool(16 * kMiB);
  const BufferPool::Block a = pool.Take(kMiB), b = pool.Take(kMiB), other = pool.Take(2 * kMiB);
  for (const BufferPool::Block& block : {a, b, other}) pool.Give(block);
  EXPECT_EQ(pool.counters().bytes, static_cast<int64_t>(4 * kMiB));
  const BufferPool::Block again = pool.Take(kMiB - 1);
  EXPECT_EQ(again.data, b.data);
  EXPECT_EQ(pool.Take(kMiB).data, a.data);
  const BufferPool::Block fresh = pool.Take(kMiB);
  EXPECT_EQ(pool.counters().reused, 2);
  EXPECT_EQ(pool.counters().allocated, 4);
  EXPECT_EQ(pool.counters().bytes, static_cast<int64_t>(2 * kMiB));
  for (const BufferPool::Block& block : {a, b, fresh}) pool.Give(block);
}

TEST(BufferPool, LetsTheOldestGo) {
  BufferPool pool(3 * kMiB);
  const BufferPool::Block a = pool.Take(2 * kMiB), b = pool.Take(kMiB), c = pool.Take(kMiB);
  for (const BufferPool::Block& block : {a, b, c}) pool.Give(block);  // a is dropped
  EXPECT_EQ(pool.counters().bytes, static_cast<int64_t>(2 * kMiB));
  const BufferPool::Block large = pool.Take(4 * kMiB);
  pool.Give(large);  // too large to be kept
  EXPECT_EQ(pool.counters().bytes, static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(pool.Take(kMiB).data, c.data);
  EXPECT_EQ(pool.Take(kMiB).data, b.data);
  EXPECT_EQ(pool.counters().bytes, 0);
  pool.Give(b);
  pool.Give(c);
}

TEST(BufferPool, NeverGivesABlockTwice) {
  BufferPool pool(2 * kMiB);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&pool, thread] {
      for (int n = 0; n < 500; ++n) {
        const BufferPool::Block block = pool.Take((64 + 64 * (n % 5)) * kKiB);
        block.data[0] = static_cast<std::byte>(thread);
        std::this_thread::yield();
        EXPECT_EQ(block.data[0], static_cast<std::byte>(thread));
        pool.Give(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool.counters().bytes, static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(pool.counters().reused + pool.counters().allocated, 2000);
}

}  // namespace
}  // namespace posenc::server

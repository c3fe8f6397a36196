#include "posenc/base/shared_cache.h"

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace posenc {
namespace {

using Cache = SharedCache<std::string>;

size_t SizeOfText(const std::string& text) { return text.size(); }

// A cache that counts how often values are computed.
class SharedCacheTest : public testing::Test {
 protected:
  std::string Get(const std::string& key, size_t size = 1000) {
    return **cache_.Get(key, [&]() -> absl::StatusOr<std::string> {
      ++computed_;
      return key + std::string(size - key.size(), '.');
    });
  }

  Cache cache_{10000, SizeOfText};
  int computed_ = 0;
};

TEST_F(SharedCacheTest, ComputesOnce) {
  EXPECT_EQ(Get("a"), Get("a"));
  EXPECT_NE(Get("a"), Get("b"));
  EXPECT_EQ(computed_, 2);
  EXPECT_EQ(cache_.counters().hits, 2);
  EXPECT_EQ(cache_.counters().misses, 2);
}

TEST_F(SharedCacheTest, DropsTheLeastRecentlyUsed) {
  for (const char* key : {"a", "b", "c", "d", "e", "f"}) Get(key);
  Get("a");
  Get("g");  // seven entries of about 1510 bytes exceed the limit: "b" is dropped
  EXPECT_LE(cache_.counters().bytes, 10000);
  EXPECT_EQ(computed_, 7);
  Get("a");
  EXPECT_EQ(computed_, 7);
  Get("b");
  EXPECT_EQ(computed_, 8);
}

TEST_F(SharedCacheTest, DoesNotKeepWhatIsLargerThanItself) {
  Get("small");
  EXPECT_EQ(Get("large", 20000).size(), 20000U);
  EXPECT_LE(cache_.counters().bytes, 10000);
  Get("large", 20000);
  EXPECT_EQ(computed_, 3);
}

TEST_F(SharedCacheTest, KeepsNothingWithoutBytes) {
  Get("a");
  cache_.SetMaxBytes(0);
  EXPECT_EQ(cache_.counters().bytes, 0);
  Get("a");
  Get("a");
  EXPECT_EQ(computed_, 3);
  EXPECT_EQ(cache_.counters().bytes, 0);
}

TEST_F(SharedCacheTest, DoesNotKeepErrors) {
  int tries = 0;
  const auto fail = [&]() -> absl::StatusOr<std::string> {
    ++tries;
    return absl::InvalidArgumentError("no");
  };
  EXPECT_EQ(cache_.Get("a", fail).status().message(), "no");
  EXPECT_EQ(cache_.Get("a", fail).status().message(), "no");
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(Get("a").front(), 'a');
}

TEST_F(SharedCacheTest, DoesNotKeepExceptions) {
  const auto fail = []() -> absl::StatusOr<std::string> { throw std::runtime_error("no"); };
  EXPECT_THROW((void)cache_.Get("a", fail), std::runtime_error);
  EXPECT_EQ(Get("a").front(), 'a');
}

TEST_F(SharedCacheTest, FindsWhatIsKeptAndComputesNothing) {
  EXPECT_EQ(cache_.Find("a"), nullptr);
  Get("a");
  ASSERT_NE(cache_.Find("a"), nullptr);
  EXPECT_EQ(*cache_.Find("a"), Get("a"));
  EXPECT_EQ(computed_, 1);
  EXPECT_EQ(cache_.counters().hits, 3);
  EXPECT_EQ(cache_.counters().misses, 1);
}

int64_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();  // zeros under sanitizers
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Many small values: what the cache allocates for each counts, too.
TEST(SharedCacheMemoryTest, CountsWhatItAllocates) {
  struct Small {
    std::vector<double> values = {1, 2};
    std::string text = "longer than a short string";
  };
  const int64_t before = AllocatedBytes();
  SharedCache<Small> cache(size_t{1} << 30, [](const Small& small) {
    return sizeof(small) + small.values.capacity() * sizeof(double) + small.text.capacity();
  });
  for (int n = 0; n < 15000; ++n) {  // the map has just grown at 14,336
    ASSERT_TRUE(
        cache.Get(std::to_string(n) + std::string(100, '.'), [] { return absl::StatusOr<Small>(Small()); }).ok());
  }
  EXPECT_LE(AllocatedBytes() - before, cache.counters().bytes);
}

TEST(SharedCacheThreadsTest, FindDoesNotWaitForWhatIsBeingComputed) {
  Cache cache(1 << 20, SizeOfText);
  EXPECT_TRUE(cache
                  .Get("key",
                       [&]() -> absl::StatusOr<std::string> {
                         EXPECT_EQ(cache.Find("key"), nullptr);
                         EXPECT_EQ(ActivityScope::Current(), Activity::kAwaited);
                         return "value";
                       })
                  .ok());
  EXPECT_NE(cache.Find("key"), nullptr);
  EXPECT_EQ(ActivityScope::Current(), Activity::kComputing);
}

TEST(SharedCacheThreadsTest, OneComputesWhileTheOthersWait) {
  Cache cache(1 << 20, SizeOfText);
  std::atomic<int> computed = 0, wanted = 0;
  constexpr int kThreads = 8;
  std::vector<std::shared_ptr<const std::string>> results(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ++wanted;
      results[i] = *cache.Get("key", [&]() -> absl::StatusOr<std::string> {
        while (wanted < kThreads) std::this_thread::yield();
        ++computed;
        return "value";
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(computed, 1);
  EXPECT_EQ(cache.counters().hits, kThreads - 1);
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

// Another caller's lack of memory is not this one's.
TEST(SharedCacheThreadsTest, AWaiterTakesOverWhatLackedMemory) {
  Cache cache(10000, SizeOfText);
  std::atomic<bool> computing{false};
  std::thread first([&] {
    EXPECT_THROW((void)cache.Get("key",
                                 [&]() -> absl::StatusOr<std::string> {
                                   computing = true;
                                   std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                   throw std::bad_alloc();
                                 }),
                 std::bad_alloc);
  });
  while (!computing) std::this_thread::yield();
  const auto found = cache.Get("key", []() -> absl::StatusOr<std::string> { return "value"; });
  first.join();
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(**found, "value");
}

// The computing caller gives up, and a caller that waits for the same value computes it.
TEST(SharedCacheThreadsTest, AWaiterTakesOverWhatWasInterrupted) {
  Cache cache(10000, SizeOfText);
  std::atomic<bool> computing{false}, gone{false};
  std::thread first([&] {
    const Cancellation cancelled = [&gone] { return gone ? absl::CancelledError("gone") : absl::OkStatus(); };
    const absl::Status status = RunInterruptibly(cancelled, [&] {
      return cache
          .Get("key",
               [&]() -> absl::StatusOr<std::string> {
                 computing = true;
                 for (;;) InterruptionPoint();
               })
          .status();
    });
    EXPECT_EQ(status, absl::CancelledError("gone"));
  });
  while (!computing) std::this_thread::yield();
  std::thread second([&] {
    const auto value = cache.Get("key", []() -> absl::StatusOr<std::string> { return "value"; });
    EXPECT_EQ(**value, "value");
  });
  while (cache.counters().hits == 0) std::this_thread::yield();  // the second caller waits
  gone = true;
  first.join();
  second.join();
}

// A caller that gives up stops waiting for a value that another caller computes.
TEST(SharedCacheThreadsTest, WaitingIsInterrupted) {
  Cache cache(10000, SizeOfText);
  std::atomic<bool> computing{false}, ended{false};
  std::thread first([&] {
    cache
        .Get("key",
             [&]() -> absl::StatusOr<std::string> {
               computing = true;
               while (!ended) std::this_thread::yield();
               return "value";
             })
        .IgnoreError();
  });
  while (!computing) std::this_thread::yield();
  const Cancellation gone = [] {
    EXPECT_EQ(ActivityScope::Current(), Activity::kWaiting);
    return absl::CancelledError("gone");
  };
  const absl::Status status = RunInterruptibly(
      gone, [&] { return cache.Get("key", []() -> absl::StatusOr<std::string> { return "other"; }).status(); });
  EXPECT_EQ(status, absl::CancelledError("gone"));
  ended = true;
  first.join();
}

// Few of the many keys fit: entries are added, awaited and dropped at the same time.
TEST(SharedCacheThreadsTest, WhoMustNotWaitLongIsStopped) {
  Cache cache(10000, SizeOfText);
  const auto value = []() -> absl::StatusOr<std::string> { return "value"; };
  const WaitingLimit no_waiting(std::chrono::milliseconds(0));
  cache
      .Get("key",
           [&]() -> absl::StatusOr<std::string> {
             std::thread([&] {
               EXPECT_EQ(**cache.Get("other", value), "value");
               const WaitingLimit for_a_moment(std::chrono::milliseconds(1));
               EXPECT_THROW(cache.Get("key", value).IgnoreError(), ComputationStopped);
             }).join();
             return "value";
           })
      .IgnoreError();
  EXPECT_EQ(**cache.Get("key", value), "value") << "what is there needs no waiting";
}

TEST(SharedCacheThreadsTest, StaysWithinItsBytes) {
  Cache cache(5000, SizeOfText);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&cache, i] {
      for (uint32_t n = 0; n < 2000; ++n) {
        const std::string key = std::to_string((n * 7919 + i) % 16);
        const auto value = cache.Get(key, [&]() -> absl::StatusOr<std::string> { return key + std::string(900, '.'); });
        ASSERT_EQ((*value)->substr(0, key.size()), key);
        ASSERT_LE(cache.counters().bytes, 5000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Runs `work` in a forked child. Returns false if it does not return true there, or hangs.
bool InChild(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(SharedCacheTest, AForkedChildComputesWhatItsParentWasComputing) {
  Get("a");
  std::promise<void> begun, ends;
  std::thread other([&] {
    (void)cache_.Get("b", [&]() -> absl::StatusOr<std::string> {
      begun.set_value();
      ends.get_future().wait();
      return "parent";
    });
  });
  begun.get_future().wait();
  EXPECT_TRUE(InChild([this] {
    const int before = computed_;
    return Get("b") == Get("b") && Get("a") == Get("a") && computed_ == before + 1;
  }));
  ends.set_value();
  other.join();
  EXPECT_EQ(Get("b", 6), "parent");
}

TEST_F(SharedCacheTest, AForkedChildFindsItUnlocked) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([this, &stop] {
      while (!stop) cache_.Find("a");
    });
  }
  int failed = 0;
  for (int n = 0; n < 50 && failed == 0; ++n) {
    failed += !InChild([this] { return Get("a") == Get("a"); });
  }
  EXPECT_EQ(failed, 0);
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace posenc

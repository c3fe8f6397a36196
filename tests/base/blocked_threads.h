// Waits of tests, and threads of a pool that are kept busy.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/work_pool.h"

namespace posenc {

inline const TaskOwner kA{"a", 1}, kB{"b", 1}, kC{"c", 1};

// Waits for something that must happen, and otherwise returns false after a minute.
template <class Holds>
bool Wait(const Holds& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::yield();
  }
  return true;
}
inline bool Wait(const std::atomic<bool>& happened) {
  return Wait([&] { return happened.load(); });
}

// Submits a task, and waits until it has begun. It ends with this object.
class Blocker {
 public:
  Blocker(WorkPool* pool, Lane lane) {
    pool->Submit(
        [this] {
          begun_ = true;
          Wait(released_);
          ended_ = true;
        },
        lane);
    EXPECT_TRUE(Wait(begun_));
  }
  ~Blocker() {
    released_ = true;
    EXPECT_TRUE(Wait(ended_));
  }

 private:
  std::atomic<bool> begun_{false}, released_{false}, ended_{false};
};

// Keeps the thread for small tasks busy. The others must have nothing to do before.
class BlockedSmallThread {
 public:
  explicit BlockedSmallThread(WorkPool* pool) {
    std::vector<std::unique_ptr<Blocker>> others;
    for (size_t n = 0; n < pool->threads(); ++n) others.push_back(std::make_unique<Blocker>(pool, Lane::kBulk));
    blocker_.emplace(pool, Lane::kSmall);
  }

 private:
  std::optional<Blocker> blocker_;
};

}  // namespace posenc

// Records when threads began their current task, for a watchdog.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <vector>

namespace posenc {

// Thread-safe.
class BusyThreads {
 public:
  explicit BusyThreads(size_t threads) : since_(threads) {}

  // Called by thread number `thread`, from 0, around each of its tasks.
  void Begin(size_t thread) { since_[thread] = Clock::now().time_since_epoch().count(); }
  void End(size_t thread) { since_[thread] = 0; }

  // Number of threads that have been in one task for longer than `time`.
  size_t CountLongerThan(std::chrono::steady_clock::duration time) const {
    const Clock::rep latest = (Clock::now() - time).time_since_epoch().count();
    return static_cast<size_t>(std::count_if(since_.begin(), since_.end(), [latest](const auto& since) {
      const Clock::rep at = since;
      return at != 0 && at < latest;
    }));
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<std::atomic<Clock::rep>> since_;  // 0: not busy
};

}  // namespace posenc

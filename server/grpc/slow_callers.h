// Callers whose calls took longer than a receiving thread may.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>

namespace posenc::server {

// Remembers a caller for a moment, in which its calls begin on the pool: each would again take some of the receiving
// thread's time before it moves there. Thread-safe. Standard types only, so that it runs under ThreadSanitizer.
class SlowCallers {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kMoment{100};

  // True if the caller was added within the last moment. `name` returns the caller's; it is called only if there may be
  // any.
  template <typename Name>
  bool Has(const Name& name, Clock::time_point now = Clock::now()) const {
    if (last_.load(std::memory_order_relaxed) <= now - kMoment) return false;
    const std::lock_guard lock(mutex_);
    const auto found = added_.find(name());
    return found != added_.end() && found->second > now - kMoment;
  }

  void Add(const std::string& name, Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    std::erase_if(added_, [now](const auto& one) { return one.second <= now - kMoment; });
    added_[name] = now;
    last_ = now;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Clock::time_point> added_;  // when; the work that adds one takes time, so they are few
  std::atomic<Clock::time_point> last_{Clock::time_point::min() + kMoment};
};

}  // namespace posenc::server

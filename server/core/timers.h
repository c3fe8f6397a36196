// Timers for all calls, which run actions on one thread. Does not use gRPC, so that it runs under ThreadSanitizer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace posenc::server {

class Timers {
  using Key = std::pair<std::chrono::steady_clock::time_point, uint64_t>;

 public:
  // Handle of a pending action; revokes it on destruction. Must not outlive its Timers.
  class Timer {
   public:
    Timer() = default;
    Timer(Timer&& other) noexcept
        : timers_(std::exchange(other.timers_, nullptr)), key_(other.key_), ends_wait_(other.ends_wait_) {}
    Timer& operator=(Timer&& other) noexcept;
    ~Timer() { Revoke(); }

    // Cancels the action, or waits for it if it is running: what it refers to may be destroyed afterwards. On the timer
    // thread (within an action) it returns at once.
    void Revoke();

   private:
    friend class Timers;
    Timers* timers_ = nullptr;
    Key key_;
    bool ends_wait_ = false;
  };

  Timers() : thread_([this] { Run(); }) {}
  // Waits for a running action; pending ones are dropped.
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  // Runs the action at `time` on the timer thread. It should be short: other actions wait for it. An exception is
  // logged. Thread-safe.
  [[nodiscard]] Timer At(std::chrono::steady_clock::time_point time, std::function<void()> action);
  // Runs the action at the end of a wait for a caller, `wait` from now. LimitWaits() can shorten it. Thread-safe.
  [[nodiscard]] Timer After(std::chrono::steady_clock::duration wait, std::function<void()> action);
  // From now on no wait lasts longer than `longest`. Those in progress end at the latest so long from now, and those
  // that begin later a sixth of `longest` after that. Call it at most once.
  void LimitWaits(std::chrono::steady_clock::duration longest);

 private:
  struct Action {
    std::function<void()> run;
    bool ends_wait = false;
  };

  void Run();
  Timer Add(std::chrono::steady_clock::time_point time, Action action);  // requires mutex_

  std::mutex mutex_;
  std::condition_variable changed_, ended_;
  std::map<Key, Action> actions_;
  uint64_t last_ = 0;
  uint64_t running_ = 0;  // number of the running action; 0: none
  std::chrono::steady_clock::time_point wakes_at_ = std::chrono::steady_clock::time_point::min();
  std::chrono::steady_clock::duration longest_wait_ = std::chrono::steady_clock::duration::max();
  // The latest end of waits that were in progress at LimitWaits(), and of later ones.
  std::chrono::steady_clock::time_point waits_end_ = std::chrono::steady_clock::time_point::max();
  std::chrono::steady_clock::time_point later_waits_end_ = std::chrono::steady_clock::time_point::max();
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace posenc::server

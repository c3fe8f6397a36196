// Timers for all calls, which run actions on one thread. Standard types only, so that it runs under ThreadSanitizer.
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
    Timer(Timer&& other) noexcept : timers_(std::exchange(other.timers_, nullptr)), key_(other.key_) {}
    Timer& operator=(Timer&& other) noexcept;
    ~Timer() { Revoke(); }

    // Cancels the action, or waits for it if it is running: what it refers to may be destroyed afterwards. On the timer
    // thread (within an action) it returns at once.
    void Revoke();

   private:
    friend class Timers;
    Timers* timers_ = nullptr;
    Key key_;
  };

  Timers() : thread_([this] { Run(); }) {}
  // Waits for a running action; pending ones are dropped.
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  // Runs the action at `time` on the timer thread. It should be short: other actions wait for it. Thread-safe.
  [[nodiscard]] Timer At(std::chrono::steady_clock::time_point time, std::function<void()> action);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_, ended_;
  std::map<Key, std::function<void()>> actions_;
  uint64_t last_ = 0;
  uint64_t running_ = 0;  // number of the running action; 0: none
  std::chrono::steady_clock::time_point wakes_at_ = std::chrono::steady_clock::time_point::min();
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace posenc::server

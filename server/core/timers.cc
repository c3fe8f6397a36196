#include "server/core/timers.h"

namespace posenc::server {

Timers::Timer& Timers::Timer::operator=(Timer&& other) noexcept {
  if (this != &other) {
    Revoke();
    timers_ = std::exchange(other.timers_, nullptr);
    key_ = other.key_;
  }
  return *this;
}

void Timers::Timer::Revoke() {
  Timers* const timers = std::exchange(timers_, nullptr);
  if (timers == nullptr) return;
  std::unique_lock lock(timers->mutex_);
  timers->actions_.erase(key_);
  if (std::this_thread::get_id() == timers->thread_.get_id()) return;
  timers->ended_.wait(lock, [&] { return timers->running_ != key_.second; });
}

Timers::~Timers() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Timers::Timer Timers::At(std::chrono::steady_clock::time_point time, std::function<void()> action) {
  Timer timer;
  timer.timers_ = this;
  std::lock_guard lock(mutex_);
  timer.key_ = {time, ++last_};
  actions_.emplace(timer.key_, std::move(action));
  // Revoke() does not wake the thread: with equal timeouts the thread then wakes once in a while, not for each call.
  if (time < wakes_at_) changed_.notify_all();
  return timer;
}

void Timers::Run() {
  using std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (actions_.empty()) {
      wakes_at_ = steady_clock::time_point::max();
      changed_.wait(lock);
      continue;
    }
    const auto first = actions_.begin();
    if (first->first.first > steady_clock::now()) {
      wakes_at_ = first->first.first;
      changed_.wait_until(lock, wakes_at_);
      continue;
    }
    {
      const std::function<void()> action = std::move(first->second);
      running_ = first->first.second;
      actions_.erase(first);
      lock.unlock();
      action();
      lock.lock();
    }
    running_ = 0;
    ended_.notify_all();
  }
}

}  // namespace posenc::server

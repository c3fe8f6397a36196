#include "server/core/timers.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "server/core/log.h"

namespace posenc::server {

Timers::Timer& Timers::Timer::operator=(Timer&& other) noexcept {
  if (this != &other) {
    Revoke();
    timers_ = std::exchange(other.timers_, nullptr);
    key_ = other.key_;
    ends_wait_ = other.ends_wait_;
  }
  return *this;
}

void Timers::Timer::Revoke() {
  Timers* const timers = std::exchange(timers_, nullptr);
  if (timers == nullptr) return;
  std::unique_lock lock(timers->mutex_);
  timers->actions_.erase(key_);
  // LimitWaits() may have moved it. Numbers are unique, so that no other action is erased.
  if (ends_wait_) timers->actions_.erase({timers->waits_end_, key_.second});
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
  std::lock_guard lock(mutex_);
  return Add(time, {std::move(action), false});
}

Timers::Timer Timers::After(std::chrono::steady_clock::duration wait, std::function<void()> action) {
  std::lock_guard lock(mutex_);
  const auto end = std::chrono::steady_clock::now() + std::min(wait, longest_wait_);
  return Add(std::min(end, later_waits_end_), {std::move(action), true});
}

void Timers::LimitWaits(std::chrono::steady_clock::duration longest) {
  std::lock_guard lock(mutex_);
  longest_wait_ = longest;
  waits_end_ = std::chrono::steady_clock::now() + longest;
  later_waits_end_ = waits_end_ + longest / 6;
  std::vector<Key> later;
  for (auto entry = actions_.upper_bound({waits_end_, 0}); entry != actions_.end(); ++entry) {
    if (entry->second.ends_wait) later.push_back(entry->first);
  }
  for (const Key& key : later) {
    auto entry = actions_.extract(key);
    entry.key().first = waits_end_;
    actions_.insert(std::move(entry));
  }
  changed_.notify_all();
}

Timers::Timer Timers::Add(std::chrono::steady_clock::time_point time, Action action) {
  Timer timer;
  timer.key_ = {time, ++last_};
  timer.ends_wait_ = action.ends_wait;
  actions_.emplace(timer.key_, std::move(action));  // may throw: the timer must not refer to an action before
  timer.timers_ = this;
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
      const std::function<void()> action = std::move(first->second.run);
      running_ = first->first.second;
      actions_.erase(first);
      lock.unlock();
      try {
        action();
      } catch (const std::exception& error) {  // out of memory
        LogException("timer", error);
      }
      lock.lock();
    }
    running_ = 0;
    ended_.notify_all();
  }
}

}  // namespace posenc::server

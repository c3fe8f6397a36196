// Threads that start together, to measure kernels and limits on several cores. They spin between passes, so that waking
// them costs nothing; this is unsuitable outside a benchmark.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace posenc::bench {

class Team {
 public:
  // `threads` includes the calling thread.
  explicit Team(size_t threads) {
    for (size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
  }
  ~Team() {
    stopping_ = true;
    for (std::thread& worker : workers_) worker.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // Calls part(begin, end) on each thread with its share of [0, count), in multiples of `grain`, and waits for all.
  void Share(size_t count, size_t grain, const std::function<void(size_t, size_t)>& part) {
    const size_t units = (count + grain - 1) / grain;
    const auto bound = [&](size_t i) { return std::min(count, units * i / threads() * grain); };
    const std::function<void(size_t)> work = [&](size_t i) {
      if (bound(i) < bound(i + 1)) part(bound(i), bound(i + 1));
    };
    work_ = &work;
    running_ = workers_.size();
    ++pass_;
    work(0);
    while (running_ > 0) {
    }
  }

 private:
  void Work(size_t i) {
    size_t done = 0;
    while (!stopping_) {
      if (pass_ == done) continue;
      ++done;
      (*work_)(i);
      --running_;
    }
  }

  const std::function<void(size_t)>* work_ = nullptr;
  std::atomic<size_t> pass_{0};
  std::atomic<size_t> running_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace posenc::bench

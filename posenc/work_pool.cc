#include "posenc/work_pool.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include "posenc/status.h"

namespace posenc {

WorkPool::WorkPool(size_t threads) {
  for (size_t i = 0; i < std::max<size_t>(threads, 1); ++i) threads_.emplace_back([this] { Work(); });
}

WorkPool::~WorkPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkPool::Submit(std::function<void()> task, Lane lane) {
  {
    std::lock_guard lock(mutex_);
    (lane == Lane::kSmall ? small_ : bulk_).push_back(std::move(task));
    small_waiting_ = small_.size();
  }
  ready_.notify_one();
}

void WorkPool::Work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return stopping_ || !small_.empty() || !bulk_.empty(); });
      auto& lane = small_.empty() ? bulk_ : small_;
      if (lane.empty()) return;
      task = std::move(lane.front());
      lane.pop_front();
      small_waiting_ = small_.size();
    }
    task();
  }
}

void WorkPool::RunSmallTasks() {
  // Not within one another: the stack would grow with the queue.
  thread_local bool running = false;
  while (small_waiting_ > 0 && !running) {
    std::function<void()> task;
    {
      std::lock_guard lock(mutex_);
      if (small_.empty()) return;
      task = std::move(small_.front());
      small_.pop_front();
      small_waiting_ = small_.size();
    }
    running = true;
    task();
    running = false;
  }
}

namespace {

// One ParallelFor: shared with helpers that may be scheduled after it has ended and then find nothing to take.
struct Loop {
  size_t slabs;
  std::atomic<size_t> next{0};

  std::mutex mutex;
  std::condition_variable idle;
  size_t running = 0;   // helpers inside the body
  bool closed = false;  // the caller has left: helpers must not enter
  absl::Status status;  // the first failure

  bool Enter() {
    std::lock_guard lock(mutex);
    if (closed) return false;
    ++running;
    return true;
  }
  void Leave() {
    std::lock_guard lock(mutex);
    if (--running == 0) idle.notify_all();
  }
  void Fail(absl::Status failure) {
    std::lock_guard lock(mutex);
    if (status.ok()) status = std::move(failure);
    next = slabs;
  }
};

}  // namespace

absl::Status WorkPool::ParallelFor(size_t count, size_t grain, const Cancellation& cancelled,
                                   absl::FunctionRef<void(size_t, size_t)> body) {
  if (count == 0) return absl::OkStatus();
  grain = std::max<size_t>(grain, 1);
  auto loop = std::make_shared<Loop>();
  loop->slabs = (count - 1) / grain + 1;

  auto take_slabs = [this, &cancelled, body, count, grain](Loop& state) {
    for (size_t slab; (slab = state.next.fetch_add(1)) < state.slabs;) {
      RunSmallTasks();
      if (absl::Status status = cancelled(); !status.ok()) return state.Fail(std::move(status));
      try {
        body(slab * grain, std::min(count, (slab + 1) * grain));
      } catch (const std::bad_alloc&) {
        // It must not leave this frame, which others refer to, nor a helper's thread.
        return state.Fail(TooLarge("", "", "out of memory"));
      }
    }
  };

  const size_t helpers = std::min(loop->slabs - 1, threads_.size() - 1);
  try {
    for (size_t i = 0; i < helpers; ++i) {
      // The closure refers to this frame; Enter() guards it, because the caller closes the loop before it leaves.
      Submit([loop, take_slabs] {
        if (!loop->Enter()) return;
        take_slabs(*loop);
        loop->Leave();
      });
    }
  } catch (const std::bad_alloc&) {
    // With fewer helpers, then: those that there are refer to this frame, which must not be left.
  }
  take_slabs(*loop);
  std::unique_lock lock(loop->mutex);
  loop->closed = true;
  loop->idle.wait(lock, [&] { return loop->running == 0; });
  return loop->status;
}

}  // namespace posenc

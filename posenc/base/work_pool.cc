#include "posenc/base/work_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <utility>

#include "hwy/cache_control.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

// Spins for up to 50 us before the caller blocks: a sleep and wake-up takes as long as rotating a mebibyte.
template <class Ready>
void StayAwake(const Ready& ready) {
  constexpr std::chrono::microseconds kMoment(50);
  if (ready()) return;
  const auto end = std::chrono::steady_clock::now() + kMoment;
  while (!ready() && std::chrono::steady_clock::now() < end) hwy::Pause();
}

// Time after which the relief thread runs a small task that waits.
constexpr std::chrono::milliseconds kLate(1);

}  // namespace

WorkPool::WorkPool(size_t threads) : awake_(std::max<size_t>(threads, 1)), begun_(std::max<size_t>(threads, 1) + 1) {
  for (size_t i = 0; i + 1 < begun_.size(); ++i) threads_.emplace_back([this, i] { Work(&begun_[i]); });
  relief_ = std::thread([this] { Relieve(&begun_.back()); });
}

WorkPool::~WorkPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  late_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  relief_.join();
}

void WorkPool::Submit(std::function<void()> task, Lane lane) {
  const MemoryScope uncounted(nullptr);  // other threads free what the queues hold
  bool all_busy;
  {
    std::lock_guard lock(mutex_);
    (lane == Lane::kSmall ? small_ : bulk_).push_back(std::move(task));
    CountWaiting();
    if (waiting_ <= awake_) return;
    all_busy = idle_ == 0;
  }
  ready_.notify_one();
  if (all_busy && lane == Lane::kSmall) late_.notify_one();
}

void WorkPool::CountWaiting() {
  small_waiting_ = small_.size();
  waiting_ = small_.size() + bulk_.size();
}

namespace {

constexpr size_t kSmallInARow = 8;

// A small task runs no other small task: the stack would grow with the queue, and the first would end last.
thread_local bool in_small_task = false;
thread_local bool alone = false, helped = true;

// noexcept: an exception terminates the process here, instead of unwinding through another task's frames.
void Run(const std::function<void()>& task, Lane lane) noexcept {
  const InterruptionScope nobody(nullptr);  // the task is not part of the computation that this thread is in
  const MemoryScope uncounted(nullptr);
  const bool before = std::exchange(in_small_task, lane == Lane::kSmall);
  task();
  in_small_task = before;
}

}  // namespace

NoWorkStealing::NoWorkStealing(Help help)
    : before_(std::exchange(alone, true)), helped_before_(std::exchange(helped, help == Help::kIdleThreads)) {}
NoWorkStealing::~NoWorkStealing() {
  alone = before_;
  helped = helped_before_;
}

size_t WorkPool::CountLongTasks(Clock::duration time) const {
  const Clock::rep latest = (Clock::now() - time).time_since_epoch().count();
  return std::count_if(begun_.begin(), begun_.end(), [&](const Begun& begun) {
    const Clock::rep at = begun;
    return at != 0 && at < latest;
  });
}

void WorkPool::Work(Begun* begun) {
  for (;; ++awake_) {
    StayAwake([this] { return waiting_ > 0; });
    std::function<void()> task;
    Lane lane;
    {
      std::unique_lock lock(mutex_);
      --awake_;
      ++idle_;
      ready_.wait(lock, [this] { return stopping_ || !small_.empty() || !bulk_.empty(); });
      --idle_;
      if (small_.empty() && bulk_.empty()) return;
      const bool small = !small_.empty() && (bulk_.empty() || small_in_a_row_ < kSmallInARow);
      lane = small ? Lane::kSmall : Lane::kBulk;
      small_in_a_row_ = small ? small_in_a_row_ + 1 : 0;
      if (small) {
        task = TakeSmallTask();
      } else {
        task = std::move(bulk_.front());
        bulk_.pop_front();
        CountWaiting();
      }
      if (idle_ == 0 && !small_.empty()) late_.notify_one();
    }
    *begun = Clock::now().time_since_epoch().count();
    Run(task, lane);
    *begun = 0;
  }
}

std::function<void()> WorkPool::TakeSmallTask() {
  std::function<void()> task = std::move(small_.front());
  small_.pop_front();
  ++small_taken_;
  CountWaiting();
  return task;
}

void WorkPool::RunSmallTask() {
  if (small_waiting_ == 0 || in_small_task || alone) return;
  const MemoryScope uncounted(nullptr);
  std::function<void()> task;
  {
    std::lock_guard lock(mutex_);
    if (small_.empty()) return;
    task = TakeSmallTask();
  }
  Run(task, Lane::kSmall);
}

void WorkPool::Relieve(Begun* begun) {
  std::unique_lock lock(mutex_);
  for (;;) {
    late_.wait(lock, [this] { return stopping_ || !small_.empty(); });
    if (stopping_) return;  // the other threads run what is left
    const size_t taken = small_taken_;
    late_.wait_for(lock, kLate, [this] { return stopping_; });
    if (small_.empty() || small_taken_ != taken) continue;
    std::function<void()> task = TakeSmallTask();
    lock.unlock();
    *begun = Clock::now().time_since_epoch().count();
    Run(task, Lane::kSmall);
    *begun = 0;
    task = nullptr;
    lock.lock();
  }
}

namespace {

// State of one ParallelFor. Shared ownership: a helper may be scheduled after the loop has ended, then does nothing.
struct Loop {
  size_t slabs;
  std::atomic<size_t> next{0};

  std::mutex mutex;
  std::condition_variable idle;
  std::atomic<size_t> running{0};  // helpers inside the body
  bool closed = false;             // the caller has returned: helpers must not enter
  absl::Status status;             // the first failure

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
      RunSmallTask();
      if (absl::Status status = cancelled(); !status.ok()) return state.Fail(std::move(status));
      try {
        const InterruptionScope scope(&cancelled);
        const MemoryScope uncounted(nullptr);  // an account is for one thread
        body(slab * grain, std::min(count, (slab + 1) * grain));
      } catch (const ComputationStopped& stopped) {
        return state.Fail(stopped.status());
      } catch (const std::bad_alloc&) {
        // Must not propagate: other threads refer to the caller's frame, and a helper's thread has no handler.
        return state.Fail(Unavailable("OVERLOADED", "out of memory"));
      }
    }
  };

  const size_t helpers = !helped ? 0 : std::min(loop->slabs - 1, threads_.size() - 1);
  try {
    for (size_t i = 0; i < helpers; ++i) {
      // The closure refers to this frame. Enter() guards it: the caller closes the loop before it returns.
      Submit([loop, take_slabs] {
        if (!loop->Enter()) return;
        take_slabs(*loop);
        loop->Leave();
      });
    }
  } catch (const std::bad_alloc&) {
    // Continue with fewer helpers: those already submitted refer to this frame, so it must not return yet.
  }
  take_slabs(*loop);
  StayAwake([&loop] { return loop->running == 0; });
  std::unique_lock lock(loop->mutex);
  loop->closed = true;
  loop->idle.wait(lock, [&] { return loop->running == 0; });
  return loop->status;
}

}  // namespace posenc

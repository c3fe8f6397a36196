#include "posenc/base/work_pool.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "hwy/cache_control.h"
#include "posenc/base/cgroup.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/real_precision.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

bool HasOneCpu() {
  static const bool one_cpu = AvailableCpus() == 1;
  return one_cpu;
}

// Spins for up to 50 us before the caller blocks: a sleep and wake-up takes as long as rotating a mebibyte. With one
// CPU, spinning would keep the thread that it waits for from running.
template <class Ready>
void StayAwake(const Ready& ready) {
  constexpr std::chrono::microseconds kMoment(50);
  if (HasOneCpu() || ready()) return;
  const auto end = std::chrono::steady_clock::now() + kMoment;
  while (!ready() && std::chrono::steady_clock::now() < end) hwy::Pause();
}

const TaskOwner kServer;

// The number of the thread for small tasks.
constexpr size_t kSmallThread = 0;

thread_local bool alone = false, helped = true;
thread_local const TaskOwner* owner_of_helpers = nullptr;
thread_local std::chrono::steady_clock::duration between_slabs{0};

// A loop has no helpers if its connection's waiting bulk tasks are so many for each thread: they would come too late.
constexpr size_t kMaxBeforeHelpers = 4;

// Bytes that the bodies of one loop hold at most, unless one alone takes more.
constexpr int64_t kMostOfBodies = 64 << 20;

// Runs the task apart from the computation on whose stack it is. noexcept: an exception terminates the process here,
// instead of unwinding through another task's frames.
void RunOnce(std::function<void()> task) noexcept {
  const InterruptionScope nobody(nullptr);
  const ActivityScope computing(Activity::kComputing);
  const WaitingLimit unlimited(std::nullopt);
  const RealPrecision precision(RealPrecision::kDefault);
  std::exchange(task, nullptr)();
}

}  // namespace

thread_local WorkPool::Running* WorkPool::running_ = nullptr;

std::chrono::steady_clock::duration WorkPool::TimeBetweenSlabs() { return between_slabs; }

NoWorkStealing::NoWorkStealing(Help help, const TaskOwner* owner)
    : before_(std::exchange(alone, true)),
      helped_before_(std::exchange(helped, help == Help::kIdleThreads)),
      owner_before_(std::exchange(owner_of_helpers, owner)) {}
NoWorkStealing::~NoWorkStealing() {
  alone = before_;
  helped = helped_before_;
  owner_of_helpers = owner_before_;
}

WorkPool::WorkPool(size_t threads) : count_(std::max<size_t>(threads, 1)), awake_(count_), busy_(1 + count_) {
  HasOneCpu();  // not first in a thread that a fork interrupts: the child would wait for it
  try {
    threads_.emplace_back([this] { WorkOnSmallTasks(); });
    while (threads_.size() <= count_) threads_.emplace_back([this, thread = threads_.size()] { Work(thread); });
  } catch (...) {  // ends the threads that have started: the destructor does not run
    Join();
    throw;
  }
}

WorkPool::~WorkPool() { Join(); }

void WorkPool::Join() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  small_ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  // The last small task may have submitted others when the threads for them had ended.
  while (std::optional<Task> task = tasks_.Take()) Run(*std::move(task), kSmallThread);
}

const TaskOwner& WorkPool::CurrentOwner() const {
  if (RunsTask()) return running_->task.owner;
  return owner_of_helpers != nullptr ? *owner_of_helpers : kServer;
}

void WorkPool::Submit(std::function<void()> task, Lane lane, const TaskOwner* owner) {
  const MemoryScope uncounted(nullptr);  // other threads free what the queue holds
  Task added = {std::move(task), lane, owner != nullptr ? *owner : CurrentOwner()};
  bool all_busy;
  {
    const std::lock_guard lock(mutex_);
    tasks_.Push(std::move(added));
    waiting_ = tasks_.size();
    if (waiting_ <= awake_) return;
    all_busy = idle_ == 0;
  }
  ready_.notify_one();
  if (all_busy && lane == Lane::kSmall) small_ready_.notify_one();
}

void WorkPool::Work(size_t thread) {
  for (;; ++awake_) {
    StayAwake([this] { return waiting_ > 0; });
    std::unique_lock lock(mutex_);
    --awake_;
    ++idle_;
    ready_.wait(lock, [this] { return stopping_ || tasks_.size() > 0; });
    --idle_;
    std::optional<Task> task = tasks_.Take();
    if (!task) return;
    waiting_ = tasks_.size();
    if (idle_ == 0 && tasks_.small() > 0) small_ready_.notify_one();
    lock.unlock();
    Run(*std::move(task), thread);
  }
}

void WorkPool::WorkOnSmallTasks() {
  for (;;) {
    std::unique_lock lock(mutex_);
    small_ready_.wait(lock, [this] { return stopping_ || tasks_.small() > 0; });
    std::optional<Task> task = tasks_.TakeSmall();
    if (!task) return;
    waiting_ = tasks_.size();
    lock.unlock();
    Run(*std::move(task), kSmallThread);
  }
}

void WorkPool::Run(Task task, size_t thread) {
  Running running = {this, thread, std::move(task), running_, Clock::now()};
  busy_.Begin(thread);
  running_ = &running;
  RunOnce(std::move(running.task.run));
  running_ = running.outer;
  running.outer != nullptr ? busy_.Begin(thread) : busy_.End(thread);
}

void WorkPool::GiveWay() {
  if (waiting_ == 0 || !RunsTask() || running_->outer != nullptr || alone || ActivityScope::IsAwaited()) return;
  const Clock::time_point begin = Clock::now();
  const bool is_bulk = running_->task.lane != Lane::kSmall || begin - running_->begin >= kSmallTime;
  const bool waits = ActivityScope::Current() == Activity::kWaiting;
  if (!waits && (!is_bulk || begin < running_->goes_on_until)) return;
  const MemoryScope uncounted(nullptr);  // also while the nested task runs
  std::optional<Task> task;
  {
    const std::lock_guard lock(mutex_);
    task = tasks_.TakeSmall();
    if (!task && is_bulk && running_->thread != kSmallThread) {
      task = tasks_.TakeBulkOfOthers(running_->task.owner.caller);
    }
    if (!task) return;
    waiting_ = tasks_.size();
  }
  Run(*std::move(task), running_->thread);
  const Clock::time_point end = Clock::now();
  running_->goes_on_until = end + (end - begin);
  between_slabs += end - begin;
}

// State of one ParallelFor. Shared ownership: a helper may be scheduled after the loop has ended, then does nothing.
struct WorkPool::Loop {
  // Used by the caller, and by helpers that have entered.
  const size_t count, grain;
  const Cancellation& cancelled;
  const absl::FunctionRef<void(size_t begin, size_t end)> body;

  const size_t tiles = (count - 1) / grain + 1;
  std::atomic<size_t> next{0};  // tile

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
  bool HasTiles() const { return next < tiles; }
  void Fail(absl::Status failure) {
    std::lock_guard lock(mutex);
    if (status.ok()) status = std::move(failure);
    next = tiles;
  }
};

bool WorkPool::RunTile(Loop* loop) {
  if (!loop->HasTiles()) return false;
  try {
    if (RunsTask()) busy_.Begin(running_->thread);  // a task that reaches its next tile is not stuck
    GiveWay();
    const size_t tile = loop->next.fetch_add(1);
    if (tile >= loop->tiles) return false;
    if (absl::Status status = loop->cancelled(); !status.ok()) {
      loop->Fail(std::move(status));
      return false;
    }
    const Cancellation in_body = [this, loop] {
      if (ActivityScope::Current() == Activity::kWaiting) GiveWay();
      return loop->cancelled();
    };
    const InterruptionScope scope(&in_body);
    const MemoryScope uncounted(nullptr);  // an account is for one thread
    loop->body(tile * loop->grain, std::min(loop->count, (tile + 1) * loop->grain));
  } catch (const ComputationStopped& stopped) {
    loop->Fail(stopped.status());
  } catch (const std::bad_alloc&) {
    // Must not propagate: other threads refer to the caller's frame, and a helper's thread has no handler.
    loop->Fail(Unavailable("OVERLOADED", "out of memory"));
  } catch (const std::exception& error) {
    loop->Fail(absl::InternalError(error.what()));
  }
  return true;
}

bool WorkPool::OthersWait() {
  if (running_->outer != nullptr) return true;
  if (waiting_ == 0) return false;
  const std::lock_guard lock(mutex_);
  return tasks_.HasOthers(running_->task.owner.caller);
}

void WorkPool::HelpLoop(const std::shared_ptr<Loop>& loop) {
  if (!loop->Enter()) return;
  {
    // The loop's caller waits for the tile, but must not wait for another task.
    const NoWorkStealing none_nested(Help::kIdleThreads);
    while (RunTile(loop.get()) && !OthersWait()) continue;
  }
  loop->Leave();
  if (!loop->HasTiles()) return;
  try {
    Submit([this, loop] { HelpLoop(loop); });
  } catch (const std::bad_alloc&) {  // the loop has one thread less
  }
}

absl::Status WorkPool::ParallelFor(size_t count, size_t grain, const Cancellation& cancelled,
                                   absl::FunctionRef<void(size_t, size_t)> body, int64_t body_bytes) {
  if (count == 0) return absl::OkStatus();
  const auto loop = std::make_shared<Loop>(count, std::max<size_t>(grain, 1), cancelled, body);
  size_t helpers = !helped ? 0 : std::min(loop->tiles - 1, count_ - 1);
  if (body_bytes > 0) helpers = std::min<size_t>(helpers, kMostOfBodies / body_bytes);
  const CountedBytes counted(body_bytes * static_cast<int64_t>(1 + helpers));
  if (counted.refused()) {
    POSENC_RETURN_IF_ERROR(cancelled());
    return Unavailable("OVERLOADED", "too many bytes in flight");
  }
  if (helpers > 0) {
    const std::lock_guard lock(mutex_);
    if (tasks_.CountBulk(CurrentOwner()) >= kMaxBeforeHelpers * count_) helpers = 0;
  }
  try {
    for (size_t i = 0; i < helpers; ++i) Submit([this, loop] { HelpLoop(loop); });
  } catch (const std::bad_alloc&) {
    // Continue with fewer helpers: those already submitted refer to this frame, so it must not return yet.
  }
  while (RunTile(loop.get())) continue;
  StayAwake([&loop] { return loop->running == 0; });
  std::unique_lock lock(loop->mutex);
  loop->closed = true;
  loop->idle.wait(lock, [&] { return loop->running == 0; });
  return std::move(loop->status);  // not shared with a late helper, which destroys the loop
}

}  // namespace posenc

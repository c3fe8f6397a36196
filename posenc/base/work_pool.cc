#include "posenc/base/work_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "hwy/cache_control.h"
#include "posenc/base/cgroup.h"
#include "posenc/base/memory_account.h"
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

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

const TaskOwner kNobody;

// The number of a thread that is not the pool's.
constexpr size_t kNoThread = std::numeric_limits<size_t>::max();

thread_local bool alone = false, helped = true;
thread_local const TaskOwner* owner_of_helpers = nullptr;
thread_local Clock::duration between_slabs{0};
thread_local Clock::time_point gave_way;

// noexcept: an exception terminates the process here, instead of unwinding through another task's frames.
void RunOnce(const std::function<void()>& task) noexcept {
  const InterruptionScope nobody(nullptr);  // the task is not part of the computation that this thread is in
  const MemoryScope uncounted(nullptr);
  task();
}

// Tasks of the same owner between the slabs of a task take at most so many times its own time, and so many seconds
// more.
constexpr double kMostNested = 8, kNestedAtFirst = 0.1;

// An owner's loops have at most so many waiting tasks for each thread. Further ones would do nothing, because their
// loops end before they begin.
constexpr size_t kMostHelp = 4;

// Bytes that the bodies of one loop hold at most, unless one alone takes more.
constexpr int64_t kMostOfBodies = 64 << 20;

// Time after which the relief thread runs a small task that waits.
constexpr std::chrono::milliseconds kLate(1);

// Spare threads: for eight owners that have all places in turn, or more.
size_t MostSpares(size_t places) { return std::max<size_t>(8 * places, 256); }

bool IsWanted(const Cancellation& cancelled) {
  const ActivityScope waiting(Activity::kWaiting);
  try {
    return cancelled().ok();
  } catch (const std::bad_alloc&) {
    return true;  // not known
  }
}

// Time between two looks whether a task that waits for its turn is still wanted.
constexpr std::chrono::milliseconds kLook(50);

// Time between two looks of a computation outside of loops whether it is another owner's turn.
constexpr std::chrono::milliseconds kGiveWay(2);

}  // namespace

// A task that a thread runs. mutex_ guards the times.
struct WorkPool::Running {
  WorkPool* pool;
  size_t thread;  // number in busy_, or kNoThread
  TaskQueue::Taken taken;
  Running* outer = nullptr;  // of any pool, between whose slabs it runs
  Clock::time_point since;   // when its time was charged last
  double own = 0;            // seconds until then
  double untold = 0;         // of these, what the meter was not told
  double nested = 0;         // seconds of nested tasks of the same owner

  // Charges the time since then, without that of nested tasks.
  void Charge(Clock::time_point now) {
    const double lap = Seconds(now - std::exchange(since, now));
    own += lap;
    untold += lap;
    pool->tasks_.Charge(&taken, lap);
  }
};

thread_local WorkPool::Running* WorkPool::running_ = nullptr;

bool WorkPool::RunsTask() const { return running_ != nullptr && running_->pool == this; }

WorkPool::WorkPool(size_t threads, Meter meter)
    : meter_(std::move(meter)),
      places_(std::max<size_t>(threads, 1)),
      on_thread_(1 + places_ + MostSpares(places_)),
      awake_(places_),
      busy_(on_thread_.size()) {
  HasOneCpu();  // not first in a thread that a fork interrupts: the child would wait for it
  try {
    for (size_t thread = 1; thread <= places_; ++thread) threads_.emplace_back([this, thread] { Work(thread); });
    relief_ = std::thread([this] { Relieve(0); });
  } catch (...) {  // ends the threads that have started: the destructor does not run
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
}

WorkPool::~WorkPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  late_.notify_all();
  place_given_up_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  relief_.join();
}

void WorkPool::Submit(std::function<void()> task, Lane lane, const TaskOwner* owner) {
  const MemoryScope uncounted(nullptr);  // other threads free what the queue holds
  bool all_busy;
  {
    std::lock_guard lock(mutex_);
    if (owner == nullptr) {
      owner = RunsTask() ? &TaskQueue::OwnerOf(running_->taken) : owner_of_helpers ? owner_of_helpers : &kNobody;
    }
    if (lane == Lane::kHelp && tasks_.CountHelp(*owner) >= kMostHelp * places_) return;
    ChargeAll();
    tasks_.Push(std::move(task), lane, *owner);
    CountWaiting();
    if (waiting_ <= awake_) return;
    all_busy = idle_ == 0;
  }
  ready_.notify_one();
  if (all_busy && lane == Lane::kSmall) late_.notify_one();
}

void WorkPool::CountWaiting() { waiting_ = tasks_.size(); }

Clock::duration WorkPool::TimeBetweenSlabs() { return between_slabs; }

NoWorkStealing::NoWorkStealing(Help help, const TaskOwner* owner)
    : before_(std::exchange(alone, true)),
      helped_before_(std::exchange(helped, help == Help::kIdleThreads)),
      owner_before_(std::exchange(owner_of_helpers, owner)) {}
NoWorkStealing::~NoWorkStealing() {
  alone = before_;
  helped = helped_before_;
  owner_of_helpers = owner_before_;
}

void WorkPool::Work(size_t thread) {
  for (;; ++awake_) {
    StayAwake([this] { return waiting_ > 0; });
    Running task = {this, thread};
    {
      std::unique_lock lock(mutex_);
      --awake_;
      ++idle_;
      ready_.wait(lock, [this] { return stopping_ || tasks_.size() > 0; });
      --idle_;
      if (tasks_.size() == 0) return;
      task.taken = tasks_.Take();
      if (task.taken.lane == Lane::kSmall) ++small_taken_;
      CountWaiting();
      if (idle_ == 0 && tasks_.small() > 0) late_.notify_one();
      if (task.taken.lane == Lane::kTurn) {
        handed_over_ = false;
        task.taken.task();
        tasks_.End(&task.taken);
        if (!handed_over_) continue;
        ++spare_;
        if (!AwaitPlace(&lock)) return;
        continue;
      }
      Begin(&task);
    }
    busy_.Begin(thread);
    Run(&task);
    busy_.End(thread);
  }
}

bool WorkPool::AddSpare() {
  const size_t thread = 1 + threads_.size();
  if (thread > places_ + MostSpares(places_)) return false;
  try {
    threads_.emplace_back([this, thread] {
      std::unique_lock lock(mutex_);
      if (!AwaitPlace(&lock)) return;
      lock.unlock();
      ++awake_;
      Work(thread);
    });
  } catch (const std::system_error&) {
    return false;
  }
  ++spare_;
  return true;
}

bool WorkPool::AwaitPlace(std::unique_lock<std::mutex>* lock) {
  place_given_up_.wait(*lock, [this] { return given_up_ > 0 || stopping_; });
  if (given_up_ == 0) return false;
  --given_up_;
  return true;
}

void WorkPool::GiveUpPlace(std::unique_lock<std::mutex>* lock, const Cancellation& cancelled) {
  if (stopping_ || ActivityScope::Current() == Activity::kAwaited) return;
  if (!tasks_.IsTurnOfOther(running_->taken) || (spare_ == 0 && !AddSpare())) return;
  struct Turn {
    std::condition_variable begins;
    bool has_begun = false;
  };
  const auto turn = std::make_shared<Turn>();
  const auto begin = [this, turn] {
    handed_over_ = !std::exchange(turn->has_begun, true);
    turn->begins.notify_one();
  };
  const auto has_begun = [&turn] { return turn->has_begun; };
  tasks_.Push(begin, Lane::kTurn, TaskQueue::OwnerOf(running_->taken));
  tasks_.Pause(&running_->taken);
  on_thread_[running_->thread] = nullptr;
  CountWaiting();
  --spare_;
  ++given_up_;
  place_given_up_.notify_one();
  busy_.End(running_->thread);
  while (!turn->begins.wait_for(*lock, kLook, has_begun)) {
    lock->unlock();
    const bool is_wanted = IsWanted(cancelled);
    lock->lock();
    if (is_wanted || turn->has_begun) continue;
    try {
      tasks_.Push(begin, Lane::kTurn, kNobody);  // it comes first, as it ends at once
    } catch (const std::bad_alloc&) {
      continue;
    }
    CountWaiting();
    turn->begins.wait(*lock, has_begun);
  }
  busy_.Begin(running_->thread);
  running_->since = Clock::now();
  on_thread_[running_->thread] = running_;
}

void WorkPool::Begin(Running* task) {
  task->since = Clock::now();
  if (task->thread != kNoThread) on_thread_[task->thread] = task;
}

void WorkPool::Run(Running* task) {
  task->outer = std::exchange(running_, task);
  RunOnce(task->taken.task);
  running_ = task->outer;
  task->taken.task = nullptr;
  Running* const outer = task->outer != nullptr && task->outer->pool == this ? task->outer : nullptr;
  {
    const std::lock_guard lock(mutex_);
    task->Charge(Clock::now());
    if (outer != nullptr) {
      outer->since = task->since;
      if (outer->taken.account == task->taken.account) outer->nested += task->own;
    }
    if (task->thread != kNoThread) on_thread_[task->thread] = outer;
  }
  Tell(*task, task->untold);
  const std::lock_guard lock(mutex_);
  tasks_.End(&task->taken);
}

void WorkPool::Tell(const Running& task, double seconds) {
  if (meter_ && !task.taken.owner->empty()) meter_(*task.taken.owner, seconds);
}

void WorkPool::ChargeAll() {
  const Clock::time_point now = Clock::now();
  for (size_t thread = 0; thread <= threads_.size(); ++thread) {
    if (Running* const task = on_thread_[thread]) task->Charge(now);
  }
}

bool WorkPool::ChargeSoFar() {
  if (!RunsTask()) return false;
  double untold;
  {
    const std::lock_guard lock(mutex_);
    running_->Charge(Clock::now());
    untold = std::exchange(running_->untold, 0);
  }
  Tell(*running_, untold);
  return true;
}

bool WorkPool::IsTurnOfOther() {
  if (waiting_ == 0 || !ChargeSoFar()) return false;
  const std::lock_guard lock(mutex_);
  return tasks_.IsTurnOfOther(running_->taken);
}

void WorkPool::LetOthersRun(const Cancellation& cancelled) {
  if (waiting_ == 0) return;
  Running* const outer = RunsTask() ? running_ : nullptr;
  const MemoryScope uncounted(nullptr);
  ChargeSoFar();
  const Clock::time_point begin = Clock::now();
  Running small = {this, outer == nullptr ? kNoThread : outer->thread};
  std::unique_lock lock(mutex_);
  small.taken = outer == nullptr
                    ? tasks_.TakeBetween(nullptr)
                    : tasks_.TakeBetween(&outer->taken, kMostNested * outer->own + kNestedAtFirst - outer->nested);
  if (small.taken.account != nullptr) {
    ++small_taken_;
    CountWaiting();
    Begin(&small);
    lock.unlock();
    Run(&small);
    lock.lock();
  }
  if (outer != nullptr && outer->taken.lane != Lane::kHelp) GiveUpPlace(&lock, cancelled);
  between_slabs += Clock::now() - begin;
}

void WorkPool::GiveWay(const Cancellation& cancelled) {
  if (waiting_ == 0 || !RunsTask()) return;
  if (const Lane lane = running_->taken.lane; lane != Lane::kBulk && lane != Lane::kBlocking) return;
  const Clock::time_point begin = Clock::now();
  if (ActivityScope::Current() != Activity::kComputing || begin - gave_way < kGiveWay) return;
  const MemoryScope uncounted(nullptr);
  ChargeSoFar();
  std::unique_lock lock(mutex_);
  GiveUpPlace(&lock, cancelled);
  gave_way = Clock::now();
  between_slabs += gave_way - begin;
}

void WorkPool::Relieve(size_t thread) {
  std::unique_lock lock(mutex_);
  for (;;) {
    late_.wait(lock, [this] { return stopping_ || tasks_.small() > 0; });
    if (stopping_) return;  // the other threads run what is left
    const size_t before = small_taken_;
    late_.wait_for(lock, kLate, [this] { return stopping_; });
    if (tasks_.small() == 0 || small_taken_ != before) continue;
    Running task = {this, thread};
    task.taken = tasks_.TakeSmall();
    ++small_taken_;
    CountWaiting();
    Begin(&task);
    lock.unlock();
    busy_.Begin(thread);
    Run(&task);
    busy_.End(thread);
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

// A task that helps a loop. It leaves the loop when it is another owner's turn, and helps again later: if it gave up
// its place instead, the loop's caller would keep its own place and wait.
template <class TakeSlabs>
struct Helper {
  WorkPool* pool;
  std::shared_ptr<Loop> loop;
  TakeSlabs
      take_slabs;  // refers to the caller's frame. Enter() guards it: the caller closes the loop before it returns

  void operator()() const {
    if (!loop->Enter()) return;
    take_slabs(*loop, /*helps=*/true);
    loop->Leave();
    if (loop->next >= loop->slabs) return;
    try {
      pool->Submit(*this, Lane::kHelp);
    } catch (const std::bad_alloc&) {  // the loop has one thread less
    }
  }
};

}  // namespace

absl::Status WorkPool::ParallelFor(size_t count, size_t grain, const Cancellation& cancelled,
                                   absl::FunctionRef<void(size_t, size_t)> body, int64_t body_bytes) {
  if (count == 0) return absl::OkStatus();
  grain = std::max<size_t>(grain, 1);
  auto loop = std::make_shared<Loop>();
  loop->slabs = (count - 1) / grain + 1;
  size_t helpers = !helped ? 0 : std::min(loop->slabs - 1, places_ - 1);
  if (body_bytes > 0) helpers = std::min<size_t>(helpers, kMostOfBodies / body_bytes);
  const CountedBytes counted(body_bytes * static_cast<int64_t>(1 + helpers));
  if (counted.refused()) {
    POSENC_RETURN_IF_ERROR(cancelled());
    return Unavailable("OVERLOADED", "too many bytes in flight");
  }

  // A caller that runs no other tasks must not wait for a helper that runs some. Nor must a small task, which would end
  // after all of them.
  const bool steals = !alone && (running_ == nullptr || running_->taken.lane != Lane::kSmall);
  const auto take_slabs = [this, &cancelled, body, count, grain, steals](Loop& state, bool helps) {
    for (;;) {
      if (helps && IsTurnOfOther()) return;
      const size_t slab = state.next.fetch_add(1);
      if (slab >= state.slabs) return;
      try {
        // A task that reaches its next slab is not stuck.
        if (RunsTask() && running_->thread != kNoThread) busy_.Begin(running_->thread);
        if (steals) LetOthersRun(cancelled);
        if (absl::Status status = cancelled(); !status.ok()) return state.Fail(std::move(status));
        const InterruptionScope scope(&cancelled);
        const MemoryScope uncounted(nullptr);  // an account is for one thread
        body(slab * grain, std::min(count, (slab + 1) * grain));
      } catch (const ComputationStopped& stopped) {
        return state.Fail(stopped.status());
      } catch (const std::bad_alloc&) {
        // Must not propagate: other threads refer to the caller's frame, and a helper's thread has no handler.
        return state.Fail(Unavailable("OVERLOADED", "out of memory"));
      } catch (const std::exception& error) {
        return state.Fail(absl::InternalError(error.what()));
      }
    }
  };

  try {
    const Helper<decltype(take_slabs)> helper = {this, loop, take_slabs};
    for (size_t i = 0; i < helpers; ++i) Submit(helper, Lane::kHelp);
  } catch (const std::bad_alloc&) {
    // Continue with fewer helpers: those already submitted refer to this frame, so it must not return yet.
  }
  take_slabs(*loop, /*helps=*/false);
  StayAwake([&loop] { return loop->running == 0; });
  std::unique_lock lock(loop->mutex);
  loop->closed = true;
  loop->idle.wait(lock, [&] { return loop->running == 0; });
  return loop->status;
}

}  // namespace posenc

// Thread pool for computation. gRPC's own threads only submit tasks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "posenc/base/busy_threads.h"
#include "posenc/base/interruption.h"
#include "posenc/base/task_queue.h"

namespace posenc {

// Tasks run in the order of TaskQueue on threads() threads, and small ones also on a further thread of their own.
//
// A long task lets others run on its stack, one at a time (nested tasks): between two tiles of its loops, where
// GiveWay() is called, and while it waits for a value of a SharedCache. Small tasks come first, then bulk ones of other
// callers. Afterwards the task goes on for at least as long as the nested one took. A small task does so once it has
// run for kSmallTime, as it counts as a bulk one then. Nested tasks and tasks that help a loop let none run.
//
// No cycle of waits can arise. A task waits for a task nested on its stack and for the helpers of its loop, which
// began later than itself, or for a value that another thread computes. A thread that computes such a value
// (ActivityScope::IsAwaited) runs no nested task, nor do its loops' helpers. So it only waits for other values, and
// those that a value depends on do not depend on it.
class WorkPool {
 public:
  static constexpr std::chrono::milliseconds kSmallTime{20};

  // 0 threads counts as 1.
  explicit WorkPool(size_t threads);
  // Runs all submitted tasks, then joins the threads.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  size_t threads() const { return count_; }
  // Number of tasks that have not begun. Thread-safe.
  size_t waiting() const { return waiting_; }
  // Number of threads that have been in one task, or one tile, for longer than `time`. Thread-safe.
  size_t CountLongTasks(std::chrono::steady_clock::duration time) const { return busy_.CountLongerThan(time); }

  // Runs the task on a thread of the pool. `owner` is null: the owner of the task that this thread runs, or that of
  // NoWorkStealing, or the server. A task that throws terminates the process. Thread-safe.
  void Submit(std::function<void()> task, Lane lane = Lane::kBulk, const TaskOwner* owner = nullptr);

  // Calls body(begin, end) for tiles of at most `grain` items that together cover [0, count), on the calling thread and
  // on idle threads of the pool, at most threads() in all, and returns when all have ended. The caller always takes
  // part: a call from within a task cannot deadlock. `cancelled` is called before each tile and is the body's
  // interruption scope. Returns the first status that stopped it; UNAVAILABLE on bad_alloc.
  //
  // The loop does not see what a body allocates (memory_account.h). If a body's memory depends on a request, pass
  // `body_bytes`, the most bytes that one body holds: the loop counts them for each of its threads until it ends, and
  // uses fewer threads if they are many. Thread-safe.
  absl::Status ParallelFor(size_t count, size_t grain, const Cancellation& cancelled,
                           absl::FunctionRef<void(size_t begin, size_t end)> body, int64_t body_bytes = 0);

  // For long computations outside of loops: may run another task on this thread. Does nothing if this thread runs no
  // task of the pool. Thread-safe.
  void GiveWay();

  // True if this thread runs a task of this pool.
  bool RunsTask() const { return running_ != nullptr && running_->pool == this; }
  // The time in which this thread, since its start, has run nested tasks.
  static std::chrono::steady_clock::duration TimeBetweenSlabs();

 private:
  using Clock = std::chrono::steady_clock;
  struct Loop;

  // A task that a thread runs.
  struct Running {
    const WorkPool* pool;
    size_t thread;  // number in busy_
    Task task;
    Running* outer;  // on whose stack it runs, or null
    Clock::time_point begin;
    Clock::time_point goes_on_until = begin;  // before another nested task
  };

  void Work(size_t thread);
  void WorkOnSmallTasks();
  void Run(Task task, size_t thread);
  void Join();
  const TaskOwner& CurrentOwner() const;
  // Runs tiles of a loop until others wait, and comes back later.
  void HelpLoop(const std::shared_ptr<Loop>& loop);
  // Runs a tile of a loop. Returns false if there is none.
  bool RunTile(Loop* loop);
  bool OthersWait();

  static thread_local Running* running_;  // the task that this thread runs, of any pool, or null
  const size_t count_;                    // threads that run tasks of both lanes
  std::mutex mutex_;
  std::condition_variable ready_, small_ready_;
  TaskQueue tasks_;
  std::atomic<size_t> waiting_{0};  // tasks_.size(), readable without mutex_
  std::atomic<size_t> awake_;       // threads that check for a task without a notify
  size_t idle_ = 0;                 // threads that wait for ready_
  bool stopping_ = false;
  BusyThreads busy_;
  std::vector<std::thread> threads_;  // the one for small tasks first
};

// Work stealing control of a thread.

enum class Help { kNone, kIdleThreads };

// RAII scope in which this thread runs no nested tasks. Pool threads help its loops only with Help::kIdleThreads, on
// account of `owner`, which must outlive the scope. The innermost scope applies.
class NoWorkStealing {
 public:
  explicit NoWorkStealing(Help help = Help::kNone, const TaskOwner* owner = nullptr);
  ~NoWorkStealing();
  NoWorkStealing(const NoWorkStealing&) = delete;
  NoWorkStealing& operator=(const NoWorkStealing&) = delete;

 private:
  const bool before_, helped_before_;
  const TaskOwner* const owner_before_;
};

}  // namespace posenc

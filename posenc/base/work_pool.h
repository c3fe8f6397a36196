// Thread pool for computation. gRPC's own threads only submit tasks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "posenc/base/busy_threads.h"
#include "posenc/base/interruption.h"
#include "posenc/base/task_queue.h"

namespace posenc {

// Tasks run in the order of TaskQueue: owners share the threads by weight, and their connections equally; and small
// tasks need not wait for bulk ones. If no small task is taken for a millisecond, because all threads are in slabs of
// slow values, one more thread runs them.
//
// A bulk task whose owner has used more than another one gives up its place between two slabs: its thread waits until
// the queue comes to it again, and a spare one takes its place, so threads() threads compute at any time.
class WorkPool {
 public:
  // Is told the seconds that tasks of an owner, other than nobody, have used, by the thread that ran them.
  using Meter = std::function<void(const std::string& owner, double seconds)>;

  // 0 threads counts as 1.
  explicit WorkPool(size_t threads, Meter meter = nullptr);
  // Runs all submitted tasks, each to its end, then joins the threads.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  size_t threads() const { return places_; }
  // Number of threads that have been in one task for longer than `time`. Thread-safe.
  size_t CountLongTasks(std::chrono::steady_clock::duration time) const { return busy_.CountLongerThan(time); }

  // Runs the task on a thread of the pool; FIFO within a lane of an owner's connection. `owner` is null: the owner of
  // the task that this thread runs, or that of NoWorkStealing, or nobody. A task that throws terminates the process.
  // Thread-safe.
  void Submit(std::function<void()> task, Lane lane = Lane::kBulk, const TaskOwner* owner = nullptr);

  // Calls body(begin, end) for slabs of at most `grain` items that together cover [0, count), on the calling thread and
  // on idle threads of the pool, at most threads() in all, and returns when all have ended. The caller always takes
  // part: a call from within a task cannot deadlock. `cancelled` is called before each slab and is the body's
  // interruption scope. Returns the first status that stopped it; UNAVAILABLE on bad_alloc.
  //
  // The loop does not see what a body allocates (memory_account.h). If a body's memory depends on a request, pass
  // `body_bytes`, the most bytes that one body holds: the loop counts them for each of its threads until it ends, and
  // uses fewer threads if they are many. Thread-safe.
  absl::Status ParallelFor(size_t count, size_t grain, const Cancellation& cancelled,
                           absl::FunctionRef<void(size_t begin, size_t end)> body, int64_t body_bytes = 0);

  // For long computations outside of loops: gives up this thread's place, as a loop does between two slabs, if it runs
  // a bulk task and it is another owner's turn. Does nothing for two milliseconds after the last look, nor in an
  // ActivityScope. Thread-safe.
  void GiveWay(const Cancellation& cancelled);

  // Charges the owner of the task that this thread runs for its time until now, which otherwise happens at its end or
  // before another one runs between its slabs. Returns false if this thread runs no task of the pool.
  bool ChargeSoFar();
  // The time in which this thread, since its start, has let other tasks run between the slabs of its own.
  static std::chrono::steady_clock::duration TimeBetweenSlabs();

 private:
  void Work(size_t thread);
  void Relieve(size_t thread);
  // Starts a thread that waits for a place. Returns false if there are enough, or none can be had. Requires mutex_.
  bool AddSpare();
  // Waits for a place that a task gives up. Returns false if the pool ends.
  bool AwaitPlace(std::unique_lock<std::mutex>* lock);
  // If it is another owner's turn, lets a spare thread compute in place of this one until its task's turn, or until the
  // task is cancelled. The lock must hold mutex_, and this thread run a bulk task.
  void GiveUpPlace(std::unique_lock<std::mutex>* lock, const Cancellation& cancelled);
  bool IsTurnOfOther();
  // Runs a small task that waits. Then gives up this thread's place if it is another owner's turn.
  void LetOthersRun(const Cancellation& cancelled);
  struct Running;
  // Whether this thread runs a task of this pool.
  bool RunsTask() const;
  // Runs the task that the thread has begun, and charges its owner.
  void Run(Running* task);
  void Tell(const Running& task, double seconds);  // tells the meter of the task's owner
  // Require mutex_:
  void Begin(Running* task);
  void ChargeAll();  // without telling the meter
  void CountWaiting();

  static thread_local Running* running_;  // the task that this thread runs, of any pool, or null
  const Meter meter_;
  const size_t places_;  // threads that compute at a time
  std::mutex mutex_;
  std::condition_variable ready_, late_, place_given_up_;
  TaskQueue tasks_;
  std::vector<Running*> on_thread_;  // the task that each thread of busy_ computes, or null
  std::atomic<size_t> waiting_{0};   // tasks, readable without mutex_
  std::atomic<size_t> awake_;        // threads that check for a task without a notify
  size_t idle_ = 0;                  // threads that wait for a task
  size_t small_taken_ = 0;           // tasks since the start
  size_t spare_ = 0;                 // threads that wait for a place, or will, and have not been promised one
  size_t given_up_ = 0;              // places that were given up and not yet taken
  bool handed_over_ = false;         // what the last task of kTurn did
  bool stopping_ = false;
  BusyThreads busy_;  // each thread, and the relief thread
  std::vector<std::thread> threads_;
  std::thread relief_;
};

// Work stealing control of a thread.

enum class Help { kNone, kIdleThreads };

// RAII scope that disables work stealing: WorkPool::ParallelFor() on this thread runs no task between slabs. Pool
// threads help it only with Help::kIdleThreads, on account of `owner`, which must outlive the scope. The innermost
// scope applies.
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

// The threads that compute. gRPC's own threads only hand work over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "posenc/base/interruption.h"

namespace posenc {

// Small tasks go before bulk ones, and also run between a bulk task's slabs, one at a time: they need not wait until it
// ends. After eight of them in a row a thread takes a bulk one even so.
enum class Lane { kSmall, kBulk };

class WorkPool {
 public:
  // threads >= 1.
  explicit WorkPool(size_t threads);
  // Runs what was submitted, then joins.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  size_t threads() const { return threads_.size(); }

  // Runs the task on a thread of the pool; of each lane first come, first served.
  void Submit(std::function<void()> task, Lane lane = Lane::kBulk);

  // Calls body(begin, end) for slabs of at most `grain` items that together cover [0, count), on the calling thread
  // and on idle threads of the pool, threads() at most in all, and returns when all have ended. The caller always takes
  // part, so that a call from within a task cannot wait for itself. `cancelled` is asked before each slab, and is the
  // body's interruption scope: ParallelFor returns the first status that stopped it.
  absl::Status ParallelFor(size_t count, size_t grain, const Cancellation& cancelled,
                           absl::FunctionRef<void(size_t begin, size_t end)> body);

 private:
  void Work();
  void RunSmallTask();
  void CountWaiting();  // under the mutex

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> small_, bulk_;
  std::atomic<size_t> waiting_{0}, small_waiting_{0};  // of both, to look without the mutex
  std::atomic<size_t> awake_;                          // threads that will look for a task without being woken
  size_t small_in_a_row_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// For threads that must not do others' work.

enum class Help { kNone, kIdleThreads };

// While one lives on a thread, WorkPool::ParallelFor() there runs no task between slabs, and is helped by none of the
// pool's threads, or by idle ones. Of two, the later one counts.
class Alone {
 public:
  explicit Alone(Help help = Help::kNone);
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  const bool before_, helped_before_;
};

}  // namespace posenc

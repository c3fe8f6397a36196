// LRU cache of values that are expensive to compute; concurrent callers share one computation. A forked child has the
// values that were complete.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "posenc/base/fork.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"

namespace posenc {

struct CacheCounters {
  int64_t hits = 0;    // found, or joined another caller's computation
  int64_t misses = 0;  // computed
  int64_t bytes = 0;   // in the cache now
};

// Holds at most max_bytes, keys included, with LRU eviction. When several callers request a missing value, one computes
// it and the others wait. Errors are not cached. Thread-safe.
template <class Value>
class SharedCache {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const Value>>;

  // max_bytes 0 disables caching. size_of returns the bytes of a value.
  SharedCache(size_t max_bytes, size_t (*size_of)(const Value&)) : max_bytes_(max_bytes), size_of_(size_of) {}

  // Returns the cached value; null if it is absent or still being computed. Does not wait for a computation.
  std::shared_ptr<const Value> Find(const std::string& key) {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.bytes == 0) return nullptr;
    ++counters_.hits;
    by_use_.splice(by_use_.begin(), by_use_, found->second.use);
    return *found->second.result.get();
  }

  // Returns the cached value, or calls `compute`, or waits for another caller's `compute`, which is an interruption
  // point (and may throw in a WaitingLimit). If that computation is stopped or lacks memory, one waiter starts it
  // again; any other exception reaches all waiters.
  Result Get(const std::string& key, absl::FunctionRef<absl::StatusOr<Value>()> compute) {
    for (;;) {
      std::promise<Result> promise;
      const std::shared_future<Result> other = Join(key, promise);
      if (!other.valid()) return Compute(key, compute, promise);
      // Each millisecond, because the interruption point may also let a small task run on this thread meanwhile.
      for (int milliseconds = 0; other.wait_for(std::chrono::milliseconds(milliseconds)) != std::future_status::ready;
           milliseconds = 1) {
        if (WaitingLimit::IsOver()) throw ComputationStopped(WouldBlock());
        const ActivityScope waiting(Activity::kWaiting);
        InterruptionPoint();
      }
      try {
        return other.get();
      } catch (const ComputationStopped&) {
      } catch (const std::bad_alloc&) {
      }
      if (WaitingLimit::IsOver()) throw ComputationStopped(WouldBlock());
      InterruptionPoint();
    }
  }

  size_t max_bytes() const {
    std::lock_guard lock(mutex_);
    return max_bytes_;
  }
  void SetMaxBytes(size_t max_bytes) {
    std::lock_guard lock(mutex_);
    max_bytes_ = max_bytes;
    Shrink();
  }

  CacheCounters counters() const {
    std::lock_guard lock(mutex_);
    return counters_;
  }

 private:
  // Bytes of an entry besides its value and two keys: map, list, future, malloc's rounding. Up to 460 were measured.
  static constexpr size_t kEntryBytes = 512;

  struct Entry {
    std::shared_future<Result> result;
    std::list<std::string>::iterator use;
    size_t bytes;  // 0 while it is being computed
  };

  // Returns the result that another caller computes or has computed; invalid if this caller must compute it and fulfil
  // `promise`.
  std::shared_future<Result> Join(const std::string& key, std::promise<Result>& promise) {
    const MemoryScope uncounted(nullptr);  // the cache has a limit of its own
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      ++counters_.hits;
      by_use_.splice(by_use_.begin(), by_use_, found->second.use);
      return found->second.result;
    }
    ++counters_.misses;
    by_use_.push_front(key);
    try {
      entries_.emplace(key, Entry{promise.get_future().share(), by_use_.begin(), 0});
    } catch (...) {
      by_use_.pop_front();
      throw;
    }
    return {};
  }

  Result Compute(const std::string& key, absl::FunctionRef<absl::StatusOr<Value>()> compute,
                 std::promise<Result>& promise) {
    try {
      const ActivityScope awaited(Activity::kAwaited);
      absl::StatusOr<Value> value = compute();
      const size_t bytes = value.ok() ? size_of_(*value) + 2 * key.size() + kEntryBytes : 0;
      Result result = value.ok() ? Result(std::make_shared<const Value>(*std::move(value))) : Result(value.status());
      promise.set_value(result);
      Settle(key, bytes);
      return result;
    } catch (...) {
      Settle(key, 0);  // before waiters wake: they must not find this entry again
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  // Charges a computed value and evicts others if needed. Removes the entry if `bytes` is 0 (no value to cache).
  void Settle(const std::string& key, size_t bytes) {
    const MemoryScope uncounted(nullptr);
    std::lock_guard lock(mutex_);
    const auto entry = entries_.find(key);
    if (bytes == 0) {
      by_use_.erase(entry->second.use);
      entries_.erase(entry);
      return;
    }
    entry->second.bytes = bytes;
    counters_.bytes += static_cast<int64_t>(bytes);
    Shrink();
  }

  // Removes the entries that threads of the parent were computing, for which the child would wait forever.
  void ForgetUnfinished() {
    const MemoryScope uncounted(nullptr);
    for (auto use = by_use_.begin(); use != by_use_.end();) {
      const auto entry = entries_.find(*use);
      const bool finished = entry == entries_.end() || entry->second.bytes > 0;
      if (!finished) entries_.erase(entry);
      use = finished ? std::next(use) : by_use_.erase(use);
    }
  }

  void Shrink() {
    for (auto use = by_use_.end(); use != by_use_.begin() && static_cast<size_t>(counters_.bytes) > max_bytes_;) {
      const auto entry = entries_.find(*--use);
      if (entry->second.bytes == 0) continue;  // still being computed
      counters_.bytes -= static_cast<int64_t>(entry->second.bytes);
      entries_.erase(entry);
      use = by_use_.erase(use);
    }
  }

  mutable std::mutex mutex_;
  size_t max_bytes_;
  size_t (*const size_of_)(const Value&);
  std::list<std::string> by_use_;  // keys, most recently used first
  absl::flat_hash_map<std::string, Entry> entries_;
  CacheCounters counters_;
  const ForkGuard fork_{&mutex_, [this] { ForgetUnfinished(); }};
};

}  // namespace posenc

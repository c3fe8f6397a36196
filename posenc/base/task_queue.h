// Queue of tasks in two lanes, small and bulk. In a lane, callers take turns, one task each (round robin), and so do
// the connections of a caller. A connection's tasks keep their order. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace posenc {

// Tasks of kBlocking are in the bulk lane. They may wait for something other than a processor, such as a file, and
// never run on the stack of another task.
enum class Lane { kSmall, kBulk, kBlocking };

struct TaskOwner {
  std::string caller;  // an identity or a peer's address; empty: the server itself
  uint64_t connection = 0;
};

struct Task {
  std::function<void()> run;
  Lane lane = Lane::kBulk;
  TaskOwner owner;
};

// FIFO queue of a connection's tasks.
class ConnectionQueue {
 public:
  bool empty() const { return tasks_.empty(); }
  size_t Count(const TaskOwner&) const { return tasks_.size(); }
  void Push(Task task) { tasks_.push_back(std::move(task)); }
  std::optional<Task> Take(bool may_block) {
    if (!may_block && tasks_.front().lane == Lane::kBlocking) return std::nullopt;
    std::optional<Task> task(std::move(tasks_.front()));
    tasks_.pop_front();
    return task;
  }

 private:
  std::deque<Task> tasks_;
};

// Queues that take turns, one for each value of TaskOwner's member `kKey`. Only queues with tasks are kept, and one
// spare, so that the tasks of a lone caller do not allocate a queue each time.
template <auto kKey, class Queue>
class RoundRobin {
 public:
  using Key = std::remove_cvref_t<decltype(std::declval<TaskOwner>().*kKey)>;

  bool empty() const { return turns_.empty(); }
  size_t size() const { return turns_.size(); }  // in queues
  bool Has(const Key& key) const { return by_key_.contains(key); }
  // Number of the tasks of one connection.
  size_t Count(const TaskOwner& owner) const {
    const auto found = by_key_.find(owner.*kKey);
    return found == by_key_.end() ? 0 : found->second->Count(owner);
  }

  void Push(Task task) {
    const auto found = by_key_.find(task.owner.*kKey);
    if (found != by_key_.end()) return found->second->Push(std::move(task));
    std::list<Queue> added;
    added.swap(spare_);
    if (added.empty()) added.emplace_back();
    const Key key = task.owner.*kKey;
    added.front().Push(std::move(task));
    by_key_.emplace(key, added.begin());
    turns_.splice(turns_.end(), added);
  }

  // Takes the next task, of another queue than that of `except` (null: of any), and not of kBlocking unless
  // `may_block`. Returns nullopt if there is none.
  std::optional<Task> Take(bool may_block = true, const Key* except = nullptr) {
    const auto excepted = except == nullptr ? by_key_.end() : by_key_.find(*except);
    for (auto queue = turns_.begin(); queue != turns_.end(); ++queue) {
      if (excepted != by_key_.end() && excepted->second == queue) continue;
      std::optional<Task> task = queue->Take(may_block);
      if (!task) continue;
      std::list<Queue> taken;
      taken.splice(taken.end(), turns_, queue);
      if (!queue->empty()) {
        turns_.splice(turns_.end(), taken);
      } else {
        by_key_.erase(task->owner.*kKey);
        spare_.swap(taken);
      }
      return task;
    }
    return std::nullopt;
  }

 private:
  std::list<Queue> turns_;  // the next one first
  absl::flat_hash_map<Key, typename std::list<Queue>::iterator> by_key_;
  std::list<Queue> spare_;  // at most one, without tasks
};

class TaskQueue {
 public:
  size_t size() const { return small_size_ + bulk_size_; }
  size_t small() const { return small_size_; }
  // Number of a connection's tasks in the bulk lane.
  size_t CountBulk(const TaskOwner& owner) const { return bulk_.Count(owner); }
  // True if a small task is there, or a task of another caller.
  bool HasOthers(const std::string& caller) const {
    return !small_.empty() || bulk_.size() > (bulk_.Has(caller) ? 1 : 0);
  }

  void Push(Task task) {
    const bool is_small = task.lane == Lane::kSmall;
    (is_small ? small_ : bulk_).Push(std::move(task));
    ++(is_small ? small_size_ : bulk_size_);
  }

  // Return the next task; nullopt if there is none. The lanes take turns in Take().
  std::optional<Task> Take() {
    was_small_ = !small_.empty() && (bulk_.empty() || !was_small_);
    return Counted((was_small_ ? small_ : bulk_).Take());
  }
  std::optional<Task> TakeSmall() { return Counted(small_.Take()); }
  // A task that may run on the stack of another one in the bulk lane.
  std::optional<Task> TakeBulkOfOthers(const std::string& caller) { return Counted(bulk_.Take(false, &caller)); }

 private:
  using Callers = RoundRobin<&TaskOwner::caller, RoundRobin<&TaskOwner::connection, ConnectionQueue>>;

  std::optional<Task> Counted(std::optional<Task> task) {
    if (task) --(task->lane == Lane::kSmall ? small_size_ : bulk_size_);
    return task;
  }

  Callers small_, bulk_;
  size_t small_size_ = 0, bulk_size_ = 0;
  bool was_small_ = false;  // the last task of Take()
};

}  // namespace posenc

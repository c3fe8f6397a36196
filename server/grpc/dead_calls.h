// Counts calls that end before the server can serve them, for each connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace posenc::server {

// A dead call is reset before the server has seen whether it has a message: its deadline is shorter than the time that
// it waits for a receiving thread. Its reset frees its place among --max-concurrent-streams, so that a client with
// short deadlines can send calls without end (ADR 39). Thread-safe. Standard types only, so that it runs under
// ThreadSanitizer.
//
// A connection has a number, which others get once it is closed and its calls have ended, and a name, which others get
// once it is closed.
class DeadCalls {
 public:
  // Counts a dead call. Returns true, and begins anew, once `most` more calls of the connection were dead than were
  // served since.
  bool Add(uint64_t number, const std::string& name, size_t most) {
    const std::lock_guard lock(mutex_);
    if (counts_.size() >= kMostConnections && !counts_.contains(number)) counts_.clear();  // most are closed
    Count& count = counts_[number];
    if (count.name != name) count = {name, 0};
    if (++count.dead < most) return false;
    counts_.erase(number);
    return true;
  }

  void CountServed(uint64_t number, const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(number);
    if (found == counts_.end()) return;
    if (found->second.name != name || --found->second.dead == 0) counts_.erase(found);
  }

 private:
  static constexpr size_t kMostConnections = 4096;
  struct Count {
    std::string name;
    size_t dead = 0;  // dead calls, less those served since
  };

  std::mutex mutex_;
  std::unordered_map<uint64_t, Count> counts_;  // by number
};

}  // namespace posenc::server

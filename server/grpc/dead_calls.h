// Counts calls that end before the server can serve them, for each connection.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>

namespace posenc::server {

// A dead call has no message, or is cancelled before the server has read it: its deadline is shorter than the time that
// it waits for a receiving thread. Its reset frees its place among --max-concurrent-streams, so that a client with
// short deadlines can send calls without end (ADR 39). Thread-safe. Standard types only, so that it runs under
// ThreadSanitizer.
class DeadCalls {
 public:
  // Counts a dead call. Returns by how many more calls of the connection have been dead than were served since.
  size_t Add(const std::string& connection) {
    const std::lock_guard lock(mutex_);
    if (counts_.size() >= kMostConnections && !counts_.contains(connection)) counts_.clear();  // most are closed
    return ++counts_[connection];
  }

  void CountServed(const std::string& connection) {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(connection);
    if (found != counts_.end() && --found->second == 0) counts_.erase(found);
  }

 private:
  static constexpr size_t kMostConnections = 4096;

  std::mutex mutex_;
  std::unordered_map<std::string, size_t> counts_;  // dead calls, less those served since
};

}  // namespace posenc::server

// Cache of recently prepared calls. The layers of a model's step request the same rotation of different bytes: the
// first call's preparation, from parsing to the answer's layout, is reused for the rest.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/message.h"
#include "posenc/service/operations.h"
#include "posenc/transport/slices.h"
#include "posenc/wire/answer.h"

namespace posenc::server {

// Is called once when a call ends: with its status, and the times that it waited for a thread and was computed.
using OnCallEnd =
    std::function<void(const absl::Status& status, std::chrono::nanoseconds queued, std::chrono::nanoseconds computed)>;

// Result of all steps before the computation.
struct Prepared {
  google::protobuf::Arena arena;  // owns both messages
  google::protobuf::Message* request = nullptr;
  google::protobuf::Message* response = nullptr;
  bool has_regions = false;
  std::string copies;               // wire::RequestRegions::copies() that the preparation has read
  bool only_once = false;           // the messages depend on more than the key, the request and its payloads
  std::shared_ptr<const void> key;  // of RecentCalls; kept, so that no other object gets its address
  OnCallEnd on_end;                 // for each call that uses this; null: none
  std::string model;                // of the Open Inference Protocol; empty: none
  wire::Job job;
  wire::Answer layout;
  std::string device;  // that computes the outputs
  int64_t bytes = 0;   // of memory that it holds, as counted
  // The last call that used this took longer than a receiving thread may. Such calls have all in common but their
  // operands' bytes, so they take about as long, unless the first one left its tables in the cache.
  mutable std::atomic<bool> is_slow{false};
};

// LRU cache of a few small calls. Thread-safe.
class RecentCalls {
 public:
  struct Found {
    std::shared_ptr<const Prepared> prepared;  // null if absent
    std::string request_id;                    // request_id of Find()'s message
  };

  // Finds a kept request of this key (its type, or what else its preparation depends on) that differs at most in the
  // bytes of wire::Job::operands, in a request_id of equal length, and in what lies in shared memory: the caller must
  // compare Prepared::copies. `message` is the stripped request, `payloads` the bytes it was stripped of.
  Found Find(const void* key, const std::string& message, const transport::SlicedPayloads& payloads);
  // Keeps what was prepared from `message` and `payloads`, if other calls can use it and it is small. Replaces what was
  // prepared from other copies.
  void Keep(std::shared_ptr<const Prepared> prepared, std::string message, std::string request_id,
            const transport::SlicedPayloads& payloads);

 private:
  struct Entry {
    std::string message, request_id;
    size_t id_begin = 0, id_end = 0;  // range of request_id in message; 0, 0 if ambiguous
    std::vector<size_t> sizes;        // bytes of each payload
    std::vector<std::string> read;    // content of each payload; empty for operands
    std::shared_ptr<const Prepared> prepared;
  };
  static bool IsSame(const Entry& entry, const std::string& message);
  static bool Serves(const Entry& entry, const void* key, const std::string& message,
                     const transport::SlicedPayloads& payloads);

  std::mutex mutex_;
  std::vector<Entry> entries_;  // most recently used first
};

}  // namespace posenc::server

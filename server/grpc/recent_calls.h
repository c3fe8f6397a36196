// Calls that were prepared lately. The layers of a model's step ask for the same rotation of other bytes: what the
// first of them found out, from parsing to the layout of the answer, serves the rest.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "google/protobuf/arena.h"
#include "google/protobuf/message.h"
#include "posenc/service/operations.h"
#include "posenc/transport/slices.h"
#include "posenc/wire/answer.h"

namespace posenc::server {

// All that precedes computing.
struct Prepared {
  google::protobuf::Arena arena;  // of the messages
  google::protobuf::Message* request = nullptr;
  google::protobuf::Message* response = nullptr;
  bool has_regions = false;
  wire::Job job;
  wire::Answer layout;
};

// Keeps some small ones; the least recently used goes first. Thread-safe.
class RecentCalls {
 public:
  struct Found {
    std::shared_ptr<const Prepared> prepared;  // null: none
    std::string request_id;                    // this request's own
  };

  // What was kept for a request of this type that differs from this one at most in what wire::Job::operands says, and
  // in a request_id of as many bytes. `message` is the request, stripped, and `payloads` what it was stripped of.
  Found Find(const google::protobuf::Message& type, const std::string& message,
             const transport::SlicedPayloads& payloads);
  // Keeps what was prepared from these, if others can use it.
  void Keep(std::shared_ptr<const Prepared> prepared, std::string message, std::string request_id,
            const transport::SlicedPayloads& payloads);

 private:
  struct Entry {
    std::string message, request_id;
    size_t id_begin = 0, id_end = 0;  // where it is in the message; nowhere, if that is not certain
    std::vector<size_t> sizes;        // of what it was stripped of
    std::vector<std::string> read;    // the bytes; empty where an operand's
    std::shared_ptr<const Prepared> prepared;
  };
  static bool IsSame(const Entry& entry, const std::string& message);
  static bool Serves(const Entry& entry, const google::protobuf::Message& type, const std::string& message,
                     const transport::SlicedPayloads& payloads);

  std::mutex mutex_;
  std::vector<Entry> entries_;  // the last used first
};

}  // namespace posenc::server

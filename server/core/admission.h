// Admission control: limits on requests and bytes in flight. Standard types only, so that it runs under
// ThreadSanitizer.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "server/core/fair_limit.h"

namespace posenc::server {

// A caller has a name and, from a policy, limits of what all its calls may hold together.
struct Caller {
  std::string name;
  int64_t max_requests = std::numeric_limits<int64_t>::max();
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
};

// Thread-safe.
class Admission {
 public:
  enum class Verdict {
    kAdmitted,
    kOverloaded,  // a limit is reached; retry later
    kOverQuota,   // a limit of the caller's own is reached; retry later
    kDraining,    // the server is shutting down
    kTooLarge,    // can never be admitted
  };

  struct Counters {
    int64_t started = 0;  // calls that have come
    int64_t failed = 0;   // answered with an error that is not a refusal
    int64_t refused = 0;
    int64_t in_flight_requests = 0;
    int64_t in_flight_bytes = 0;
  };

  Admission(int64_t max_requests, int64_t max_bytes)
      : requests_(FairLimit::Create(max_requests)), bytes_(FairLimit::Create(max_bytes)) {}

  // Charges a request and its bytes. *request and *bytes must be empty; they are set only on kAdmitted.
  Verdict AdmitRequest(int64_t size, Charge* request, Charge* bytes, const Caller& caller = {});
  // Charges further bytes for an admitted request, which already holds `held` bytes. *bytes may hold some of the
  // caller's: it grows.
  Verdict AdmitBytes(int64_t size, int64_t held, Charge* bytes, const Caller& caller = {});

  void CountStart() { ++started_; }
  void CountFailure() { ++failed_; }
  void CountRefusal() { ++refused_; }
  Counters counters() const { return {started_, failed_, refused_, requests_->held(), bytes_->held()}; }

  // Refuses requests from now on.
  void Drain();

 private:
  const std::shared_ptr<FairLimit> requests_, bytes_;
  std::atomic<int64_t> started_{0}, failed_{0}, refused_{0};
  std::mutex mutex_;  // held while something is charged, so that a caller's own limits are exact
  bool draining_ = false;
};

}  // namespace posenc::server

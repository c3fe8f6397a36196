// How much is in flight, and whether more may be. Standard types only, so that it runs under ThreadSanitizer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace posenc::server {

class Admission;

// Something that counts against a limit for as long as this lives. It keeps the books open too: an answer's last slice
// may be released long after the server is gone.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept = default;
  Charge& operator=(Charge&& other) noexcept;
  ~Charge() { Return(); }

  // Ends it early.
  void Return();

 private:
  friend class Admission;
  std::shared_ptr<Admission> admission_;  // null: charges nothing
  int64_t bytes_ = 0;
  int64_t requests_ = 0;
  int64_t handlers_ = 0;
};

class Admission : public std::enable_shared_from_this<Admission> {
 public:
  enum class Verdict {
    kAdmitted,
    kOverloaded,  // not now
    kDraining,    // not here any more
    kTooLarge,    // never
  };

  struct Counters {
    int64_t started = 0;  // handlers entered
    int64_t failed = 0;   // answered with an error that is not a refusal
    int64_t refused = 0;
    int64_t in_flight_requests = 0;
    int64_t in_flight_bytes = 0;
  };

  static std::shared_ptr<Admission> Create(int64_t max_requests, int64_t max_bytes);

  // A handler was entered; the charge lives until its last word is sent. It counts against no limit.
  Charge EnterHandler();
  // A request and its bytes. *request and *bytes must charge nothing; they are set when the request is admitted.
  Verdict AdmitRequest(int64_t size, Charge* request, Charge* bytes);
  // Bytes of an answer, for a request that already holds `held` bytes. *bytes as above.
  Verdict AdmitBytes(int64_t size, int64_t held, Charge* bytes);

  void CountFailure();
  void CountRefusal();
  Counters counters() const;

  // From now on requests are refused.
  void Drain();
  // Waits until no handler has been entered for `quiet`; false if `deadline` came first.
  bool WaitForQuiet(std::chrono::steady_clock::duration quiet, std::chrono::steady_clock::time_point deadline);
  // Waits until no request is in flight; false if `deadline` came first. After Drain() that comes, whoever calls on.
  bool WaitForRequests(std::chrono::steady_clock::time_point deadline);
  // Waits until no handler is in progress, a refusal's included; false if `deadline` came first.
  bool WaitForHandlers(std::chrono::steady_clock::time_point deadline);

 private:
  friend class Charge;
  Admission(int64_t max_requests, int64_t max_bytes) : max_requests_(max_requests), max_bytes_(max_bytes) {}
  // With the lock held.
  bool BytesFit(int64_t size) const { return size <= max_bytes_ - counters_.in_flight_bytes; }
  Charge Take(int64_t bytes, int64_t requests, int64_t handlers);
  void Return(const Charge& charge);

  const int64_t max_requests_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;  // the last request or the last handler
  Counters counters_;
  int64_t handlers_ = 0;
  std::chrono::steady_clock::time_point last_entry_ = std::chrono::steady_clock::time_point::min();
  bool draining_ = false;
};

}  // namespace posenc::server

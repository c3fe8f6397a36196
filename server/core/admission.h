// Admission control: limits on requests and bytes in flight. Standard types only, so that it runs under
// ThreadSanitizer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace posenc::server {

class Admission;

// RAII charge against the limits of an Admission. Shares its ownership: an answer's last slice may be released long
// after the server is destroyed.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept = default;
  Charge& operator=(Charge&& other) noexcept;
  ~Charge() { Return(); }

  // Returns the charge before destruction. Does nothing the second time.
  void Return();
  // Returns some of the charged bytes.
  void ReturnBytes(int64_t bytes);

 private:
  friend class Admission;
  std::shared_ptr<Admission> admission_;  // null if nothing is charged
  int64_t bytes_ = 0;
  int64_t requests_ = 0;
  int64_t handlers_ = 0;
};

class Admission : public std::enable_shared_from_this<Admission> {
 public:
  enum class Verdict {
    kAdmitted,
    kOverloaded,  // a limit is reached; retry later
    kDraining,    // the server is shutting down
    kTooLarge,    // can never be admitted
  };

  struct Counters {
    int64_t started = 0;  // handlers entered
    int64_t failed = 0;   // answered with an error that is not a refusal
    int64_t refused = 0;
    int64_t in_flight_requests = 0;
    int64_t in_flight_bytes = 0;
  };

  static std::shared_ptr<Admission> Create(int64_t max_requests, int64_t max_bytes);

  // Counts a handler that was entered. Keep the charge until its final status is sent. It counts against no limit.
  Charge EnterHandler();
  // Charges a request and its bytes. *request and *bytes must be empty; they are set only on kAdmitted.
  Verdict AdmitRequest(int64_t size, Charge* request, Charge* bytes);
  // Charges bytes for a request that already holds `held` bytes. *bytes may hold some of them: it grows.
  Verdict AdmitBytes(int64_t size, int64_t held, Charge* bytes);

  void CountFailure();
  void CountRefusal();
  Counters counters() const;

  // Refuses requests from now on.
  void Drain();
  // Waits until no handler has been entered for `quiet`. Returns false if `deadline` came first.
  bool WaitForQuiet(std::chrono::steady_clock::duration quiet, std::chrono::steady_clock::time_point deadline);
  // Waits until no request is in flight. Returns false if `deadline` came first. Call Drain() first to stop new ones.
  bool WaitForRequests(std::chrono::steady_clock::time_point deadline);
  // Waits until no handler is in progress, including those that refuse. Returns false if `deadline` came first.
  bool WaitForHandlers(std::chrono::steady_clock::time_point deadline);

 private:
  friend class Charge;
  Admission(int64_t max_requests, int64_t max_bytes) : max_requests_(max_requests), max_bytes_(max_bytes) {}
  // BytesFit() and Take() require mutex_; Return() locks it.
  bool BytesFit(int64_t size) const { return size <= max_bytes_ - counters_.in_flight_bytes; }
  Charge Take(int64_t bytes, int64_t requests, int64_t handlers);
  void Return(const Charge& charge);
  void ReturnBytes(int64_t bytes);

  const int64_t max_requests_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;  // signals the end of the last request or handler
  Counters counters_;
  int64_t handlers_ = 0;
  std::chrono::steady_clock::time_point last_entry_ = std::chrono::steady_clock::time_point::min();
  bool draining_ = false;
};

}  // namespace posenc::server

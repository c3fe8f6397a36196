// A limit of something that callers hold: requests, bytes, streams. Standard types only, so that it runs under
// ThreadSanitizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace posenc::server {

class FairLimit;

// RAII for what a caller holds of a FairLimit. Shares its ownership: an answer's last slice may be released long after
// the server is destroyed.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept = default;
  Charge& operator=(Charge&& other) noexcept;
  ~Charge() { Return(); }

  // Returns all of it before destruction. Does nothing the second time.
  void Return() { Return(amount_); }
  // Returns a part of it.
  void Return(int64_t amount);

 private:
  friend class FairLimit;
  std::shared_ptr<FairLimit> limit_;               // null if nothing is charged
  std::map<std::string, int64_t>::iterator held_;  // valid unless limit_ is null, as is amount_
  int64_t amount_ = 0;
};

// Admits something of a caller that already holds some if the caller then holds at most three times what stays free;
// of one that holds nothing, if it fits. So one caller alone gets three quarters, two get three sevenths each, and
// something stays free for the next one. Thread-safe.
class FairLimit : public std::enable_shared_from_this<FairLimit> {
 public:
  static std::shared_ptr<FairLimit> Create(int64_t capacity) {
    return std::shared_ptr<FairLimit>(new FairLimit(capacity));
  }

  // Charges so much to a caller. Returns false if it may not have it now. *charge must be empty.
  bool Take(const std::string& caller, int64_t amount, Charge* charge) { return Take(caller, amount, charge, true); }
  // Charges for what is admitted already: it only has to fit. *charge may hold some of the caller's.
  bool Grow(const std::string& caller, int64_t amount, Charge* charge) { return Take(caller, amount, charge, false); }

  int64_t capacity() const { return capacity_; }
  int64_t held() const;
  int64_t HeldBy(const std::string& caller) const;
  size_t callers() const;  // that hold anything

 private:
  friend class Charge;
  explicit FairLimit(int64_t capacity) : capacity_(capacity) {}
  bool Take(const std::string& caller, int64_t amount, Charge* charge, bool fairly);
  void Return(int64_t amount, Charge* charge);

  const int64_t capacity_;
  mutable std::mutex mutex_;
  int64_t held_ = 0;
  std::map<std::string, int64_t> held_by_;  // callers that hold anything
};

}  // namespace posenc::server

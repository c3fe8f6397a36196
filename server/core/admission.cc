#include "server/core/admission.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace posenc::server {

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    Return();
    admission_ = std::move(other.admission_);
    bytes_ = other.bytes_;
    requests_ = other.requests_;
    handlers_ = other.handlers_;
  }
  return *this;
}

void Charge::Return() {
  if (const std::shared_ptr<Admission> admission = std::move(admission_)) admission->Return(*this);
}

void Charge::ReturnBytes(int64_t bytes) {
  if (admission_ == nullptr || bytes == 0) return;
  admission_->ReturnBytes(bytes);
  bytes_ -= bytes;
}

std::shared_ptr<Admission> Admission::Create(int64_t max_requests, int64_t max_bytes) {
  return std::shared_ptr<Admission>(new Admission(max_requests, max_bytes));
}

Charge Admission::EnterHandler() {
  std::lock_guard lock(mutex_);
  ++counters_.started;
  last_entry_ = std::chrono::steady_clock::now();
  return Take(0, 0, 1);
}

Admission::Verdict Admission::AdmitRequest(int64_t size, Charge* request, Charge* bytes) {
  std::lock_guard lock(mutex_);
  if (size > max_bytes_) return Verdict::kTooLarge;
  if (draining_) return Verdict::kDraining;
  if (counters_.in_flight_requests >= max_requests_ || !BytesFit(size)) return Verdict::kOverloaded;
  *request = Take(0, 1, 0);
  *bytes = Take(size, 0, 0);
  return Verdict::kAdmitted;
}

Admission::Verdict Admission::AdmitBytes(int64_t size, int64_t held, Charge* bytes) {
  std::lock_guard lock(mutex_);
  if (size > max_bytes_ - held) return Verdict::kTooLarge;
  if (!BytesFit(size)) return Verdict::kOverloaded;
  if (bytes->admission_ == nullptr) {
    *bytes = Take(size, 0, 0);
  } else {
    counters_.in_flight_bytes += size;
    bytes->bytes_ += size;
  }
  return Verdict::kAdmitted;
}

void Admission::CountFailure() {
  std::lock_guard lock(mutex_);
  ++counters_.failed;
}

void Admission::CountRefusal() {
  std::lock_guard lock(mutex_);
  ++counters_.refused;
}

Admission::Counters Admission::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

void Admission::Drain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
}

bool Admission::WaitForQuiet(std::chrono::steady_clock::duration quiet,
                             std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    std::chrono::steady_clock::time_point until;
    {
      std::lock_guard lock(mutex_);
      until = last_entry_ + quiet;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) return true;
    if (now >= deadline) return false;
    std::this_thread::sleep_until(std::min(until, deadline));
  }
}

bool Admission::WaitForRequests(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return ended_.wait_until(lock, deadline, [this] { return counters_.in_flight_requests == 0; });
}

bool Admission::WaitForHandlers(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return ended_.wait_until(lock, deadline, [this] { return handlers_ == 0; });
}

Charge Admission::Take(int64_t bytes, int64_t requests, int64_t handlers) {
  counters_.in_flight_bytes += bytes;
  counters_.in_flight_requests += requests;
  handlers_ += handlers;
  Charge charge;
  charge.admission_ = shared_from_this();
  charge.bytes_ = bytes;
  charge.requests_ = requests;
  charge.handlers_ = handlers;
  return charge;
}

void Admission::ReturnBytes(int64_t bytes) {
  std::lock_guard lock(mutex_);
  counters_.in_flight_bytes -= bytes;
}

void Admission::Return(const Charge& charge) {
  std::lock_guard lock(mutex_);
  counters_.in_flight_bytes -= charge.bytes_;
  counters_.in_flight_requests -= charge.requests_;
  handlers_ -= charge.handlers_;
  if (handlers_ == 0 || counters_.in_flight_requests == 0) ended_.notify_all();
}

}  // namespace posenc::server

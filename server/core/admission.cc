#include "server/core/admission.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

namespace posenc::server {
namespace {

constexpr int64_t kReserve = 16;      // the reserve is this part of a limit
constexpr int64_t kReserveShare = 4;  // a holder may hold this part of the reserve
constexpr std::chrono::seconds kPresence(1);

}  // namespace

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    Return();
    admission_ = std::move(other.admission_);
    share_ = other.share_;
    bytes_ = other.bytes_;
    requests_ = other.requests_;
    handlers_ = other.handlers_;
    is_shared_ = other.is_shared_;
  }
  return *this;
}

void Charge::Return() {
  if (const std::shared_ptr<Admission> admission = std::move(admission_)) admission->Return(*this);
}

void Charge::ReturnBytes(int64_t bytes) {
  if (admission_ == nullptr || bytes == 0) return;
  admission_->ReturnBytes(bytes, share_);
  bytes_ -= bytes;
}

std::shared_ptr<Admission> Admission::Create(int64_t max_requests, int64_t max_bytes) {
  return std::shared_ptr<Admission>(new Admission(max_requests, max_bytes));
}

Charge Admission::EnterHandler() {
  std::lock_guard lock(mutex_);
  ++counters_.started;
  last_entry_ = std::chrono::steady_clock::now();
  return Take(0, 0, 1, nullptr);
}

Admission::Verdict Admission::AdmitRequest(int64_t size, Charge* request, Charge* bytes, const Holder& holder) {
  std::lock_guard lock(mutex_);
  if (size > std::min(max_bytes_, holder.max_bytes)) return Verdict::kTooLarge;
  if (draining_) return Verdict::kDraining;
  Share* const share = holder.name.empty() ? nullptr : &*shares_.try_emplace(holder.name).first;
  double part = 1;
  if (share != nullptr) {
    share->second.max_bytes = holder.max_bytes;
    share->second.weight = holder.weight;
    if (holder.weight > 0) part = PartOf(share);
  }
  const bool in_quota = share == nullptr || (share->second.requests < holder.max_requests && IsInQuota(size, *share));
  const bool in_part = part == 1 || IsInPart(size, *share, part);
  if (!in_quota || !in_part || !RequestFits(share) || !BytesFit(size, share)) {
    if (share != nullptr && share->second.charges == 0 && holder.weight == 0) shares_.erase(holder.name);
    return in_quota ? Verdict::kOverloaded : Verdict::kOverQuota;
  }
  *request = Take(0, 1, 0, share);
  request->is_shared_ = part < 1;
  *bytes = Take(size, 0, 0, share);
  return Verdict::kAdmitted;
}

Admission::Verdict Admission::AdmitBytes(int64_t size, int64_t held, Charge* bytes, const Charge* request) {
  std::lock_guard lock(mutex_);
  if (size > max_bytes_ - held) return Verdict::kTooLarge;
  Share* const share = request == nullptr || request->admission_ == nullptr ? nullptr : request->share_;
  if (share != nullptr && size > share->second.max_bytes - held) return Verdict::kTooLarge;
  if (share != nullptr && !IsInQuota(size, *share)) return Verdict::kOverQuota;
  if (!BytesFit(size, share)) return Verdict::kOverloaded;
  if (bytes->admission_ == nullptr) {
    *bytes = Take(size, 0, 0, share);
  } else {
    Add(size, 0, share);
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

bool Admission::IsInQuota(int64_t size, const Share& share) {
  return size <= share.second.max_bytes - share.second.bytes;
}

double Admission::PartOf(Share* share) {
  const auto now = std::chrono::steady_clock::now();
  share->second.last_seen = now;
  double sum = 0;
  for (auto other = shares_.begin(); other != shares_.end();) {
    const HolderShare& holds = other->second;
    const bool is_present = holds.charges > 0 || now - holds.last_seen < kPresence;
    sum += is_present ? holds.weight : 0;
    other = is_present ? std::next(other) : shares_.erase(other);
  }
  return share->second.weight / sum;
}

bool Admission::IsInPart(int64_t size, const Share& share, double part) const {
  const HolderShare& holds = share.second;
  return holds.requests == 0 || (static_cast<double>(holds.requests + 1) <= part * static_cast<double>(max_requests_) &&
                                 static_cast<double>(holds.bytes + size) <= part * static_cast<double>(max_bytes_));
}

bool Admission::BytesFit(int64_t size, const Share* share) const {
  const int64_t free = max_bytes_ - counters_.in_flight_bytes, reserve = max_bytes_ / kReserve;
  if (size <= free) return true;
  return share != nullptr && size <= reserve / kReserveShare - share->second.bytes && size <= free + reserve;
}

bool Admission::RequestFits(const Share* share) const {
  const int64_t free = max_requests_ - counters_.in_flight_requests, reserve = max_requests_ / kReserve;
  if (free > 0) return true;
  return share != nullptr && share->second.requests < reserve / kReserveShare && free + reserve > 0;
}

Charge Admission::Take(int64_t bytes, int64_t requests, int64_t handlers, Share* share) {
  Add(bytes, requests, share);
  if (share != nullptr) ++share->second.charges;
  handlers_ += handlers;
  Charge charge;
  charge.admission_ = shared_from_this();
  charge.share_ = share;
  charge.bytes_ = bytes;
  charge.requests_ = requests;
  charge.handlers_ = handlers;
  return charge;
}

void Admission::Add(int64_t bytes, int64_t requests, Share* share) {
  counters_.in_flight_bytes += bytes;
  counters_.in_flight_requests += requests;
  if (share == nullptr) return;
  share->second.bytes += bytes;
  share->second.requests += requests;
}

void Admission::ReturnBytes(int64_t bytes, Share* share) {
  std::lock_guard lock(mutex_);
  Add(-bytes, 0, share);
}

void Admission::Return(const Charge& charge) {
  std::lock_guard lock(mutex_);
  Add(-charge.bytes_, -charge.requests_, charge.share_);
  if (charge.share_ != nullptr && --charge.share_->second.charges == 0 && charge.share_->second.weight == 0) {
    shares_.erase(charge.share_->first);
  }
  handlers_ -= charge.handlers_;
  if (handlers_ == 0 || counters_.in_flight_requests == 0) ended_.notify_all();
}

}  // namespace posenc::server

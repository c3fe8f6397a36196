#include "server/core/admission.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "posenc/base/memory_account.h"

namespace posenc::server {
namespace {

constexpr int64_t kReserve = 16;      // the reserve is this part of a limit
constexpr int64_t kReserveShare = 4;  // a holder may hold this part of the reserve
constexpr std::chrono::seconds kPresence(1);
constexpr double kFree = 0.5;  // while no more of the limits is taken, no holder is kept to its part

}  // namespace

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    Return();
    admission_ = std::move(other.admission_);
    share_ = other.share_;
    bytes_ = other.bytes_;
    requests_ = other.requests_;
    is_shared_ = other.is_shared_;
    group_ = other.group_;
    reserved_ = other.reserved_;
  }
  return *this;
}

void Charge::Return() {
  if (const std::shared_ptr<Admission> admission = std::move(admission_)) admission->Return(this);
}

void Charge::ReturnBytes(int64_t bytes) {
  if (admission_ == nullptr || bytes == 0) return;
  admission_->ReturnBytes(bytes, this);
}

std::shared_ptr<Admission> Admission::Create(int64_t max_requests, int64_t max_bytes, GroupOf group_of) {
  return std::shared_ptr<Admission>(new Admission(max_requests, max_bytes, group_of));
}

void Admission::CountStart() {
  std::lock_guard lock(mutex_);
  ++counters_.started;
}

// Memory that this class allocates under its lock must not be counted. A memory account charges counted memory by
// calling AdmitBytes(), which would wait for the lock that its own thread holds.
Admission::Verdict Admission::AdmitRequest(int64_t size, Charge* request, Charge* bytes, const Holder& holder) {
  const MemoryScope uncounted(nullptr);
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
  *request = Take(0, 1, share);
  request->is_shared_ = part < 1;
  *bytes = Take(size, 0, share);
  return Verdict::kAdmitted;
}

Admission::Verdict Admission::AdmitBytes(int64_t size, int64_t held, Charge* bytes, const Charge* request) {
  const MemoryScope uncounted(nullptr);
  std::lock_guard lock(mutex_);
  if (size > max_bytes_ - held) return Verdict::kTooLarge;
  Share* const share = request == nullptr || request->admission_ == nullptr ? nullptr : request->share_;
  if (share != nullptr && size > share->second.max_bytes - held) return Verdict::kTooLarge;
  if (share != nullptr && !IsInQuota(size, *share)) return Verdict::kOverQuota;
  if (!BytesFit(size, share)) return Verdict::kOverloaded;
  if (bytes->admission_ == nullptr) {
    *bytes = Take(size, 0, share);
  } else {
    Reserve(BytesOfReserve(size), 0, share, bytes);
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
  const auto fit = [&](int64_t requests, int64_t bytes, double of_limits) {
    return static_cast<double>(requests + 1) <= of_limits * static_cast<double>(max_requests_) &&
           static_cast<double>(bytes + size) <= of_limits * static_cast<double>(max_bytes_);
  };
  return holds.requests == 0 || fit(holds.requests, holds.bytes, part) ||
         fit(counters_.in_flight_requests, counters_.in_flight_bytes, kFree);
}

int64_t Admission::BytesOfReserve(int64_t size) const {
  return std::clamp<int64_t>(size - (max_bytes_ - counters_.in_flight_bytes), 0, size);
}

int64_t Admission::RequestsOfReserve() const { return counters_.in_flight_requests >= max_requests_ ? 1 : 0; }

GroupShare Admission::HeldByGroup(const Share& share) const {
  const auto found = group_of_ == nullptr ? groups_.end() : groups_.find(group_of_(share.first));
  return found == groups_.end() ? GroupShare() : found->second;
}

bool Admission::BytesFit(int64_t size, const Share* share) const {
  const int64_t of_reserve = BytesOfReserve(size);
  if (of_reserve == 0) return true;
  if (share == nullptr) return false;
  const int64_t reserve = max_bytes_ / kReserve, left = max_bytes_ + reserve - counters_.in_flight_bytes - size;
  return size <= reserve / kReserveShare - share->second.bytes && HeldByGroup(*share).bytes + of_reserve <= left;
}

bool Admission::RequestFits(const Share* share) const {
  if (RequestsOfReserve() == 0) return true;
  if (share == nullptr) return false;
  const int64_t reserve = max_requests_ / kReserve, left = max_requests_ + reserve - counters_.in_flight_requests - 1;
  return share->second.requests < reserve / kReserveShare && HeldByGroup(*share).requests < left;
}

Charge Admission::Take(int64_t bytes, int64_t requests, Share* share) {
  Charge charge;
  Reserve(BytesOfReserve(bytes), requests * RequestsOfReserve(), share, &charge);
  Add(bytes, requests, share);
  if (share != nullptr) ++share->second.charges;
  charge.admission_ = shared_from_this();
  charge.share_ = share;
  charge.bytes_ = bytes;
  charge.requests_ = requests;
  return charge;
}

void Admission::Reserve(int64_t bytes, int64_t requests, const Share* share, Charge* charge) {
  if ((bytes == 0 && requests == 0) || share == nullptr || group_of_ == nullptr) return;
  if (charge->group_ == nullptr) {
    const std::string group = group_of_(share->first);
    if (group.empty()) return;
    charge->group_ = &*groups_.try_emplace(group).first;
  }
  for (GroupShare* const held : {&charge->group_->second, &charge->reserved_}) {
    held->bytes += bytes;
    held->requests += requests;
  }
}

void Admission::Release(int64_t bytes, int64_t requests, Charge* charge) {
  if (charge->group_ == nullptr) return;
  GroupShare& group = charge->group_->second;
  for (GroupShare* const held : {&group, &charge->reserved_}) {
    held->bytes -= bytes;
    held->requests -= requests;
  }
  if (charge->reserved_.bytes > 0 || charge->reserved_.requests > 0) return;
  if (group.bytes == 0 && group.requests == 0) groups_.erase(charge->group_->first);
  charge->group_ = nullptr;
}

void Admission::Add(int64_t bytes, int64_t requests, Share* share) {
  counters_.in_flight_bytes += bytes;
  counters_.in_flight_requests += requests;
  if (share == nullptr) return;
  share->second.bytes += bytes;
  share->second.requests += requests;
}

void Admission::ReturnBytes(int64_t bytes, Charge* charge) {
  std::lock_guard lock(mutex_);
  Add(-bytes, 0, charge->share_);
  charge->bytes_ -= bytes;
  Release(charge->reserved_.bytes - std::min(charge->reserved_.bytes, charge->bytes_), 0, charge);
}

void Admission::Return(Charge* charge) {
  std::lock_guard lock(mutex_);
  Release(charge->reserved_.bytes, charge->reserved_.requests, charge);
  Add(-charge->bytes_, -charge->requests_, charge->share_);
  Share* const share = charge->share_;
  if (share != nullptr && --share->second.charges == 0 && share->second.weight == 0) shares_.erase(share->first);
}

}  // namespace posenc::server

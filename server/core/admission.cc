#include "server/core/admission.h"

#include <algorithm>
#include <utility>

namespace posenc::server {

// Memory that is allocated under the lock must not be counted, as in FairLimit::Take().
Admission::Verdict Admission::AdmitRequest(int64_t size, Charge* request, Charge* bytes, const Caller& caller) {
  if (size > std::min(bytes_->capacity(), caller.max_bytes)) return Verdict::kTooLarge;
  const std::lock_guard lock(mutex_);
  if (draining_) return Verdict::kDraining;
  if (requests_->HeldBy(caller.name) >= caller.max_requests || size > caller.max_bytes - bytes_->HeldBy(caller.name)) {
    return Verdict::kOverQuota;
  }
  Charge place;
  if (!requests_->Take(caller.name, 1, &place) || !bytes_->Take(caller.name, size, bytes)) return Verdict::kOverloaded;
  *request = std::move(place);
  return Verdict::kAdmitted;
}

Admission::Verdict Admission::AdmitBytes(int64_t size, int64_t held, Charge* bytes, const Caller& caller) {
  if (size > std::min(bytes_->capacity(), caller.max_bytes) - held) return Verdict::kTooLarge;
  const std::lock_guard lock(mutex_);
  if (size > caller.max_bytes - bytes_->HeldBy(caller.name)) return Verdict::kOverQuota;
  return bytes_->Grow(caller.name, size, bytes) ? Verdict::kAdmitted : Verdict::kOverloaded;
}

void Admission::Drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

}  // namespace posenc::server

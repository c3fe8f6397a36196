#include "server/core/fair_limit.h"

#include <utility>

#include "posenc/base/memory_account.h"

namespace posenc::server {

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    Return();
    limit_ = std::move(other.limit_);
    held_ = other.held_;
    amount_ = other.amount_;
  }
  return *this;
}

void Charge::Return(int64_t amount) {
  if (limit_ == nullptr) return;
  limit_->Return(amount, this);
  if (amount_ == 0) limit_.reset();
}

int64_t FairLimit::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

int64_t FairLimit::HeldBy(const std::string& caller) const {
  const std::lock_guard lock(mutex_);
  const auto found = held_by_.find(caller);
  return found == held_by_.end() ? 0 : found->second;
}

size_t FairLimit::callers() const {
  const std::lock_guard lock(mutex_);
  return held_by_.size();
}

bool FairLimit::Take(const std::string& caller, int64_t amount, Charge* charge, bool fairly) {
  // Memory that is allocated under the lock must not be counted: an account charges it by this function, which would
  // wait for the lock that its own thread holds.
  const MemoryScope uncounted(nullptr);
  const std::lock_guard lock(mutex_);
  const int64_t free = capacity_ - held_ - amount;
  const auto found = held_by_.find(caller);
  if (free < 0 || (fairly && found != held_by_.end() && found->second + amount > 3 * free)) return false;
  if (amount == 0) return true;
  if (charge->limit_ == nullptr) {
    charge->held_ = held_by_.try_emplace(caller).first;
    charge->limit_ = shared_from_this();
    charge->amount_ = 0;
  }
  held_ += amount;
  charge->held_->second += amount;
  charge->amount_ += amount;
  return true;
}

void FairLimit::Return(int64_t amount, Charge* charge) {
  const std::lock_guard lock(mutex_);
  held_ -= amount;
  charge->amount_ -= amount;
  if ((charge->held_->second -= amount) == 0) held_by_.erase(charge->held_);
}

}  // namespace posenc::server

#include "tools/load/places.h"

namespace posenc::load {

Places::Places(size_t count, size_t most_verified) : most_verified_(most_verified), states_(count) {
  for (size_t index = count; index-- > 0;) clean_.push_back(index);
}

std::optional<Places::Place> Places::Take(bool verifiable) {
  const std::lock_guard lock(mutex_);
  verifiable = verifiable && verified_ < most_verified_ && !clean_.empty();
  // Spoilt slots serve calls whose answers are not verified.
  std::vector<size_t>& from = verifiable || spoilt_.empty() ? clean_ : spoilt_;
  if (from.empty()) return std::nullopt;
  const size_t index = from.back();
  from.pop_back();
  states_[index].verified = verifiable;
  verified_ += verifiable;
  return Place(this, index);
}

void Places::Give(size_t index) {
  const std::lock_guard lock(mutex_);
  verified_ -= states_[index].verified;
  (states_[index].spoilt ? spoilt_ : clean_).push_back(index);
}

}  // namespace posenc::load

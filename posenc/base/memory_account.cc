#include "posenc/base/memory_account.h"

#include <algorithm>
#include <new>
#include <utility>

namespace posenc {
namespace {

thread_local MemoryAccount* current_account = nullptr;
thread_local bool may_refuse = false;

// Bytes that are not charged, so that small calls need no lock.
constexpr int64_t kFree = 32 << 10;
constexpr int64_t kStep = 64 << 10;

int64_t ChargeFor(int64_t held) { return held <= kFree ? 0 : (held - kFree + kStep - 1) / kStep * kStep; }

}  // namespace

bool MemoryAccount::Add(int64_t bytes, bool only_if_charged) {
  const bool charged = ChargeUpTo(held_ + bytes);
  if (charged || !only_if_charged) held_ += bytes;
  peak_ = std::max(peak_, held_);
  return charged;
}

bool MemoryAccount::ChargeUpTo(int64_t held) {
  const int64_t more = ChargeFor(held) - charged_;
  if (more <= 0) return true;
  if (refused_) return false;
  const MemoryScope uncounted(nullptr);
  refused_ = !charge_(more);
  if (!refused_) charged_ += more;
  return !refused_;
}

int64_t MemoryAccount::Shrink(int64_t most) {
  held_ = std::min(held_, most);
  const int64_t before = charged_;
  charged_ = std::min(charged_, ChargeFor(held_));
  return before - charged_;
}

MemoryScope::MemoryScope(MemoryAccount* account)
    : outer_(std::exchange(current_account, account)), outer_may_refuse_(std::exchange(may_refuse, false)) {}
MemoryScope::~MemoryScope() {
  current_account = outer_;
  may_refuse = outer_may_refuse_;
}

LargeBlocksMayBeRefused::LargeBlocksMayBeRefused() : outer_(std::exchange(may_refuse, true)) {}
LargeBlocksMayBeRefused::~LargeBlocksMayBeRefused() { may_refuse = outer_; }
bool LargeBlocksMayBeRefused::Applies() { return may_refuse; }

void RequireMemory(int64_t bytes) {
  if (current_account == nullptr) return;
  if (!current_account->Add(bytes, true)) throw std::bad_alloc();
  current_account->Remove(bytes);
}

CountedBytes::CountedBytes(int64_t bytes)
    : account_(current_account), bytes_(bytes), refused_(account_ != nullptr && !account_->Add(bytes)) {}
CountedBytes::~CountedBytes() {
  if (account_ != nullptr) account_->Remove(bytes_);
}

MemoryAccount* CurrentMemoryAccount() { return current_account; }

}  // namespace posenc

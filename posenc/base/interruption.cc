#include "posenc/base/interruption.h"

namespace posenc {
namespace {

thread_local const Cancellation* current = nullptr;

}  // namespace

InterruptionScope::InterruptionScope(const Cancellation* cancelled) : outer_(std::exchange(current, cancelled)) {}
InterruptionScope::~InterruptionScope() { current = outer_; }

void InterruptionPoint() {
  if (current == nullptr) return;
  if (absl::Status status = (*current)(); !status.ok()) throw ComputationStopped(std::move(status));
}

}  // namespace posenc

#include "posenc/base/interruption.h"

namespace posenc {
namespace {

thread_local const Cancellation* current = nullptr;
thread_local bool no_waiting = false;

}  // namespace

InterruptionScope::InterruptionScope(const Cancellation* cancelled) : outer_(std::exchange(current, cancelled)) {}
InterruptionScope::~InterruptionScope() { current = outer_; }

NoWaiting::NoWaiting() : outer_(std::exchange(no_waiting, true)) {}
NoWaiting::~NoWaiting() { no_waiting = outer_; }
bool NoWaiting::Applies() { return no_waiting; }

void InterruptionPoint() {
  if (current == nullptr) return;
  if (absl::Status status = (*current)(); !status.ok()) throw ComputationStopped(std::move(status));
}

}  // namespace posenc

#include "posenc/base/interruption.h"

namespace posenc {
namespace {

thread_local const Cancellation* current = nullptr;
thread_local WaitingLimit::Clock::time_point waiting_ends = WaitingLimit::Clock::time_point::max();
thread_local Activity activity_now = Activity::kComputing;
thread_local bool is_awaited = false;

}  // namespace

InterruptionScope::InterruptionScope(const Cancellation* cancelled) : outer_(std::exchange(current, cancelled)) {}
InterruptionScope::~InterruptionScope() { current = outer_; }
const Cancellation* InterruptionScope::Current() { return current; }

WaitingLimit::WaitingLimit(std::optional<std::chrono::milliseconds> time)
    : outer_(std::exchange(waiting_ends, time ? Clock::now() + *time : Clock::time_point::max())) {}
WaitingLimit::~WaitingLimit() { waiting_ends = outer_; }
bool WaitingLimit::IsOver() { return waiting_ends != Clock::time_point::max() && waiting_ends <= Clock::now(); }

ActivityScope::ActivityScope(Activity activity)
    : outer_(std::exchange(activity_now, activity)),
      outer_is_awaited_(std::exchange(is_awaited, is_awaited || activity == Activity::kAwaited)) {}
ActivityScope::~ActivityScope() {
  activity_now = outer_;
  is_awaited = outer_is_awaited_;
}
Activity ActivityScope::Current() { return activity_now; }
bool ActivityScope::IsAwaited() { return is_awaited; }

void InterruptionPoint() {
  if (current == nullptr) return;
  if (absl::Status status = (*current)(); !status.ok()) throw ComputationStopped(std::move(status));
}

}  // namespace posenc

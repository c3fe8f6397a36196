#include "server/core/signals.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace posenc::server {

Signals::Signals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

std::optional<int> Signals::Wait(std::chrono::seconds timeout) {
  const timespec time{.tv_sec = timeout.count()};
  int signal = sigtimedwait(&signals_, nullptr, &time);
  if (signal < 0) return std::nullopt;
  sigset_t stopping = signals_;
  sigdelset(&stopping, SIGHUP);
  if (signal == SIGHUP) {
    // The kernel gives the lowest number first: many of these must not keep another one waiting.
    const timespec now{};
    if (const int other = sigtimedwait(&stopping, nullptr, &now); other > 0) signal = other;
  }
  if (signal != SIGHUP) pthread_sigmask(SIG_UNBLOCK, &stopping, nullptr);
  return signal;
}

int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
}

int64_t VirtualMemoryLimit() {
  constexpr rlim_t kMost = std::numeric_limits<int64_t>::max();
  rlimit limit{};
  return static_cast<int64_t>(getrlimit(RLIMIT_AS, &limit) == 0 ? std::min(limit.rlim_cur, kMost) : kMost);
}

}  // namespace posenc::server

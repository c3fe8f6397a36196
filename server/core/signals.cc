#include "server/core/signals.h"

#include <pthread.h>

namespace posenc::server {

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

std::optional<int> StopSignals::Wait(std::chrono::seconds timeout) {
  const timespec time{.tv_sec = timeout.count()};
  const int signal = sigtimedwait(&signals_, nullptr, &time);
  if (signal < 0) return std::nullopt;
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  return signal;
}

}  // namespace posenc::server

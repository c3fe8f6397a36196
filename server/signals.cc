#include "server/signals.h"

#include <pthread.h>

namespace posenc::server {

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

int StopSignals::Wait() {
  int signal = 0;
  sigwait(&signals_, &signal);
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  return signal;
}

}  // namespace posenc::server

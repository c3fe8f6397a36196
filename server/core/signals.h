// SIGTERM and SIGINT as something to wait for.
#pragma once

#include <chrono>
#include <csignal>
#include <optional>

namespace posenc::server {

// Made before any other thread, which inherit that the signals are blocked: nothing runs in a signal handler.
class StopSignals {
 public:
  StopSignals();
  // Waits for the first; from then on they act as usual, so that a second one ends the process at once. Absent: none
  // came in that time.
  std::optional<int> Wait(std::chrono::seconds timeout);

 private:
  sigset_t signals_;
};

}  // namespace posenc::server

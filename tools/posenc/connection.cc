#include "tools/posenc/connection.h"

#include <chrono>

#include "posenc/in_process/in_process.h"

namespace posenc::command {

Duration SecondsOf(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::unique_ptr<Backend> ComputeHere(double timeout_seconds) {
  InProcessOptions options = WholeMachine();
  if (timeout_seconds > 0) options.timeout = SecondsOf(timeout_seconds);
  return std::make_unique<InProcess>(options);
}

}  // namespace posenc::command

// What the process sets up before it serves: signals, and memory that the C library would keep.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
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

// Memory that requests lay in, kept for the next.

// gRPC takes a large request apart into thousands of small pieces. By default the C library gives their memory back
// after each call, and has it filled with fresh pages for the next; and it keeps as many heaps as there are threads,
// each with holes of its own. From now on it keeps about so many bytes, in two heaps.
void KeepFreedMemory(int64_t bytes);
// Gives back what it keeps.
void ReturnFreedMemory();

}  // namespace posenc::server

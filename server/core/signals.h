// Process setup before serving: signals, the limit of open files, malloc tuning.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>

namespace posenc::server {

// Blocks SIGTERM, SIGINT and SIGHUP, so that no code runs in a signal handler. Construct it before other threads, which
// inherit the signal mask.
class Signals {
 public:
  Signals();
  // Waits for a signal and returns it, or nullopt after `timeout`. SIGTERM and SIGINT come before SIGHUP. The first of
  // them unblocks both, so that a second one ends the process at once.
  std::optional<int> Wait(std::chrono::seconds timeout);

 private:
  sigset_t signals_;
};

// Raises the soft limit of open files to the hard limit: every connection takes a descriptor. Returns the limit.
int64_t RaiseDescriptorLimit();

// Least limit of virtual memory (ulimit -v) with which the server starts: gRPC aborts if it cannot allocate.
inline constexpr int64_t kLeastVirtualMemory = int64_t{1} << 30;
// Returns the limit of virtual memory in bytes; the maximum of int64 if there is none.
int64_t VirtualMemoryLimit();

// Counts GMP's memory, hence MPFR's, like that of operator new (counted_memory.cc). Call it before MPFR is used.
void CountGmpMemory();

// Malloc tuning. Does nothing without glibc.

// Makes malloc keep about `bytes` of freed memory, in two arenas. gRPC splits a large request into thousands of small
// pieces. By default glibc returns their memory to the system after each call and faults in fresh pages for the next,
// and it keeps as many arenas as there are threads, each with its own fragmentation.
void KeepFreedMemory(int64_t bytes);
// Returns free heap memory to the system (malloc_trim).
void ReturnFreedMemory();

}  // namespace posenc::server

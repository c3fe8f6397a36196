// Reads of TCP sockets as gRPC makes them, for tests.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <ctime>

namespace posenc::server {

// Reads up to `size` bytes by recvmsg(). Returns what that returns.
inline ssize_t ReadFrom(int descriptor, void* bytes, size_t size) {
  iovec buffer = {bytes, size};
  msghdr message = {};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  return recvmsg(descriptor, &message, 0);
}

// Uses the processor for this time on this thread, as gRPC does for what it has read.
inline void Work(std::chrono::microseconds time) {
  const auto used = [] {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto end = used() + time;
  while (used() < end) {
  }
}

}  // namespace posenc::server

#include "server/listen/read_times.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace posenc::server {
namespace {

constexpr int kNone = -1;
// Descriptors from here on are not timed.
constexpr size_t kMost = 1 << 16;

std::array<std::atomic<int64_t>, kMost> times;  // in nanoseconds, by descriptor
thread_local bool timed = false;
thread_local int reading = kNone;
thread_local int64_t began = 0;

// Of the processor: a thread that must wait for one needs no longer for what it reads.
int64_t TimeOfThisThread() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

bool IsTimed(int descriptor) { return descriptor >= 0 && static_cast<size_t>(descriptor) < kMost; }

// Ends the read before, and begins that of another descriptor; kNone: of none.
void Turn(int descriptor) {
  if (descriptor == reading) return;
  const int64_t now = TimeOfThisThread();
  if (reading != kNone) times[static_cast<size_t>(reading)] += now - began;
  reading = IsTimed(descriptor) ? descriptor : kNone;
  began = now;
}

}  // namespace

void TimeReadsOfThisThread() { timed = true; }

void EndRead() { Turn(kNone); }

std::chrono::nanoseconds TakeReadTime(int descriptor) {
  if (!IsTimed(descriptor)) return {};
  std::atomic<int64_t>& time = times[static_cast<size_t>(descriptor)];
  return std::chrono::nanoseconds(time == 0 ? 0 : time.exchange(0));
}

}  // namespace posenc::server

extern "C" {

__attribute__((visibility("default"))) ssize_t recvmsg(int descriptor, msghdr* message, int flags) {
  if (posenc::server::timed) posenc::server::Turn(descriptor);
  return syscall(SYS_recvmsg, descriptor, message, flags);
}
}

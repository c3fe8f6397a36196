#include "server/listen/read_times.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include "server/listen/socket_state.h"

namespace posenc::server {
namespace {

constexpr int kNone = -1;
// gRPC reads a socket again and again without a poll while bytes come. After so long it is told that none are there.
constexpr int64_t kLongestRead = 4'000'000;  // in nanoseconds
// Descriptors from here on are not timed.
constexpr size_t kMost = 1 << 16;

std::array<std::atomic<int64_t>, kMost> times;  // in nanoseconds, by descriptor
thread_local bool timed = false;
thread_local int reading = kNone;
thread_local int64_t began = 0;

// Returns the processor time that this thread has used, which does not grow while the thread waits for a processor.
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
  if (timed && reading != kNone) times[static_cast<size_t>(reading)] += now - began;
  reading = IsTimed(descriptor) ? descriptor : kNone;
  began = now;
}

// True if this thread has read the descriptor for long: then others are next, and gRPC learns by its next poll that
// bytes are there. Only TCP sockets can say so again.
bool MustPause(int descriptor) {
  if (descriptor != reading || TimeOfThisThread() - began < kLongestRead) return false;
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  if (getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != IPPROTO_TCP) return false;
  EndRead();
  if (!IsPaused(descriptor)) Resume(descriptor);
  return true;
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
  namespace server = posenc::server;
  if (flags == 0 && server::MustPause(descriptor)) {
    errno = EAGAIN;
    return -1;
  }
  server::Turn(descriptor);
  return syscall(SYS_recvmsg, descriptor, message, flags);
}
}

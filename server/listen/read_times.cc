#include "server/listen/read_times.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <new>

#include "server/listen/polls.h"
#include "server/listen/socket_state.h"

namespace posenc::server {
namespace {

constexpr int kNone = -1;
constexpr int64_t kLongestRead = 4'000'000;  // in nanoseconds
// So many bytes are read at once at first, at least and at most. The time for them is known only once they were
// handled: headers took some 50 nanoseconds a byte.
constexpr uint32_t kFirstBytes = 64 << 10, kFewestBytes = 16 << 10, kMostBytes = 256 << 10;
// Reads of fewer bytes do not tell how many can be read in time.
constexpr size_t kTelling = 4096;
// Descriptors from here on are not timed.
constexpr size_t kMost = 1 << 16;
constexpr size_t kMostPieces = 64;  // of memory, that gRPC reads into at once

struct OfDescriptor {
  std::atomic<int64_t> time{0};         // in nanoseconds, not taken yet
  std::atomic<uint32_t> most_bytes{0};  // 0: kFirstBytes

  uint32_t MostBytes() const {
    const uint32_t most = most_bytes;
    return most > 0 ? most : kFirstBytes;
  }
};
std::array<OfDescriptor, kMost> descriptors;

thread_local bool timed = false;
// Describes what this thread has read since it polled the connections, or since it read another descriptor.
struct Reading {
  int descriptor = kNone;
  int64_t began = 0;
  size_t bytes = 0;
  bool is_cut = false;  // gRPC asked for more in its last call
};
thread_local Reading reading;

// Returns the processor time that this thread has used, which does not grow while the thread waits for a processor.
int64_t TimeOfThisThread() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

bool IsTimed(int descriptor) { return descriptor >= 0 && static_cast<size_t>(descriptor) < kMost; }

// Ends the read before, and begins that of another descriptor; kNone: of none.
void Turn(int descriptor) {
  if (descriptor == reading.descriptor) return;
  const int64_t now = TimeOfThisThread();
  if (timed && reading.descriptor != kNone) {
    OfDescriptor& read = descriptors[static_cast<size_t>(reading.descriptor)];
    const int64_t time = std::max<int64_t>(now - reading.began, 1);
    read.time += time;
    if (reading.bytes >= kTelling) {
      const int64_t in_time = static_cast<int64_t>(reading.bytes) * kLongestRead / time;
      const int64_t most = std::clamp<int64_t>(in_time, kFewestBytes, std::min(2 * read.MostBytes(), kMostBytes));
      read.most_bytes = static_cast<uint32_t>(most);
    }
  }
  reading = {.descriptor = descriptor, .began = now};
}

bool IsTcp(int descriptor) {
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  return getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
}

// True if gRPC must handle what it has read of the descriptor, or poll, before it reads more. It learns by a later poll
// that bytes are there, as only TCP sockets can say again.
bool MustPause(int descriptor) {
  if (descriptor != reading.descriptor) return false;
  const bool is_long = TimeOfThisThread() - reading.began >= kLongestRead;
  if ((!is_long && !reading.is_cut) || !IsTcp(descriptor)) return false;
  // If the connection has ended, only recvmsg() can say so, perhaps not again by a poll.
  if (UnreadOf(descriptor) == 0) return false;
  try {
    if (is_long) {
      HoldFromPolls(descriptor);
    } else if (!IsPaused(descriptor)) {
      Resume(descriptor);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  reading.is_cut = false;
  if (is_long && !timed) {
    descriptors[static_cast<size_t>(descriptor)].time += kLongestRead;
    Turn(kNone);
  }
  return true;
}

// Reads no more bytes than can be handled in time.
ssize_t Read(int descriptor, msghdr* message) {
  const size_t most = descriptors[static_cast<size_t>(descriptor)].MostBytes();
  std::array<iovec, kMostPieces> pieces;
  size_t bytes = 0, count = 0;
  for (; count < message->msg_iovlen && count < kMostPieces && bytes <= most; ++count) {
    pieces[count] = message->msg_iov[count];
    bytes += pieces[count].iov_len;
  }
  const bool is_cut = bytes > most && IsTcp(descriptor);
  if (is_cut) pieces[count - 1].iov_len -= bytes - most;
  msghdr part = *message;
  if (is_cut) part.msg_iov = pieces.data(), part.msg_iovlen = count;
  const ssize_t read = syscall(SYS_recvmsg, descriptor, &part, 0);
  part.msg_iov = message->msg_iov, part.msg_iovlen = message->msg_iovlen;
  *message = part;
  reading.is_cut = is_cut && read == static_cast<ssize_t>(most);
  if (read > 0) reading.bytes += static_cast<size_t>(read);
  return read;
}

}  // namespace

void TimeReadsOfThisThread() { timed = true; }

void EndRead() {
  Turn(kNone);
  ShowHeld();
}

void BeginReads(int descriptor) {
  if (!IsTimed(descriptor)) return;
  OfDescriptor& read = descriptors[static_cast<size_t>(descriptor)];
  read.time = 0;
  read.most_bytes = 0;
}

std::chrono::nanoseconds TakeReadTime(int descriptor) {
  if (!IsTimed(descriptor)) return {};
  std::atomic<int64_t>& time = descriptors[static_cast<size_t>(descriptor)].time;
  return std::chrono::nanoseconds(time == 0 ? 0 : time.exchange(0));
}

}  // namespace posenc::server

extern "C" {

__attribute__((visibility("default"))) ssize_t recvmsg(int descriptor, msghdr* message, int flags) {
  namespace server = posenc::server;
  if (flags != 0 || !server::IsTimed(descriptor)) return syscall(SYS_recvmsg, descriptor, message, flags);
  if (server::MustPause(descriptor)) {
    errno = EAGAIN;
    return -1;
  }
  server::Turn(descriptor);
  return server::Read(descriptor, message);
}
}

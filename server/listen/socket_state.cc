#include "server/listen/socket_state.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstddef>

namespace posenc::server {
namespace {

// The beginning of Linux's tcp_info. The headers of the C library have less of it, and exclude those of Linux.
struct TcpInfo {
  tcp_info known;
  uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
};
static_assert(sizeof(tcp_info) % sizeof(uint64_t) == 0);

TcpInfo InfoOf(int descriptor) {
  TcpInfo info = {};
  socklen_t size = sizeof(info);
  return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info : TcpInfo();
}

int BytesOf(int descriptor, unsigned long request) {
  int bytes = 0;
  return ioctl(descriptor, request, &bytes) == 0 ? bytes : 0;
}

void SetLeastReadable(int descriptor, int bytes) {
  setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

}  // namespace

std::optional<ino_t> InodeOf(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

int UnsentTo(int descriptor) { return BytesOf(descriptor, SIOCOUTQ); }

int UnreadOf(int descriptor) { return BytesOf(descriptor, SIOCINQ); }

uint64_t TakenBy(int descriptor) { return InfoOf(descriptor).bytes_acked; }

uint64_t ReceivedFrom(int descriptor) { return InfoOf(descriptor).bytes_received; }

// Linux keeps twice as many bytes from then on, which is what it keeps without.
void Pause(int descriptor) { SetLeastReadable(descriptor, 64 << 10); }

void Resume(int descriptor) { SetLeastReadable(descriptor, 1); }

bool IsPaused(int descriptor) {
  int bytes = 1;
  socklen_t size = sizeof(bytes);
  return getsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &bytes, &size) == 0 && bytes > 1;
}

bool IsClosedByPeer(int descriptor) {
  const int state = InfoOf(descriptor).known.tcpi_state;
  return state == TCP_CLOSE_WAIT || state == TCP_CLOSE;  // closed or reset
}

uint16_t PortOf(int descriptor) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool Reset(int descriptor) {
  const sockaddr none = {.sa_family = AF_UNSPEC, .sa_data = {}};
  return connect(descriptor, &none, sizeof(none)) == 0;
}

}  // namespace posenc::server

#include "server/listen/socket_state.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstddef>

namespace posenc::server {
namespace {

int BytesOf(int descriptor, unsigned long request) {
  int bytes = 0;
  return ioctl(descriptor, request, &bytes) == 0 ? bytes : 0;
}

}  // namespace

std::optional<ino_t> InodeOf(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

int UnsentTo(int descriptor) { return BytesOf(descriptor, SIOCOUTQ); }

int UnreadOf(int descriptor) { return BytesOf(descriptor, SIOCINQ); }

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

#include "server/listen/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>

#include "absl/strings/numbers.h"
#include "posenc/base/status.h"
#include "server/core/unix_socket.h"

namespace posenc::server {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kPassRights = 83;  // SO_PASSRIGHTS, which older headers lack

absl::Status CannotListen(std::string_view flag, const std::string& address, std::string_view why) {
  return InvalidArgument("UNSUPPORTED", flag, address, "cannot listen there: " + std::string(why));
}

absl::StatusOr<std::vector<ListeningSocket>> ListenAtPath(const std::string& address, std::string_view flag,
                                                          Access access) {
  ListeningSocket listening;
  listening.path = address.substr(kUnix.size());
  if (listening.path.starts_with("//")) {
    listening.path.erase(0, 2);
    if (!listening.path.starts_with('/')) {
      return InvalidArgument("MALFORMED", flag, address, "must be unix:PATH, or unix:// and an absolute path");
    }
  }
  POSENC_ASSIGN_OR_RETURN(const sockaddr_un at, SocketAddress(flag, listening.path));
  POSENC_RETURN_IF_ERROR(RemoveDeadSocket(flag, listening.path));
  listening.socket = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Connections inherit that nobody can pass descriptors to them, whose close() could take long (SO_LINGER). Kernels
  // before Linux 6.16 do not know the option.
  const int off = 0;
  setsockopt(listening.socket.get(), SOL_SOCKET, kPassRights, &off, sizeof(off));
  struct stat status = {};
  // bind() gives the file the socket's mode: set before, it is never accessible to other users.
  const bool is_private = access == Access::kPrivate;
  if (!listening.socket.valid() || (is_private && fchmod(listening.socket.get(), S_IRUSR | S_IWUSR) != 0) ||
      bind(listening.socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 ||
      listen(listening.socket.get(), SOMAXCONN) != 0 || stat(listening.path.c_str(), &status) != 0) {
    return CannotListen(flag, address, TextOf(errno));
  }
  listening.file = {status.st_dev, status.st_ino};
  std::vector<ListeningSocket> sockets;
  sockets.push_back(std::move(listening));
  return sockets;
}

struct HostAndPort {
  std::string host;
  int port = 0;
};

absl::StatusOr<HostAndPort> Split(const std::string& address, std::string_view flag) {
  const size_t colon = address.rfind(':');
  HostAndPort split;
  const bool in_brackets = colon != std::string::npos && address.find(']', colon) != std::string::npos;
  if (colon != std::string::npos) split.host = colon == 0 ? "0.0.0.0" : address.substr(0, colon);
  const bool bracketed = split.host.starts_with('[') && split.host.ends_with(']');
  if (bracketed) split.host = split.host.substr(1, split.host.size() - 2);
  if (in_brackets || split.host.empty() || (!bracketed && split.host.find(':') != std::string::npos) ||
      address.find_first_not_of("0123456789", colon + 1) != std::string::npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &split.port)) {
    return InvalidArgument("MALFORMED", flag, address, "must be ADDRESS:PORT, [ADDRESS]:PORT, :PORT or unix:PATH");
  }
  if (split.port < 0 || split.port > 65535) {
    return InvalidArgument("OUT_OF_RANGE", flag, address, "a port is 0 .. 65535");
  }
  return split;
}

bool IsAnyAddress(const addrinfo& at) {
  if (at.ai_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(at.ai_addr)->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(at.ai_addr)->sin6_addr);
}

void SetPort(int port, sockaddr* at) {
  // The port has the same place in addresses of both families.
  reinterpret_cast<sockaddr_in*>(at)->sin_port = htons(static_cast<uint16_t>(port));
}

// Returns 0 or an errno.
int ListenAt(const sockaddr* at, socklen_t size, bool both_families, ListeningSocket* listening) {
  listening->socket = Descriptor(socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listening->socket.valid()) return errno;
  const int on = 1, only_ipv6 = both_families ? 0 : 1;
  // Without SO_REUSEADDR a restarted server could not listen while old connections are in TIME_WAIT.
  setsockopt(listening->socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (at->sa_family == AF_INET6) {
    setsockopt(listening->socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof(only_ipv6));
  }
  sockaddr_storage bound = {};
  socklen_t bound_size = sizeof(bound);
  if (bind(listening->socket.get(), at, size) != 0 || listen(listening->socket.get(), SOMAXCONN) != 0 ||
      getsockname(listening->socket.get(), reinterpret_cast<sockaddr*>(&bound), &bound_size) != 0) {
    return errno;
  }
  listening->port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  return 0;
}

// True for the errors of a family of addresses that this machine does not have.
bool IsNoSuchFamily(int error) { return error == EAFNOSUPPORT || error == EADDRNOTAVAIL; }

// Listens at each of the addresses, at the same port. Returns 0 or an errno.
int ListenAtAll(const addrinfo& addresses, int port, std::vector<ListeningSocket>* sockets) {
  sockets->clear();
  std::set<std::string> done;  // a name may resolve to one address twice
  int error = 0;
  for (const addrinfo* at = &addresses; at != nullptr; at = at->ai_next) {
    SetPort(port, at->ai_addr);
    if (!done.emplace(reinterpret_cast<const char*>(at->ai_addr), at->ai_addrlen).second) continue;
    ListeningSocket listening;
    error = ListenAt(at->ai_addr, at->ai_addrlen, /*both_families=*/false, &listening);
    if (error != 0 && !IsNoSuchFamily(error)) return error;
    if (error != 0) continue;
    port = listening.port;
    sockets->push_back(std::move(listening));
    SetPort(port, at->ai_addr);
    done.emplace(reinterpret_cast<const char*>(at->ai_addr), at->ai_addrlen);
  }
  return sockets->empty() ? error : 0;
}

}  // namespace

absl::StatusOr<std::vector<ListeningSocket>> ListenAt(const std::string& address, std::string_view flag,
                                                      Access access) {
  if (address.starts_with(kUnix)) return ListenAtPath(address, flag, access);
  if (access == Access::kPrivate) return InvalidArgument("UNSUPPORTED", flag, address, "must be unix:PATH");
  POSENC_ASSIGN_OR_RETURN(const HostAndPort split, Split(address, flag));
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(split.host.c_str(), nullptr, &hints, &found); error != 0) {
    return CannotListen(flag, address, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);

  std::vector<ListeningSocket> sockets;
  if (IsAnyAddress(*found)) {
    sockaddr_in6 any = {};
    any.sin6_family = AF_INET6;
    SetPort(split.port, reinterpret_cast<sockaddr*>(&any));
    const int error =
        ListenAt(reinterpret_cast<const sockaddr*>(&any), sizeof(any), /*both_families=*/true, &sockets.emplace_back());
    if (error == 0) return sockets;
    if (!IsNoSuchFamily(error)) return CannotListen(flag, address, TextOf(error));
    sockets.clear();
  }
  // Port 0: all addresses get the port that is free at the first. If another has taken it elsewhere, try again.
  int error = 0;
  for (int tries = split.port == 0 ? 8 : 1; tries > 0; --tries) {
    error = ListenAtAll(*found, split.port, &sockets);
    if (error != EADDRINUSE) break;
  }
  if (error != 0) return CannotListen(flag, address, TextOf(error));
  return sockets;
}

void RemoveFileOf(const ListeningSocket& socket) {
  struct stat status = {};
  if (socket.path.empty() || stat(socket.path.c_str(), &status) != 0) return;
  if (socket.file == std::pair(status.st_dev, status.st_ino)) unlink(socket.path.c_str());
}

}  // namespace posenc::server

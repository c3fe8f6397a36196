#include "server/core/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "posenc/base/status.h"

namespace posenc::server {
namespace {

absl::Status Refuse(std::string_view flag, const std::string& path, std::string_view why) {
  return InvalidArgument("UNSUPPORTED", flag, path, "must be a path to listen on: " + std::string(why));
}

// Returns 0 or an errno. The socket may have another type: the error for a live one is then EPROTOTYPE.
int TryToConnect(const sockaddr_un& address) {
  const Descriptor probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return errno;
  const int failed = connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  return failed == 0 ? 0 : errno;
}

}  // namespace

absl::StatusOr<sockaddr_un> SocketAddress(std::string_view flag, const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Refuse(flag, path, "the path of a socket must have 1 to 107 bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::Status RemoveDeadSocket(std::string_view flag, const std::string& path) {
  POSENC_ASSIGN_OR_RETURN(const sockaddr_un address, SocketAddress(flag, path));
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) return absl::OkStatus();  // bind() reports the error
  if (!S_ISSOCK(status.st_mode)) return Refuse(flag, path, "the path is a file that is not a socket");
  const int error = TryToConnect(address);
  if (error == ENOENT) return absl::OkStatus();
  if (error == 0 || error == EPROTOTYPE || error == EAGAIN)
    return Refuse(flag, path, "in use: another process listens there");
  if (error != ECONNREFUSED) return Refuse(flag, path, TextOf(error));
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return Refuse(flag, path, "cannot remove the unused socket: " + TextOf(errno));
}

absl::StatusOr<Descriptor> ListenForPackets(std::string_view flag, const std::string& path) {
  POSENC_RETURN_IF_ERROR(RemoveDeadSocket(flag, path));
  POSENC_ASSIGN_OR_RETURN(const sockaddr_un address, SocketAddress(flag, path));
  Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // bind() gives the file the socket's mode: set before, it is never accessible to other users.
  if (!listener.valid() || fchmod(listener.get(), S_IRUSR | S_IWUSR) != 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return Refuse(flag, path, "cannot listen: " + TextOf(errno));
  }
  return listener;
}

bool IsTrusted(const Descriptor& connection) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

absl::StatusOr<Packet> ReceivePacket(const Descriptor& connection, size_t most, bool descriptors) {
  Packet packet;
  packet.bytes.resize(most);
  iovec bytes = {packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = descriptors ? sizeof(control) : 0;
  const ssize_t received = recvmsg(connection.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received < 0) {
    if (errno == EAGAIN || errno == EINTR) return absl::UnavailableError("no packet");
    return absl::AbortedError(TextOf(errno));
  }
  // Take ownership of the descriptors first.
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t n = 0; n < count; ++n) {
      int number;
      std::memcpy(&number, CMSG_DATA(header) + n * sizeof(int), sizeof(int));
      packet.descriptors.emplace_back(number);
    }
  }
  packet.cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  packet.bytes.resize(static_cast<size_t>(received));
  return packet;
}

bool SendPacket(const Descriptor& connection, std::string_view packet) {
  return send(connection.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR) ==
         static_cast<ssize_t>(packet.size());
}

}  // namespace posenc::server

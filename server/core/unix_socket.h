// Unix sockets: their files, and packets with descriptors.
#pragma once

#include <sys/un.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/descriptor.h"

namespace posenc::server {

// Returns the address of a path. Returns INVALID_ARGUMENT naming `flag` if the path is empty or longer than 107 bytes.
absl::StatusOr<sockaddr_un> SocketAddress(std::string_view flag, const std::string& path);

// Removes a socket's file at which no process listens any more, such as that of a killed server. Returns
// INVALID_ARGUMENT naming `flag` if a process listens there, or if it is another kind of file.
absl::Status RemoveDeadSocket(std::string_view flag, const std::string& path);

// Returns a SOCK_SEQPACKET listener at the path, which only this user and root can open. Errors as RemoveDeadSocket().
absl::StatusOr<Descriptor> ListenForPackets(std::string_view flag, const std::string& path);

// True if the peer runs as this process's user or as root.
bool IsTrusted(const Descriptor& connection);

struct Packet {
  std::string bytes;  // empty: the peer has closed, or sent an empty packet
  std::vector<Descriptor> descriptors;
  bool cut = false;  // longer than `most`, or with more descriptors than fit
};

// Receives a packet without blocking. Returns UNAVAILABLE if there is none now; any other error ends the connection.
// Without `descriptors`, a packet that has some is cut, and the kernel drops them.
absl::StatusOr<Packet> ReceivePacket(const Descriptor& connection, size_t most, bool descriptors = true);
// Sends a packet without blocking. Returns false if it was not sent.
bool SendPacket(const Descriptor& connection, std::string_view packet);

}  // namespace posenc::server

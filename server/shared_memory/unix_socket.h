// Unix sockets: their files, and packets with descriptors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shared_memory/descriptor.h"

namespace posenc::server {

// Removes the file of a socket that nobody listens at any more: a server that was killed leaves it. INVALID_ARGUMENT
// naming `flag` where somebody listens, or where it is another kind of file.
absl::Status RemoveDeadSocket(std::string_view flag, const std::string& path);

// A socket of packets at the path, which only this user and root can open. Errors as above.
absl::StatusOr<Descriptor> ListenForPackets(std::string_view flag, const std::string& path);

// Whether the other end is of this process's user, or root.
bool IsTrusted(const Descriptor& connection);

struct Packet {
  std::string bytes;  // empty: the other end has closed, or there was nothing in it
  std::vector<Descriptor> descriptors;
  bool cut = false;  // it was longer than `most`, or had more descriptors than fit
};

// Does not wait. UNAVAILABLE if there is no packet now; any other error is the connection's end.
absl::StatusOr<Packet> ReceivePacket(const Descriptor& connection, size_t most);
// Does not wait. False if it did not get away.
bool SendPacket(const Descriptor& connection, std::string_view packet);

}  // namespace posenc::server

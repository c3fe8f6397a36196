// Listening sockets of the addresses in --listen and similar flags.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/descriptor.h"

namespace posenc::server {

struct ListeningSocket {
  Descriptor socket;  // does not block
  int port = 0;       // 0: a Unix socket
  bool is_http = false;
  bool is_of_proxy = false;  // connections to it come from a trusted proxy
  // Path of a Unix socket, and the device and inode of its file; empty for TCP.
  std::string path;
  std::pair<dev_t, ino_t> file;
};

// Listens at an address: HOST:PORT, [IPV6]:PORT or unix:PATH. A host name may have several addresses, which get the
// same port. 0.0.0.0 and [::] both mean every address of IPv4 and IPv6. Port 0 means any free port. Takes the place of
// a Unix socket at which nobody listens any more. Returns INVALID_ARGUMENT naming `flag` if the address is malformed,
// unknown or taken.
//
// kPrivate: only this user and root can open a Unix socket; another address is an error.
enum class Access { kByUmask, kPrivate };
absl::StatusOr<std::vector<ListeningSocket>> ListenAt(const std::string& address, std::string_view flag,
                                                      Access access = Access::kByUmask);

// Removes the file of a Unix socket, unless another process has replaced it.
void RemoveFileOf(const ListeningSocket& socket);

}  // namespace posenc::server

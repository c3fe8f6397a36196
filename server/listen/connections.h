// The table of open connections, with limits for all of them and for those of one peer.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

namespace posenc::server {

// A peer whose connections are limited together: an IPv4 address, or the first 64 bits of an IPv6 address, since a host
// may have all addresses of such a network. Clients of Unix sockets have no peer.
using Peer = std::optional<uint64_t>;
Peer PeerOf(const sockaddr_storage& address);

// gRPC owns an accepted connection and does not report when it closes it. So the table keeps the connection's
// descriptor and inode: it is open as long as the descriptor still refers to that inode. Not thread-safe.
class Connections {
 public:
  enum class Verdict { kAdmitted, kTooMany, kTooManyOfPeer };

  Connections(size_t most, size_t most_of_peer) : most_(most), most_of_peer_(most_of_peer) {}

  // Adds an accepted connection if there are less than the limits.
  Verdict Add(int descriptor, Peer peer);
  // Number of open connections.
  size_t CountOpen();
  size_t most() const { return most_; }

 private:
  struct Connection {
    ino_t inode;
    Peer peer;
  };
  using Table = std::unordered_map<int, Connection>;  // by descriptor
  using Clock = std::chrono::steady_clock;

  bool IsAtLimit(Peer peer) const;
  void RemoveClosed();
  // Returns the next element.
  Table::iterator Remove(Table::iterator at);

  const size_t most_;
  const size_t most_of_peer_;
  Table connections_;
  std::unordered_map<uint64_t, size_t> of_peer_;
  Clock::time_point next_check_ = Clock::time_point::min();
};

}  // namespace posenc::server

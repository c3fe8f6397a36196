// The table of open connections, with limits for all of them and for those of one peer.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <unordered_map>

#include "server/listen/peer.h"

namespace posenc::server {

// gRPC owns an accepted connection and does not report when it closes it. So the table keeps the connection's
// descriptor and inode: it is open as long as the descriptor still refers to that inode. Not thread-safe.
class Connections {
 public:
  enum class Verdict { kAdmitted, kTooMany, kTooManyOfPeer };

  Connections(size_t most, size_t most_of_peer) : most_(most), most_of_peer_(most_of_peer) {}

  // Adds an accepted connection if there are less than the limits. There may be `most` of each kind: those that are
  // `trusted`, others without a peer, and those of peers.
  Verdict Add(int descriptor, Peer peer, bool trusted = false);
  // Number of open connections, at most a tenth of a second old.
  size_t CountOpen();
  // True if no host has sent bytes that were not read, and all hosts have acknowledged what was sent to them.
  bool AreQuiet() const;
  // Shuts down the connections that are not `busy` once their hosts have acknowledged all that was sent to them. What a
  // host's kernel has acknowledged, or has over a Unix socket, can still be read there; the rest could be lost. Returns
  // the number of connections that are open still, those included that are shut down and not closed yet.
  size_t CloseIdle(const std::set<TcpEnd>& busy);
  // Resets the connections of peers that still send, and shuts down those that have not taken all that was sent to
  // them. Returns their number.
  size_t CutBusy() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    ino_t inode;
    Peer peer;
    uint16_t port;
    bool trusted;
    bool is_shut_down = false;
  };
  using Table = std::unordered_map<int, Connection>;  // by descriptor
  using Entry = Table::value_type;

  // True if a host's kernel has not acknowledged all that was sent to it over TCP.
  static bool IsUnacknowledged(const Entry& entry) { return entry.second.peer && Unsent(entry) > 0; }
  // Bytes that the other host has not taken; 0 if the connection is closed.
  static int Unsent(const Entry& entry);
  // Number of open connections of a kind.
  size_t& CountOf(Peer peer, bool trusted) { return trusted ? trusted_ : peer ? of_peers_ : without_peer_; }
  bool IsFullFor(Peer peer) const;
  void RemoveClosed();
  // Returns the next element.
  Table::iterator Remove(Table::iterator at);

  const size_t most_;
  const size_t most_of_peer_;
  Table connections_;
  std::unordered_map<uint64_t, size_t> of_peer_;
  size_t of_peers_ = 0, without_peer_ = 0, trusted_ = 0;
  Clock::time_point last_check_;
};

}  // namespace posenc::server

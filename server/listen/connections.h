// The table of open connections, with limits for all of them and for those of one peer.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "server/listen/peer.h"

namespace posenc::server {

// gRPC owns an accepted connection and does not report when it closes it. So the table keeps the connection's
// descriptor and inode: it is open as long as the descriptor still refers to that inode. Not thread-safe.
class Connections {
 public:
  enum class Verdict { kAdmitted, kTooMany, kTooManyOfPeer };

  Connections(size_t most, size_t most_of_peer) : most_(most), most_of_peer_(most_of_peer) {}

  struct Open {
    int descriptor;
    ino_t inode;
    Peer peer;
    uint16_t port = 0;  // of the peer
  };
  // Lists the connections that were open at the last check, and newer ones.
  std::vector<Open> ListOpen() const;

  // Adds an accepted connection if there are less than the limits. There may be `most` of each kind: those that are
  // `trusted`, which CutStuck() leaves, others without a peer, and those of peers.
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
  // Resets the peer's connections from this port: one, unless several hosts of an IPv6 network have it. Returns their
  // number.
  size_t Cut(Peer peer, uint16_t port);
  // Shuts down those of the peers that, besides, take nothing: over TCP, less than 64 KiB in 20 milliseconds; over a
  // Unix socket, where that cannot be seen, if as many bytes are unsent for a second. Call it every few milliseconds;
  // it forgets what it saw more than a second ago. Cuts no more while `most` are cut and not closed, because the
  // receiving threads end all calls of each. Returns the number that it has cut.
  size_t CutStuck(const std::set<Peer>& peers, size_t most);

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    ino_t inode;
    Peer peer;
    uint16_t port;
    bool trusted;
    // The call of CutStuck() that saw it move last, and what it had taken then.
    struct Behind {
      Clock::time_point since;
      uint64_t taken;
    };
    std::optional<Behind> behind = {};
    bool cut = false;
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
  Clock::time_point last_check_, last_cut_;
};

}  // namespace posenc::server

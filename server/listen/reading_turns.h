// Turns of the connections of busy peers, so that each peer has its share of the receiving threads.
//
// gRPC reads its connections one after the other, and of each all calls that it has sent: 100 by default, which keep a
// receiving thread for some 4 milliseconds. A peer that sends over 128 connections, over and over, would make each call
// of others wait for half a second. So about a thousand calls of a peer are read at a time, and while the threads do
// not keep up, no peer may have more calls a second than a common level, which sinks until they do. The other
// connections of a peer that has more are paused until it is their turn.
//
// gRPC cannot be told to stop reading, but a socket can: with a high SO_RCVLOWAT, it does not become readable.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/listen/connections.h"
#include "server/listen/received_calls.h"

namespace posenc::server {

// Not thread-safe.
class ReadingTurns {
 public:
  using Clock = std::chrono::steady_clock;

  // Pauses and resumes connections; those without a peer are never paused. `open`: all connections. `received`: since
  // the last call. `busy`: share of the time since then in which the receiving threads ran, from 0 to 1. Call it every
  // few milliseconds while many calls come, and as long as it returns true: connections are paused.
  bool Take(const std::vector<Connections::Open>& open, const ReceivedCalls::OfPeers& received, double busy,
            Clock::time_point now = Clock::now());
  void ResumeAll();

  // At the last look: the number of connections that were paused, the busiest peer, and the calls a second that a peer
  // could have, if that was limited.
  size_t paused() const { return paused_; }
  Peer busiest() const { return busiest_; }
  std::optional<double> level() const { return level_; }

 private:
  struct Seen {
    ino_t inode = 0;
    bool paused = false;
    bool is_waiting = false;           // bytes are unread
    uint64_t read = 0;                 // bytes since the connection began
    Clock::time_point waiting_since;   // nothing was read
    Clock::time_point readable_since;  // nor was it paused
  };
  struct Account {
    double rate = 0;            // calls a second
    double calls_per_turn = 1;  // of one connection
    double credit = 0;          // calls that it may have now
    Clock::time_point limited_at;
  };
  struct OfPeer {
    std::vector<std::pair<int, Seen*>> connections;  // with their descriptors; without those that gRPC does not read
    size_t waiting = 0;
    bool is_late = false;  // one of them could have been read for a while, but was not
  };
  std::map<Peer, OfPeer> Look(const std::vector<Connections::Open>& open, Clock::time_point now);
  void UpdateAccounts(const std::map<Peer, OfPeer>& peers, const ReceivedCalls::OfPeers& received, double seconds);
  void SetLevel(const std::map<Peer, OfPeer>& peers, double busy);
  static void Pause(int descriptor, Seen* seen, size_t bytes);

  std::optional<double> level_;
  size_t paused_ = 0;
  Peer busiest_;
  Clock::time_point last_look_;
  std::map<Peer, Account> accounts_;    // of peers with connections
  std::unordered_map<int, Seen> seen_;  // at the last look, by descriptor
};

}  // namespace posenc::server

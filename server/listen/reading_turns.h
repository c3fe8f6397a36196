// Turns of the connections of a peer that has many.
//
// gRPC reads its connections one after the other, and of each all calls that it has sent: 100 by default, which keep a
// receiving thread for some 4 milliseconds. A peer that sends over 128 connections, over and over, would make each call
// of others wait for half a second. So if many connections of a peer wait, all but a few at a time are paused: as many
// as the server keeps up with, and fewer while a connection of another peer is starved.
//
// gRPC cannot be told to stop reading, but a socket can: with a high SO_RCVLOWAT, it does not become readable.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/listen/connections.h"

namespace posenc::server {

// Not thread-safe.
class ReadingTurns {
 public:
  using Clock = std::chrono::steady_clock;

  // Pauses and resumes connections; those without a peer are never paused. `open`: all connections. Call it every few
  // milliseconds while many messages come, and as long as it returns true: connections are paused.
  bool Take(const std::vector<Connections::Open>& open, Clock::time_point now = Clock::now());
  void ResumeAll();

  // Of the last look: the number of connections that are paused, the peer with the most waiting ones, and whether
  // another peer was starved.
  size_t paused() const { return paused_; }
  Peer busiest() const { return busiest_; }
  bool starved() const { return starved_; }

 private:
  static constexpr size_t kFirstWidth = 16;

  struct Seen {
    ino_t inode = 0;
    bool paused = false;
    int unread = 0;          // bytes
    uint64_t read = 0;       // bytes since the connection began
    uint64_t last_turn = 0;  // number of the last look that did not pause it
  };
  struct OfPeer {
    std::vector<std::pair<int, Seen*>> connections;  // with their descriptors
    size_t waiting = 0;                              // those with unread bytes
    bool starved = false;                            // one of them could be read since the last look, but nothing was
  };
  std::map<Peer, OfPeer> Look(const std::vector<Connections::Open>& open, Clock::time_point now);
  void SetWidth(const std::map<Peer, OfPeer>& peers, Clock::time_point now);
  static void Pause(int descriptor, Seen* seen, size_t bytes);

  size_t width_ = kFirstWidth;  // of the connections of a peer that wait, so many are read at a time
  uint64_t looks_ = 0;
  size_t paused_ = 0;
  Peer busiest_;
  bool starved_ = false;
  Clock::time_point last_look_, last_starved_;
  std::unordered_map<int, Seen> seen_;  // at the last look, by descriptor
};

}  // namespace posenc::server

// Counts the calls and messages that come over each connection, by what they cost a receiving thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "server/listen/peer.h"

namespace posenc::server {

// Thread-safe.
class ReceivedCalls {
 public:
  struct Count {
    size_t calls = 0;
    size_t turns = 0;  // runs of calls over one connection: gRPC reads one connection after the other
  };
  using OfPeers = std::map<Peer, std::unordered_map<uint16_t, Count>>;  // by the connection's port

  // Counts a call or message of the connection that gRPC names so, as the number of calls that take as long. Returns
  // the number since the start.
  size_t Add(const std::string& connection, size_t calls) {
    static thread_local std::string last;
    const bool is_turn = connection != last;
    if (is_turn) last = connection;
    const std::lock_guard lock(mutex_);
    Count& count = of_connections_[connection];
    count.calls += calls;
    count.turns += is_turn;
    return all_ += calls;
  }

  // Returns the counts since the last call.
  OfPeers Take() {
    std::unique_lock lock(mutex_);
    const auto of_connections = std::exchange(of_connections_, {});
    lock.unlock();
    OfPeers of_peers;
    for (const auto& [connection, count] : of_connections) {
      Count& same_port = of_peers[PeerOf(connection)][PortOf(connection)];
      same_port.calls += count.calls;
      same_port.turns += count.turns;
    }
    return of_peers;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, Count> of_connections_;  // by gRPC's name
  size_t all_ = 0;
};

}  // namespace posenc::server

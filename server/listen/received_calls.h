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
  using OfPeers = std::map<Peer, std::unordered_map<uint16_t, size_t>>;  // by the connection's port

  // Counts a call or message of the connection that gRPC names so, as the number of calls that take as long. Returns
  // the number since the start.
  size_t Add(const std::string& connection, size_t calls) {
    const std::lock_guard lock(mutex_);
    of_connections_[connection] += calls;
    return all_ += calls;
  }

  // Returns the counts since the last call.
  OfPeers Take() {
    std::unique_lock lock(mutex_);
    const auto of_connections = std::exchange(of_connections_, {});
    lock.unlock();
    OfPeers of_peers;
    for (const auto& [connection, calls] : of_connections) of_peers[PeerOf(connection)][PortOf(connection)] += calls;
    return of_peers;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, size_t> of_connections_;  // by gRPC's name
  size_t all_ = 0;
};

}  // namespace posenc::server

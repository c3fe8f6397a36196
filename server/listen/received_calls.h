// Counts the calls and messages that come from each peer, by what they cost a receiving thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
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
  using OfPeers = std::map<Peer, Count>;

  // Counts a call or message of the connection that gRPC names so, as the number of calls that take as long. Returns
  // the number since the start.
  size_t Add(const std::string& connection, size_t calls) {
    static thread_local std::string last;
    const bool is_turn = connection != last;
    if (is_turn) last = connection;
    const std::string_view host = std::string_view(connection).substr(0, connection.rfind(':'));
    const std::lock_guard lock(mutex_);
    auto found = of_hosts_.find(host);
    if (found == of_hosts_.end()) found = of_hosts_.emplace(host, Count()).first;
    found->second.calls += calls;
    found->second.turns += is_turn;
    return all_ += calls;
  }

  // Returns the counts since the last call.
  OfPeers Take() {
    std::unique_lock lock(mutex_);
    const OfHosts of_hosts = std::exchange(of_hosts_, {});
    lock.unlock();
    OfPeers of_peers;
    for (const auto& [host, count] : of_hosts) {
      Count& of_peer = of_peers[PeerOf(host + ":0")];
      of_peer.calls += count.calls;
      of_peer.turns += count.turns;
    }
    return of_peers;
  }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using OfHosts = std::unordered_map<std::string, Count, Hash, std::equal_to<>>;

  std::mutex mutex_;
  OfHosts of_hosts_;  // by gRPC's name of a connection, without its port
  size_t all_ = 0;
};

}  // namespace posenc::server

// Pace of the new connections of each peer, where each can take a receiving thread long.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "server/listen/peer.h"

namespace posenc::server {

// Not thread-safe.
class ConnectionPace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr double kSavedSeconds = 2;

  // `per_second`: connections of a peer. Those of kSavedSeconds may begin at once. 0: no limit.
  explicit ConnectionPace(int64_t per_second) : per_second_(static_cast<double>(per_second)) {}

  // Returns true if a connection of the peer may begin, and counts it.
  bool Begin(Peer peer, Clock::time_point now = Clock::now()) {
    if (per_second_ == 0) return true;
    if (of_peer_.size() >= kManyPeers) {
      std::erase_if(of_peer_, [&](const auto& entry) { return NumberAt(entry.second, now) == 0; });
    }
    Begun& begun = of_peer_[peer];
    const double number = NumberAt(begun, now) + 1;
    if (number > kSavedSeconds * per_second_) return false;
    begun = {number, now};
    return true;
  }

 private:
  // From so many peers on, those whose connections are long past are forgotten.
  static constexpr size_t kManyPeers = 1024;

  struct Begun {
    double number = 0;  // connections, less those that time allows
    Clock::time_point since;
  };
  double NumberAt(const Begun& begun, Clock::time_point now) const {
    return std::max(0.0, begun.number - per_second_ * std::chrono::duration<double>(now - begun.since).count());
  }

  const double per_second_;
  std::unordered_map<Peer, Begun> of_peer_;
};

}  // namespace posenc::server

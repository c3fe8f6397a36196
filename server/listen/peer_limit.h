// Limit of something that callers hold, for all of them and for those of one peer.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "server/listen/peer.h"

namespace posenc::server {

// Thread-safe.
class PeerLimit {
 public:
  // One peer may hold a quarter of `most`.
  explicit PeerLimit(size_t most) : most_(most) {}

  // Returns false if a limit is reached. Call GiveBack() once for each success.
  bool Take(const Peer& peer) {
    const std::lock_guard lock(mutex_);
    const auto of_peer = held_.find(peer);
    if (all_ >= most_ || (of_peer != held_.end() && of_peer->second >= most_ / 4)) return false;
    ++held_[peer];
    ++all_;
    return true;
  }
  void GiveBack(const Peer& peer) {
    const std::lock_guard lock(mutex_);
    --all_;
    if (const auto of_peer = held_.find(peer); --of_peer->second == 0) held_.erase(of_peer);
  }

 private:
  const size_t most_;
  std::mutex mutex_;
  size_t all_ = 0;
  std::map<Peer, size_t> held_;
};

}  // namespace posenc::server

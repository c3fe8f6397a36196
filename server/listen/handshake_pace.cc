#include "server/listen/handshake_pace.h"

#include <algorithm>

namespace posenc::server {

double HandshakePace::NumberAt(const Begun& begun, Clock::time_point now) const {
  return std::max(0.0, begun.number - per_second_ * std::chrono::duration<double>(now - begun.since).count());
}

bool HandshakePace::Begin(Peer peer, Clock::time_point now) {
  constexpr size_t kManyPeers = 1024;
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

}  // namespace posenc::server

#include "server/listen/handshake_pace.h"

#include <algorithm>

namespace posenc::server {
namespace {

// Number of peers from which on those whose handshakes are long past are forgotten.
constexpr size_t kManyPeers = 1024;

}  // namespace

double HandshakePace::NumberAt(const Begun& begun, Clock::time_point now) {
  return std::max(0.0, begun.number - kPerSecond * std::chrono::duration<double>(now - begun.since).count());
}

bool HandshakePace::Begin(Peer peer, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (of_peer_.size() >= kManyPeers) {
    std::erase_if(of_peer_, [now](const auto& entry) { return NumberAt(entry.second, now) == 0; });
  }
  Begun& begun = of_peer_.try_emplace(peer, Begun{0, now}).first->second;
  const double number = NumberAt(begun, now) + 1;
  if (number > kAtOnce) return false;
  begun = {number, now};
  return true;
}

void HandshakePace::GiveBack(Peer peer) {
  const std::lock_guard lock(mutex_);
  if (const auto of_peer = of_peer_.find(peer); of_peer != of_peer_.end()) of_peer->second.number -= 1;
}

void HandshakePace::Trust(Peer peer) {
  const std::lock_guard lock(mutex_);
  of_peer_.erase(peer);
}

}  // namespace posenc::server

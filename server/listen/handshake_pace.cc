#include "server/listen/handshake_pace.h"

#include <algorithm>

namespace posenc::server {
namespace {

// Number of peers from which on those whose handshakes are long past are forgotten.
constexpr size_t kManyPeers = 1024;
// After this time no handshake counts any more.
constexpr std::chrono::seconds kPast(HandshakePace::kAtOnce / HandshakePace::kPerSecond);

}  // namespace

double HandshakePace::Handshakes::NumberAt(Clock::time_point now) const {
  return std::max(0.0, number - kPerSecond * std::chrono::duration<double>(now - since).count());
}

bool HandshakePace::Begin(Peer peer, uint16_t port, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (of_peer_.size() >= kManyPeers) {
    std::erase_if(of_peer_, [now](const auto& entry) { return entry.second.NumberAt(now) == 0; });
  }
  Handshakes& handshakes = of_peer_[peer];
  const double number = handshakes.NumberAt(now) + 1;
  if (number > kAtOnce) return false;
  std::erase_if(handshakes.begun, [now](const auto& entry) { return entry.second + kPast <= now; });
  handshakes.begun[port] = now;
  handshakes.number = number;
  handshakes.since = now;
  return true;
}

void HandshakePace::End(Peer peer, uint16_t port, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto of_peer = of_peer_.find(peer);
  if (of_peer == of_peer_.end()) return;
  Handshakes& handshakes = of_peer->second;
  const auto begun = handshakes.begun.find(port);
  if (begun == handshakes.begun.end()) return;
  if (now < begun->second + kPast) handshakes.number = std::max(0.0, handshakes.number - 1);
  handshakes.begun.erase(begun);
}

}  // namespace posenc::server

#include "server/listen/reading_turns.h"

#include <algorithm>
#include <utility>

#include "server/listen/socket_state.h"

namespace posenc::server {
namespace {

// A paused socket becomes readable with so many bytes, which Linux keeps until then: without a pause it keeps up to
// 128 KiB that are not read, so few connections may have more, and those of one peer have so many together.
constexpr size_t kLeastPausedBytes = 128 << 10, kMostPausedBytes = 1 << 20, kPausedBytesOfPeer = 128 << 20;
// What was read between looks that are further apart says nothing about now.
constexpr std::chrono::milliseconds kForgets(200);
// The limit begins anew once no connection was starved for so long.
constexpr std::chrono::seconds kCalm(10);

}  // namespace

bool ReadingTurns::Take(const std::vector<Connections::Open>& open, Clock::time_point now) {
  std::map<Peer, OfPeer> peers = Look(open, now);
  SetWidth(peers, now);
  ++looks_;
  paused_ = 0;
  for (auto& [peer, of_peer] : peers) {
    auto& connections = of_peer.connections;
    const bool limited = peer && of_peer.waiting > width_;
    if (limited) {
      // Those that wait come first, and of these the one whose last turn is the longest ago.
      std::sort(connections.begin(), connections.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second->unread == 0, a.second->last_turn) <
               std::pair(b.second->unread == 0, b.second->last_turn);
      });
    }
    const size_t bytes = std::clamp(kPausedBytesOfPeer / connections.size(), kLeastPausedBytes, kMostPausedBytes);
    for (size_t n = 0; n < connections.size(); ++n) {
      const auto [descriptor, seen] = connections[n];
      const bool paused = limited && n >= width_;
      if (paused && !seen->paused) Pause(descriptor, seen, bytes);
      if (!paused && std::exchange(seen->paused, false)) Resume(descriptor);
      if (!paused) seen->last_turn = looks_;
      paused_ += paused;
    }
  }
  return paused_ > 0;
}

std::map<Peer, ReadingTurns::OfPeer> ReadingTurns::Look(const std::vector<Connections::Open>& open,
                                                        Clock::time_point now) {
  const bool is_first = now - std::exchange(last_look_, now) > kForgets;
  std::map<Peer, OfPeer> peers;
  std::unordered_map<int, Seen> all;
  for (const auto& [descriptor, inode, peer] : open) {
    const auto found = seen_.find(descriptor);
    const Seen before = found != seen_.end() && found->second.inode == inode ? found->second : Seen{.inode = inode};
    Seen& seen = all[descriptor] = before;
    OfPeer& of_peer = peers[peer];
    of_peer.connections.emplace_back(descriptor, &seen);
    seen.unread = UnreadOf(descriptor);
    of_peer.waiting += seen.unread > 0;
    if (seen.unread == 0 || seen.paused) continue;
    // What was read of a Unix socket is not known: the same bytes are taken to wait if their number is the same.
    seen.read = (peer ? ReceivedFrom(descriptor) : 0) - static_cast<uint64_t>(seen.unread);
    of_peer.starved |= !is_first && before.unread > 0 && seen.read == before.read;
  }
  seen_.swap(all);  // last: memory that runs out above leaves what is paused
  return peers;
}

void ReadingTurns::SetWidth(const std::map<Peer, OfPeer>& peers, Clock::time_point now) {
  size_t most = 0;  // waiting connections of a peer
  for (const auto& [peer, of_peer] : peers) {
    if (peer && of_peer.waiting > most) most = of_peer.waiting, busiest_ = peer;
  }
  bool is_behind = false;
  starved_ = false;
  for (const auto& [peer, of_peer] : peers) {
    is_behind |= of_peer.starved;
    // One of several busy peers does not count: their connections have the same turns.
    starved_ |= of_peer.starved && 2 * of_peer.waiting <= most;
  }
  if (starved_) {
    width_ = std::max<size_t>(1, std::min(width_, most) / 2);
    last_starved_ = now;
  } else if (is_behind) {
    if (width_ > kFirstWidth) width_ -= width_ / 4;
  } else if (most > width_) {
    width_ += 1 + width_ / 4;
  } else if (now - last_starved_ > kCalm) {
    width_ = std::max(width_, kFirstWidth);
  }
}

void ReadingTurns::ResumeAll() {
  for (auto& [descriptor, seen] : seen_) {
    if (std::exchange(seen.paused, false) && InodeOf(descriptor) == seen.inode) Resume(descriptor);
  }
}

void ReadingTurns::Pause(int descriptor, Seen* seen, size_t bytes) {
  seen->paused = true;
  server::Pause(descriptor, bytes);
  // gRPC may just have closed the connection, and its descriptor may be that of another one.
  if (InodeOf(descriptor) != seen->inode) Resume(descriptor);
}

}  // namespace posenc::server

#include "server/listen/reading_turns.h"

#include <algorithm>
#include <utility>

#include "server/listen/socket_state.h"

namespace posenc::server {
namespace {

// A paused socket becomes readable with so many bytes. Linux keeps twice as many from then on (without a pause 128
// KiB), so few connections may have more, and those of one peer have so many together.
constexpr size_t kLeastPausedBytes = 64 << 10, kMostPausedBytes = 512 << 10, kPausedBytesOfPeer = 64 << 20;
// After a longer time without a look, everything begins anew.
constexpr std::chrono::milliseconds kForgets(200);
// The threads do not keep up if a connection waits for so long, and if they run for such a share of the time: a
// connection that gRPC does not read for other reasons must not count for long, nor while the threads are idle.
constexpr std::chrono::milliseconds kLate(10), kNotLate(500);
constexpr double kBusy = 0.25;
// A peer may save credit for so long, and pays back for at most so long what it had beyond its credit.
constexpr double kCreditSeconds = 0.015, kDebtSeconds = 0.25;

// Calls of a peer that may be read at a time, a few hundredths of a second of a thread: what takes longer than a call
// that is refused at once counts as several (CompletionQueueLoop).
constexpr double kMostCalls = 1024;
// Calls a second that all peers together may have in any case, some hundredths of a thread.
constexpr double kLeastCalls = 2000;
// Factors of the level at each look.
constexpr double kSinks = 0.8, kRises = 1.1, kRisesIdle = 1.5;

double Average(double before, double now) { return 0.8 * before + 0.2 * now; }

}  // namespace

bool ReadingTurns::Take(const std::vector<Connections::Open>& open, const ReceivedCalls::OfPeers& received, double busy,
                        Clock::time_point now) {
  const Clock::duration passed = now - std::exchange(last_look_, now);
  std::map<Peer, OfPeer> peers = Look(open, now);
  if (passed > kForgets) {
    level_.reset();
    accounts_.clear();
  }
  UpdateAccounts(peers, received, std::max(0.001, std::chrono::duration<double>(passed).count()));
  SetLevel(peers, busy);
  paused_ = 0;
  for (auto& [peer, of_peer] : peers) {
    auto& connections = of_peer.connections;
    if (connections.empty()) continue;
    size_t most = connections.size();  // that are not paused
    if (peer) {
      Account& account = accounts_[peer];
      const double calls = level_ ? std::min(account.credit, kMostCalls) : kMostCalls;
      const size_t turns = calls > 0 ? static_cast<size_t>(std::max(1.0, calls / account.calls_per_turn)) : 0;
      if (of_peer.waiting > turns || turns == 0) account.limited_at = now;
      // Also those that do not wait yet: all of them could send at the same time.
      if (now - account.limited_at < kForgets) most = std::min(most, turns);
    }
    if (most < connections.size()) {
      // Connections that wait come first, in the order in which they began to wait.
      std::sort(connections.begin(), connections.end(), [](const auto& a, const auto& b) {
        return std::pair(!a.second->is_waiting, a.second->waiting_since) <
               std::pair(!b.second->is_waiting, b.second->waiting_since);
      });
    }
    const size_t bytes = std::clamp(kPausedBytesOfPeer / connections.size(), kLeastPausedBytes, kMostPausedBytes);
    for (size_t n = 0; n < connections.size(); ++n) {
      const auto [descriptor, seen] = connections[n];
      const bool paused = n >= most;
      if (paused && !seen->paused) Pause(descriptor, seen, bytes);
      if (!paused && std::exchange(seen->paused, false)) {
        seen->readable_since = now;
        Resume(descriptor);
      }
      paused_ += paused;
    }
  }
  return paused_ > 0;
}

std::map<Peer, ReadingTurns::OfPeer> ReadingTurns::Look(const std::vector<Connections::Open>& open,
                                                        Clock::time_point now) {
  std::map<Peer, OfPeer> peers;
  std::unordered_map<int, Seen> all;
  for (const auto& [descriptor, inode, peer] : open) {
    const auto found = seen_.find(descriptor);
    const Seen before = found != seen_.end() && found->second.inode == inode ? found->second : Seen{.inode = inode};
    Seen& seen = all[descriptor] = before;
    OfPeer& of_peer = peers[peer];
    const int unread = UnreadOf(descriptor);
    seen.is_waiting = unread > 0;
    if (!before.is_waiting) seen.waiting_since = seen.readable_since = now;
    if (seen.is_waiting && !seen.paused && peer) {  // what was read of a Unix socket is not known
      seen.read = ReceivedFrom(descriptor) - static_cast<uint64_t>(unread);
      if (seen.read != before.read) seen.waiting_since = seen.readable_since = now;
      const Clock::duration waits = now - seen.readable_since;
      if (waits >= kNotLate) continue;  // gRPC does not read it
      of_peer.is_late |= waits >= kLate;
    }
    of_peer.connections.emplace_back(descriptor, &seen);
    of_peer.waiting += seen.is_waiting;
  }
  seen_.swap(all);  // last: memory that runs out above leaves what is paused
  return peers;
}

void ReadingTurns::UpdateAccounts(const std::map<Peer, OfPeer>& peers, const ReceivedCalls::OfPeers& received,
                                  double seconds) {
  std::erase_if(accounts_, [&](const auto& entry) { return !peers.contains(entry.first); });
  busiest_.reset();
  double most = 0;
  for (const auto& [peer, of_peer] : peers) {
    Account& account = accounts_[peer];
    const auto found = received.find(peer);
    const auto [calls, turns] = found == received.end() ? ReceivedCalls::Count() : found->second;
    account.rate = Average(account.rate, static_cast<double>(calls) / seconds);
    if (calls > 0) {  // without a turn, they continue one
      const double now = static_cast<double>(calls) / static_cast<double>(std::max<size_t>(turns, 1));
      account.calls_per_turn = std::max(now, Average(account.calls_per_turn, now));
    }
    if (account.rate > most) most = account.rate, busiest_ = peer;
    // Without a level, this is the credit to begin with.
    account.credit = level_ ? std::clamp(account.credit + *level_ * seconds - static_cast<double>(calls),
                                         -*level_ * kDebtSeconds, *level_ * kCreditSeconds)
                            : (account.rate + 1) * kCreditSeconds;
  }
}

void ReadingTurns::SetLevel(const std::map<Peer, OfPeer>& peers, double busy) {
  double all = 0, most = 0;  // calls a second
  size_t active = 0;
  bool is_late = false;
  for (const auto& [peer, of_peer] : peers) {
    const double rate = accounts_[peer].rate;
    all += rate;
    most = std::max(most, rate);
    active += rate > 1 || of_peer.waiting > 0;
    is_late |= of_peer.is_late;
  }
  if (active < 2) {
    level_.reset();
  } else if (is_late && busy > kBusy) {
    // At least half of an equal share: the level acts late, and one peer may not be paused because its messages are
    // large.
    level_ = std::max(kSinks * level_.value_or(most), std::max(kLeastCalls, all / 2) / static_cast<double>(active));
  } else if (level_) {
    *level_ *= busy > kBusy ? kRises : kRisesIdle;
    if (*level_ > 8 * most) level_.reset();
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

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

// Calls of a peer that may be read at a time, and time of a thread that counts as one, about that of a call that is
// refused at once.
constexpr double kMostCalls = 1024;
constexpr double kSecondsOfCall = 40e-6;
// Calls a second that all peers together may have in any case, some hundredths of a thread.
constexpr double kLeastCalls = 2000;
// After so many looks with calls, a connection sends as many calls as it did before; others, as those of its peer do
// now, but no more than its unread bytes can be, with as many bytes for each as a call has at least.
constexpr size_t kKnown = 8;
constexpr double kLeastBytes = 32;
// Factors of the level at each look.
constexpr double kSinks = 0.8, kRises = 1.1, kRisesIdle = 1.5;

double Average(double before, double now) { return 0.8 * before + 0.2 * now; }

}  // namespace

bool ReadingTurns::Take(const std::vector<Connections::Open>& open, const ReceivedCalls::OfPeers& received,
                        double run_seconds, Clock::time_point now) {
  const Clock::duration passed = now - std::exchange(last_look_, now);
  std::map<Peer, OfPeer> peers = Look(open, now);
  if (passed > kForgets) {
    level_.reset();
    accounts_.clear();
    run_ = calls_ = 0;
  }
  const double seconds = std::max(0.001, std::chrono::duration<double>(passed).count());
  UpdateAccounts(peers, received, run_seconds, seconds);
  SetLevel(peers, run_seconds / seconds / threads_);
  paused_ = 0;
  for (auto& [peer, of_peer] : peers) {
    if (!peer) continue;
    Account& account = accounts_[peer];
    Choose(level_ ? std::min(account.credit, kMostCalls) : kMostCalls, &of_peer, &account, now);
  }
  return paused_ > 0;
}

void ReadingTurns::Choose(double calls, OfPeer* of_peer, Account* account, Clock::time_point now) {
  auto& connections = of_peer->connections;
  const auto calls_of = [&](const Candidate& connection) {
    const Seen& seen = *connection.seen;
    if (seen.looks >= kKnown) return seen.calls_at_once;
    double most = account->calls_at_once;
    if (seen.is_waiting()) most = std::min(most, weight_ * std::max(1.0, seen.unread / kLeastBytes));
    return std::max(seen.calls_at_once, most);
  };
  double waiting_calls = 0;
  size_t waiting = 0;
  for (const Candidate& connection : connections) {
    if (!connection.seen->is_waiting()) continue;
    waiting_calls += calls_of(connection);
    ++waiting;
  }
  if ((waiting_calls > calls && waiting > 1) || calls <= 0) account->limited_at = now;
  const bool is_limited = now - account->limited_at < kForgets;
  if (is_limited) {
    // Connections that wait come first, in the order in which they began to wait; but one that sends more is behind
    // those that began later, by the time of as many calls of each that waits. Also those that do not wait yet are
    // paused: all of them could send at the same time.
    const std::chrono::duration<double> behind(kSecondsOfCall * static_cast<double>(waiting));
    const auto place = [&](const Candidate& connection) {
      return std::pair(!connection.seen->is_waiting(), connection.seen->waiting_since + calls_of(connection) * behind);
    };
    std::sort(connections.begin(), connections.end(),
              [&](const Candidate& a, const Candidate& b) { return place(a) < place(b); });
  }
  const double equal_part = calls / static_cast<double>(connections.size());
  bool is_first = true;
  for (const Candidate& connection : connections) {
    Seen* const seen = connection.seen;
    const double own = calls_of(connection);
    const bool is_small = own <= equal_part;
    const bool has_turn = calls > 0 && (own <= calls || is_first);
    const bool paused = is_limited && !is_small && !has_turn;
    if (!is_small) {
      is_first = false;
      calls -= own;
    }
    if (paused && !seen->paused) Pause(connection.descriptor, seen, connections.size());
    if (!paused && std::exchange(seen->paused, false)) {
      seen->readable_since = now;
      Resume(connection.descriptor);
    }
    paused_ += paused;
  }
}

bool ReadingTurns::IsLimited(Peer peer, Clock::time_point now) const {
  const auto account = peer ? accounts_.find(peer) : accounts_.end();
  return account != accounts_.end() && now - account->second.limited_at < kForgets;
}

void ReadingTurns::Add(int descriptor) {
  Seen& seen = seen_[descriptor] = {.inode = InodeOf(descriptor).value_or(0)};
  Pause(descriptor, &seen, seen_.size());
}

std::map<Peer, ReadingTurns::OfPeer> ReadingTurns::Look(const std::vector<Connections::Open>& open,
                                                        Clock::time_point now) {
  std::map<Peer, OfPeer> peers;
  std::unordered_map<int, Seen> all;
  for (const auto& [descriptor, inode, peer, port] : open) {
    const auto found = seen_.find(descriptor);
    const Seen before = found != seen_.end() && found->second.inode == inode ? found->second : Seen{.inode = inode};
    Seen& seen = all[descriptor] = before;
    OfPeer& of_peer = peers[peer];
    seen.unread = UnreadOf(descriptor);
    if (seen.paused && seen.is_waiting() && IsClosedByPeer(descriptor) && InodeOf(descriptor) == inode)
      Reset(descriptor);
    if (!before.is_waiting()) seen.waiting_since = seen.readable_since = now;
    if (seen.is_waiting() && !seen.paused && peer) {  // what was read of a Unix socket is not known
      seen.read = ReceivedFrom(descriptor) - static_cast<uint64_t>(seen.unread);
      if (seen.read != before.read) seen.waiting_since = seen.readable_since = now;
      const Clock::duration waits = now - seen.readable_since;
      if (waits >= kNotLate) continue;  // gRPC does not read it
      of_peer.is_late |= waits >= kLate;
    }
    of_peer.connections.push_back({descriptor, port, &seen});
    of_peer.is_waiting |= seen.is_waiting();
  }
  seen_.swap(all);  // last: memory that runs out above leaves what is paused
  return peers;
}

void ReadingTurns::UpdateAccounts(const std::map<Peer, OfPeer>& peers, const ReceivedCalls::OfPeers& received,
                                  double run_seconds, double seconds) {
  double all = 0;
  for (const auto& [peer, of_ports] : received) {
    for (const auto& [port, calls] : of_ports) all += static_cast<double>(calls);
  }
  run_ = Average(run_, run_seconds);
  calls_ = Average(calls_, all);
  // Most of a call's time can be gRPC's own, which reads and sends, and was not counted when the call was.
  weight_ = calls_ > 0 ? std::max(1.0, run_ / (calls_ * kSecondsOfCall)) : 1;

  std::erase_if(accounts_, [&](const auto& entry) { return !peers.contains(entry.first); });
  busiest_.reset();
  double most = 0;
  for (const auto& [peer, of_peer] : peers) {
    Account& account = accounts_[peer];
    const auto of_ports = received.find(peer);
    double calls = 0;
    if (of_ports != received.end()) {
      for (const auto& [port, own] : of_ports->second) calls += weight_ * static_cast<double>(own);
      for (const Candidate& connection : of_peer.connections) {
        const auto found = of_ports->second.find(connection.port);
        if (found == of_ports->second.end()) continue;
        Seen& seen = *connection.seen;
        const double own = weight_ * static_cast<double>(found->second);
        seen.calls_at_once = seen.looks == 0 ? own : (seen.calls_at_once + own) / 2;
        ++seen.looks;
      }
      const double now = calls / static_cast<double>(of_ports->second.size());
      account.calls_at_once = std::max(now, Average(account.calls_at_once, now));
    }
    account.rate = Average(account.rate, calls / seconds);
    if (account.rate > most) most = account.rate, busiest_ = peer;
    // Without a level, this is the credit to begin with.
    account.credit = level_ ? std::clamp(account.credit + *level_ * seconds - calls, -*level_ * kDebtSeconds,
                                         *level_ * kCreditSeconds)
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
    active += rate > 1 || of_peer.is_waiting;
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

void ReadingTurns::Pause(int descriptor, Seen* seen, size_t connections) {
  const size_t bytes = std::clamp(kPausedBytesOfPeer / connections, kLeastPausedBytes, kMostPausedBytes);
  seen->paused = true;
  server::Pause(descriptor, bytes);
  // gRPC may just have closed the connection, and its descriptor may be that of another one.
  if (InodeOf(descriptor) != seen->inode) Resume(descriptor);
}

}  // namespace posenc::server

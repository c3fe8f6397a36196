#include "server/listen/reading_turns.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/listen/polls.h"
#include "server/listen/read_times.h"
#include "server/listen/socket_state.h"

namespace posenc::server {
namespace {

// After a longer time without a look, everything begins anew.
constexpr std::chrono::milliseconds kForgets(200);
// The threads do not keep up if a connection waits for so long, and if they run for such a share of the time: a
// connection that gRPC does not read for other reasons must not count for long, nor while the threads are idle.
constexpr std::chrono::milliseconds kLate(10), kNotLate(500);
constexpr double kBusy = 0.25;
// A peer may save credit for so long, and pays back for at most so long what it had beyond its credit.
constexpr double kCreditSeconds = 0.05, kDebtSeconds = 0.25;

// gRPC has received more than it could hand over in so short a time. What is read meanwhile waits within gRPC, where
// each call takes memory and nobody can come first.
constexpr std::chrono::milliseconds kBehind(10);

// Calls of a peer that may be read at a time: fewer while the threads are behind, more while they idle.
constexpr double kMostCalls = 1024, kFewestCalls = 100;
// Time of a thread that a call takes, at least: it can be much more, and is measured for all of them together.
constexpr double kLeastSecondsOfCall = 40e-6, kMostSecondsOfCall = 1e-3;
// Calls a second that all peers together may have in any case, some hundredths of a thread.
constexpr double kLeastCalls = 2000;
// After so many looks with calls, a connection sends as many calls as it did before; others, as those of its peer do
// now.
constexpr size_t kKnown = 8;
constexpr std::chrono::seconds kActive(1);  // after a connection's last call
// More bytes do not count: a client may spread its calls over its connections without regard to which of them wait.
constexpr int kMostUnread = 1 << 20;
// A connection that is not known is placed as if it had at most so many calls.
constexpr double kMostExpected = 100;
// Calls of a byte while nothing is known, and for how many calls a change of it is remembered.
constexpr double kMostCallsPerByte = 1.0 / 16, kRemembered = 1000;
// Time of a thread in which gRPC receives a call, and bytes that it reads in that time, with a slow processor.
constexpr double kSecondsToReceive = 40e-6, kBytesToReceive = 4096;
// Bounds of Seen::uncounted: how many calls may be counted later than they were read, or read later.
constexpr double kLeastUncounted = -100, kMostUncounted = 1000;
// Factors of the level at each look.
constexpr double kSinks = 0.8, kRises = 1.1, kRisesIdle = 1.5;

double Average(double before, double now) { return 0.8 * before + 0.2 * now; }

}  // namespace

void ReadingTurns::Density::Add(double more_calls, double more_bytes) {
  if (calls > kRemembered) calls /= 2, bytes /= 2;
  calls += more_calls;
  bytes += more_bytes;
}

double ReadingTurns::Density::CallsPerByte() const { return bytes > 0 ? calls / bytes : kMostCallsPerByte; }

bool ReadingTurns::Take(const std::vector<Connections::Open>& open, const Receiving& receiving, Clock::time_point now) {
  const Clock::duration passed = now - std::exchange(last_look_, now);
  const bool is_behind = receiving.since_poll >= kBehind, idles = receiving.since_poll == Clock::duration(0);
  std::map<Peer, OfPeer> peers = Look(open, is_behind, now);
  if (passed > kForgets) {
    level_.reset();
    accounts_.clear();
    run_ = calls_ = 0;
    most_calls_ = kMostCalls;
  }
  const double seconds = std::max(0.001, std::chrono::duration<double>(passed).count());
  UpdateAccounts(peers, receiving, seconds, now);
  SetLevel(peers, receiving.run_seconds / seconds / threads_);
  // If those that cannot be paused are the busiest, it helps nobody that others wait.
  const bool must_wait = is_behind && busiest_;
  most_calls_ = std::clamp(most_calls_ * (must_wait ? kSinks : idles ? kRises : 1), kFewestCalls, kMostCalls);
  const double most = must_wait ? accounts_[busiest_].rate : 0;
  paused_ = 0;
  for (auto& [peer, of_peer] : peers) {
    if (!peer) continue;
    Account& account = accounts_[peer];
    Choose(level_ ? std::min(account.credit, most_calls_) : most_calls_, must_wait && account.rate >= most / 2,
           &of_peer, &account, now);
  }
  return paused_ > 0;
}

void ReadingTurns::Choose(double calls, bool must_wait, OfPeer* of_peer, Account* account, Clock::time_point now) {
  auto& connections = of_peer->connections;
  const auto at_once = [&](const Seen& seen) {
    return seen.looks >= kKnown ? seen.calls_at_once : std::max(seen.calls_at_once, account->calls_at_once);
  };
  const auto calls_of = [&](const Candidate& connection) {
    const Seen& seen = *connection.seen;
    if (!seen.is_waiting()) return at_once(seen);
    const Density& density = seen.looks >= kKnown ? seen.density : account->density;
    return std::max(1.0, std::min(seen.unread, kMostUnread) * density.CallsPerByte());
  };
  double waiting_calls = 0;
  size_t waiting = 0, active = 0;
  for (const Candidate& connection : connections) {
    active += connection.seen->is_waiting() || now - connection.seen->called_at < kActive;
    if (!connection.seen->is_waiting()) continue;
    waiting_calls += calls_of(connection);
    ++waiting;
  }
  if ((waiting_calls > calls && waiting > 1) || calls <= 0 || (must_wait && connections.size() > 1))
    account->limited_at = now;
  const bool is_limited = now - account->limited_at < kForgets;
  if (is_limited) {
    // Connections that wait come first, in the order in which they began to wait; but one that sends more is behind
    // those that began later, by the time of as many calls of each that is active. Also those that do not wait yet are
    // paused: all of them could send at the same time.
    const std::chrono::duration<double> behind(seconds_of_call_ * static_cast<double>(active));
    const auto place = [&](const Candidate& connection) {
      const Seen& seen = *connection.seen;
      const double own = seen.looks >= kKnown ? seen.calls_at_once : std::min(calls_of(connection), kMostExpected);
      return std::pair(!seen.is_waiting(), seen.waiting_since + own * behind);
    };
    std::sort(connections.begin(), connections.end(),
              [&](const Candidate& a, const Candidate& b) { return place(a) < place(b); });
  }
  const double equal_part = (level_ ? calls : kMostCalls) / static_cast<double>(connections.size());
  bool is_first = true;
  if (must_wait) calls = 0;
  for (const Candidate& connection : connections) {
    Seen* const seen = connection.seen;
    const double own = calls_of(connection);
    const bool is_small = std::max(own, at_once(*seen)) <= equal_part;
    const bool has_turn = calls > 0 && (own <= calls || is_first);
    const bool paused = is_limited && !is_small && !has_turn;
    if (!is_small) {
      is_first = false;
      calls -= own;
    }
    if (paused && !seen->paused) Pause(connection.descriptor, seen);
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
  Pause(descriptor, &seen);
}

std::map<Peer, ReadingTurns::OfPeer> ReadingTurns::Look(const std::vector<Connections::Open>& open, bool is_behind,
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
      if (seen.read != before.read) seen.readable_since = now;
      const Clock::duration waits = now - seen.readable_since;
      seen.is_left = waits >= kNotLate && (seen.is_left || !is_behind);
      if (seen.is_left) continue;
      of_peer.is_late |= waits >= kLate;
    }
    of_peer.connections.push_back({descriptor, port, &seen});
    of_peer.is_waiting |= seen.is_waiting();
  }
  seen_.swap(all);  // last: memory that runs out above leaves what is paused
  return peers;
}

double ReadingTurns::CallsOf(int descriptor, double counted, Seen* seen) {
  const std::chrono::duration<double> time = TakeReadTime(descriptor);
  if (time.count() == 0 && seen->uncounted <= 0) {
    seen->uncounted = std::max(seen->uncounted - counted, kLeastUncounted);
    return counted;
  }
  // Bytes of messages take time, too, and are counted once a message has come.
  const uint64_t read = ReceivedFrom(descriptor) - static_cast<uint64_t>(seen->unread);
  const double bytes = read > seen->timed ? static_cast<double>(read - std::exchange(seen->timed, read)) : 0;
  const double timed = std::max(0.0, time.count() / kSecondsToReceive - bytes / kBytesToReceive);
  const double before = std::max(seen->uncounted, 0.0);
  const double after = std::min(seen->uncounted + timed - counted, before + kMostUncounted);
  seen->uncounted = std::clamp(after, kLeastUncounted, kMostUncounted);
  return counted + std::floor(std::max(after, 0.0)) - std::floor(before);
}

void ReadingTurns::UpdateAccounts(const std::map<Peer, OfPeer>& peers, const Receiving& receiving, double seconds,
                                  Clock::time_point now) {
  double all = 0;
  for (const auto& [peer, of_ports] : receiving.calls) {
    for (const auto& [port, calls] : of_ports) all += static_cast<double>(calls);
  }
  run_ = Average(run_, receiving.run_seconds);
  calls_ = Average(calls_, all);
  seconds_of_call_ = calls_ > 0 ? std::clamp(run_ / calls_, kLeastSecondsOfCall, kMostSecondsOfCall) : 0;
  std::erase_if(accounts_, [&](const auto& entry) { return !peers.contains(entry.first); });
  busiest_.reset();
  double most = 0;
  for (const auto& [peer, of_peer] : peers) {
    Account& account = accounts_[peer];
    const auto found = receiving.calls.find(peer);
    static const std::unordered_map<uint16_t, size_t> kNone;
    const auto& of_ports = found != receiving.calls.end() ? found->second : kNone;
    double calls = 0;
    size_t with_calls = of_ports.size();
    for (const auto& [port, own] : of_ports) calls += static_cast<double>(own);
    for (const Candidate& connection : of_peer.connections) {
      if (!peer) break;
      Seen& seen = *connection.seen;
      const auto of_port = of_ports.find(connection.port);
      const double counted = of_port != of_ports.end() ? static_cast<double>(of_port->second) : 0;
      const double own = CallsOf(connection.descriptor, counted, &seen);
      calls += own - counted;
      if (own <= 0) continue;
      with_calls += of_port == of_ports.end();
      // More may have come since the look at what is unread, and gRPC may have closed the connection.
      const auto read = static_cast<int64_t>(ReceivedFrom(connection.descriptor)) - seen.unread;
      const auto bytes = static_cast<double>(std::max(read, seen.counted) - seen.counted);
      seen.counted = std::max(read, seen.counted);
      seen.density.Add(own, bytes);
      account.density.Add(own, bytes);
      seen.calls_at_once = seen.looks == 0 ? own : (seen.calls_at_once + own) / 2;
      ++seen.looks;
      seen.called_at = seen.waiting_since = now;  // it keeps its place until a whole message was read
    }
    if (with_calls > 0) {
      const double of_each = calls / static_cast<double>(with_calls);
      account.calls_at_once = std::max(of_each, Average(account.calls_at_once, of_each));
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
  if (active < 2 || !busiest_) {  // those of Unix sockets cannot be limited
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

void ReadingTurns::Pause(int descriptor, Seen* seen) {
  seen->paused = true;
  HideFromPolls(descriptor);
  server::Pause(descriptor);  // spares the polls that would find bytes to hide
  // gRPC may just have closed the connection, and its descriptor may be that of another one.
  if (InodeOf(descriptor) != seen->inode) Resume(descriptor);
}

void ReadingTurns::Resume(int descriptor) {
  ShowToPolls(descriptor);
  server::Resume(descriptor);
}

}  // namespace posenc::server

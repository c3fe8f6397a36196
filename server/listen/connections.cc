#include "server/listen/connections.h"

#include <sys/socket.h>

#include <algorithm>

#include "server/listen/socket_state.h"

namespace posenc::server {

Connections::Verdict Connections::Add(int descriptor, Peer peer, bool trusted) {
  // The descriptor was free when it was accepted: a connection that had it before is closed.
  if (const auto before = connections_.find(descriptor); before != connections_.end()) Remove(before);
  // A check takes up to a microsecond a connection. So these checks take at most a tenth of the caller's time.
  const auto pause = connections_.size() * std::chrono::microseconds(10);
  size_t& count = CountOf(peer, trusted);
  if ((count >= most_ || IsFullFor(peer)) && Clock::now() - last_check_ > pause) RemoveClosed();
  if (count >= most_) return Verdict::kTooMany;
  if (IsFullFor(peer)) return Verdict::kTooManyOfPeer;
  size_t* const of_peer = peer ? &of_peer_[*peer] : nullptr;
  connections_[descriptor] = {InodeOf(descriptor).value_or(0), peer, peer ? PortOf(descriptor) : uint16_t{0}, trusted};
  ++count;  // last: memory that runs out above leaves the counts right
  if (of_peer != nullptr) ++*of_peer;
  return Verdict::kAdmitted;
}

size_t Connections::CountOpen() {
  if (Clock::now() - last_check_ > std::chrono::milliseconds(100)) RemoveClosed();
  return connections_.size();
}

int Connections::Unsent(const Entry& entry) {
  return InodeOf(entry.first) == entry.second.inode ? UnsentTo(entry.first) : 0;
}

bool Connections::AreQuiet() const {
  return std::none_of(connections_.begin(), connections_.end(), [](const Entry& entry) {
    return IsUnacknowledged(entry) || (InodeOf(entry.first) == entry.second.inode && UnreadOf(entry.first) > 0);
  });
}

size_t Connections::CloseIdle(const std::set<TcpEnd>& busy) {
  RemoveClosed();
  for (Entry& entry : connections_) {
    auto& [descriptor, connection] = entry;
    if (connection.is_shut_down || busy.contains({connection.peer, connection.port}) || IsUnacknowledged(entry))
      continue;
    connection.is_shut_down = shutdown(descriptor, SHUT_RDWR) == 0;
  }
  return connections_.size();
}

size_t Connections::CutBusy() const {
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), [](const Entry& entry) {
    const auto& [descriptor, connection] = entry;
    if (InodeOf(descriptor) != connection.inode) return false;
    if (UnsentTo(descriptor) > 0) return shutdown(descriptor, SHUT_RDWR) == 0;
    return connection.peer && UnreadOf(descriptor) > 0 && Reset(descriptor);
  }));
}

bool Connections::IsFullFor(Peer peer) const {
  const auto found = peer ? of_peer_.find(*peer) : of_peer_.end();
  return found != of_peer_.end() && found->second >= most_of_peer_;
}

void Connections::RemoveClosed() {
  for (auto at = connections_.begin(); at != connections_.end();) {
    at = InodeOf(at->first) == at->second.inode ? std::next(at) : Remove(at);
  }
  last_check_ = Clock::now();
}

Connections::Table::iterator Connections::Remove(Table::iterator at) {
  const Peer peer = at->second.peer;
  --CountOf(peer, at->second.trusted);
  if (peer) {
    const auto found = of_peer_.find(*peer);
    if (--found->second == 0) of_peer_.erase(found);
  }
  return connections_.erase(at);
}

}  // namespace posenc::server

#include "server/listen/connections.h"

#include <netinet/in.h>
#include <sys/stat.h>

#include <cstring>

namespace posenc::server {
namespace {

std::optional<ino_t> InodeOf(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

}  // namespace

Peer PeerOf(const sockaddr_storage& address) {
  // The addresses of ::ffff:0:0/96 are those of IPv4 clients of a socket for both families. An IPv4 address becomes
  // 0000:ffff:ADDRESS, which no IPv6 network in use has as its first 64 bits.
  constexpr uint64_t kIpv4 = uint64_t{0xffff} << 32;
  if (address.ss_family == AF_INET) {
    return kIpv4 | ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  }
  if (address.ss_family != AF_INET6) return std::nullopt;
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  uint32_t words[4];
  std::memcpy(words, &ipv6, sizeof(words));
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return kIpv4 | ntohl(words[3]);
  return uint64_t{ntohl(words[0])} << 32 | ntohl(words[1]);
}

Connections::Verdict Connections::Add(int descriptor, Peer peer) {
  // The descriptor was free when it was accepted: a connection that had it before is closed.
  if (const auto before = connections_.find(descriptor); before != connections_.end()) Remove(before);
  if (IsAtLimit(peer) && Clock::now() >= next_check_) {
    // A check takes some 0.2 us a connection. So checks take at most a tenth of the caller's time.
    RemoveClosed();
    next_check_ = Clock::now() + connections_.size() * std::chrono::microseconds(2);
  }
  if (connections_.size() >= most_) return Verdict::kTooMany;
  if (IsAtLimit(peer)) return Verdict::kTooManyOfPeer;
  size_t* const of_peer = peer ? &of_peer_[*peer] : nullptr;
  connections_[descriptor] = {InodeOf(descriptor).value_or(0), peer};
  if (of_peer != nullptr) ++*of_peer;  // last: nothing above leaves the counts wrong if memory runs out
  return Verdict::kAdmitted;
}

size_t Connections::CountOpen() {
  RemoveClosed();
  return connections_.size();
}

bool Connections::IsAtLimit(Peer peer) const {
  if (connections_.size() >= most_) return true;
  const auto found = peer ? of_peer_.find(*peer) : of_peer_.end();
  return found != of_peer_.end() && found->second >= most_of_peer_;
}

void Connections::RemoveClosed() {
  for (auto at = connections_.begin(); at != connections_.end();) {
    at = InodeOf(at->first) == at->second.inode ? std::next(at) : Remove(at);
  }
}

Connections::Table::iterator Connections::Remove(Table::iterator at) {
  if (at->second.peer) {
    const auto found = of_peer_.find(*at->second.peer);
    if (--found->second == 0) of_peer_.erase(found);
  }
  return connections_.erase(at);
}

}  // namespace posenc::server

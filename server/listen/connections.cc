#include "server/listen/connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "server/listen/socket_state.h"

namespace posenc::server {
namespace {

// An IPv4 address becomes 0000:ffff:ADDRESS, which no IPv6 network in use has as its first 64 bits.
constexpr uint64_t kIpv4 = uint64_t{0xffff} << 32;

}  // namespace

Peer PeerOf(const sockaddr_storage& address) {
  // The addresses of ::ffff:0:0/96 are those of IPv4 clients of a socket for both families.
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

Peer PeerOf(std::string_view name) {
  // A client of a Unix socket chooses its name, which must not pass for an address.
  if (!name.starts_with("ipv4:") && !name.starts_with("ipv6:")) return std::nullopt;
  std::string_view host = name.substr(5, name.rfind(':') - 5);
  for (const std::string_view bracket : {"[", "%5B"}) {
    if (host.starts_with(bracket)) host.remove_prefix(bracket.size());
  }
  host = host.substr(0, host.find_first_of("]%"));
  const std::string text(host);
  sockaddr_storage address = {};
  if (inet_pton(AF_INET, text.c_str(), &reinterpret_cast<sockaddr_in&>(address).sin_addr) == 1) {
    address.ss_family = AF_INET;
  } else if (inet_pton(AF_INET6, text.c_str(), &reinterpret_cast<sockaddr_in6&>(address).sin6_addr) == 1) {
    address.ss_family = AF_INET6;
  }
  return PeerOf(address);
}

std::string NameOf(Peer peer) {
  if (!peer) return "unix";
  char text[INET6_ADDRSTRLEN] = "";
  if (*peer >> 32 == kIpv4 >> 32) {
    const in_addr address = {htonl(static_cast<uint32_t>(*peer))};
    return inet_ntop(AF_INET, &address, text, sizeof(text));
  }
  in6_addr address = {};
  for (size_t n = 0; n < 8; ++n) address.s6_addr[n] = static_cast<uint8_t>(*peer >> (56 - 8 * n));
  return std::string(inet_ntop(AF_INET6, &address, text, sizeof(text))) + "/64";
}

bool IsLoopback(Peer peer) {
  constexpr uint64_t kNetwork = kIpv4 | uint64_t{127} << 24;
  return peer && (*peer == 0 || (*peer & ~uint64_t{0xffffff}) == kNetwork);
}

Connections::Verdict Connections::Add(int descriptor, Peer peer, bool trusted) {
  // The descriptor was free when it was accepted: a connection that had it before is closed.
  if (const auto before = connections_.find(descriptor); before != connections_.end()) Remove(before);
  // A check takes up to a microsecond a connection. So these checks take at most a tenth of the caller's time.
  const auto pause = connections_.size() * std::chrono::microseconds(10);
  if ((IsFull(peer) || IsFullFor(peer)) && Clock::now() - last_check_ > pause) RemoveClosed();
  if (IsFull(peer)) return Verdict::kTooMany;
  if (IsFullFor(peer)) return Verdict::kTooManyOfPeer;
  size_t* const of_peer = peer ? &of_peer_[*peer] : nullptr;
  connections_[descriptor] = {InodeOf(descriptor).value_or(0), peer, trusted};
  ++(of_peer != nullptr ? *of_peer : without_peer_);  // last: memory that runs out above leaves the counts right
  return Verdict::kAdmitted;
}

std::vector<Connections::Open> Connections::ListOpen() const {
  std::vector<Open> open;
  for (const auto& [descriptor, connection] : connections_) {
    open.push_back({descriptor, connection.inode, connection.peer});
  }
  return open;
}

size_t Connections::CountOpen() {
  if (Clock::now() - last_check_ > std::chrono::milliseconds(100)) RemoveClosed();
  return connections_.size();
}

int Connections::Unsent(const Entry& entry) {
  return InodeOf(entry.first) == entry.second.inode ? UnsentTo(entry.first) : 0;
}

bool Connections::HasUnacknowledged() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const Entry& entry) { return entry.second.peer && Unsent(entry) > 0; });
}

size_t Connections::CutUnsent() const {
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), [](const Entry& entry) {
    return Unsent(entry) > 0 && shutdown(entry.first, SHUT_RDWR) == 0;
  }));
}

size_t Connections::CutStuck(const std::set<Peer>& peers, size_t most) {
  constexpr std::chrono::seconds kForgets(1);
  const auto now = Clock::now();
  const bool is_first = now - std::exchange(last_cut_, now) > kForgets;
  const size_t ending =
      static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), [](const Entry& entry) {
        return entry.second.cut && InodeOf(entry.first) == entry.second.inode;
      }));
  size_t cut = 0;
  for (Entry& entry : connections_) {
    if (cut + ending >= most) break;
    auto& [descriptor, connection] = entry;
    auto& behind = connection.behind;
    if (is_first) behind.reset();
    if (connection.cut || connection.trusted || !peers.contains(connection.peer)) continue;
    const int unsent = Unsent(entry);
    if (unsent == 0) {
      behind.reset();
      continue;
    }
    // Its calls would all be read to be ended. They take no memory before.
    if (IsPaused(descriptor) && UnreadOf(descriptor) > 0) continue;
    const bool is_unix = !connection.peer;
    const uint64_t taken = is_unix ? static_cast<uint64_t>(unsent) : TakenBy(descriptor);
    const uint64_t enough = is_unix ? 1 : 64 << 10;
    const auto longest = is_unix ? std::chrono::milliseconds(1000) : std::chrono::milliseconds(20);
    if (!behind || taken - behind->taken >= enough) {  // of a Unix socket, also if it is less than before
      behind = {now, taken};
    } else if (now - behind->since >= longest) {
      connection.cut = shutdown(descriptor, SHUT_RDWR) == 0;
      cut += connection.cut;
    }
  }
  return cut;
}

bool Connections::IsFull(Peer peer) const {
  return (peer ? connections_.size() - without_peer_ : without_peer_) >= most_;
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
  if (at->second.peer) {
    const auto found = of_peer_.find(*at->second.peer);
    if (--found->second == 0) of_peer_.erase(found);
  } else {
    --without_peer_;
  }
  return connections_.erase(at);
}

}  // namespace posenc::server

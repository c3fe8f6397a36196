#include "server/listen/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

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

uint16_t PortOf(std::string_view name) {
  const std::string_view text = name.substr(name.rfind(':') + 1);
  uint16_t port = 0;
  std::from_chars(text.data(), text.data() + text.size(), port);
  return port;
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

}  // namespace posenc::server

// Peers: whose connections are limited together.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace posenc::server {

// A peer whose connections are limited together: an IPv4 address, or the first 64 bits of an IPv6 address, since a host
// may have all addresses of such a network. Clients of Unix sockets have no peer.
using Peer = std::optional<uint64_t>;
Peer PeerOf(const sockaddr_storage& address);
// The peer of a name that gRPC gives to a connection: "ipv4:192.0.2.1:50051", "ipv6:%5B::1%5D:50051", "unix:".
Peer PeerOf(std::string_view name);
// Its port; 0 if it has none.
uint16_t PortOf(std::string_view name);
// The other end of a TCP connection; no peer and port 0 stand for all connections of Unix sockets.
using TcpEnd = std::pair<Peer, uint16_t>;
// "192.0.2.1", "2001:db8:1:2::/64" or "unix".
std::string NameOf(Peer peer);
// True for 127.0.0.0/8 and ::1.
bool IsLoopback(Peer peer);

}  // namespace posenc::server

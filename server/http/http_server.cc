#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/strand.hpp"
#include "server/core/log.h"
#include "server/http/tls_context.h"

namespace posenc::server {
namespace {

namespace asio = boost::asio;

constexpr uint64_t kNumbers = uint64_t{1} << 63;  // unlike those of gRPC's connections, which are addresses

// The other end as gRPC names it; empty if the connection has ended.
std::string NameOfPeer(int connection) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getpeername(connection, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  char host[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
    return absl::StrCat("ipv4:", host, ":", ntohs(v4.sin_port));
  }
  if (address.ss_family != AF_INET6) return "unix:";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, host, sizeof(host));
    return absl::StrCat("ipv4:", host, ":", ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
  return absl::StrCat("ipv6:%5B", host, "%5D:", ntohs(v6.sin6_port));
}

}  // namespace

HttpServer::HttpServer(Options options)
    : options_(std::move(options)),
      shared_(std::make_shared<const HttpShared>(options_.shared)),
      io_(static_cast<int>(options_.threads)),
      work_(io_.get_executor()) {
  // Asio takes descriptors of its own for its first socket: now, and not once there may be none left.
  const HttpConnection::Socket first(asio::make_strand(io_.get_executor()));
  for (size_t n = 0; n < options_.threads; ++n) {
    threads_.emplace_back([this, n] {
      http_thread = n;
      io_.run();  // no handler throws
    });
  }
}

HttpServer::~HttpServer() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : connections_) {
      if (const auto connection = one.lock()) connection->Close();
    }
  }
  for (int64_t alive = *alive_; alive > 0; alive = *alive_) alive_->wait(alive);
  work_.reset();
  for (std::thread& thread : threads_) thread.join();
}

void HttpServer::Serve(Descriptor connection, Listener::Kind kind) {
  HttpPeer peer{.name = NameOfPeer(connection.get()), .names = {}};
  if (peer.name.empty()) return;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<asio::ssl::context> tls;
  if (options_.certificates != nullptr && kind == Listener::Kind::kTcp) {
    tls = Tls();
    if (tls == nullptr) return;
  }
  peer.is_tls = tls != nullptr;
  peer.is_trusted_proxy = kind == Listener::Kind::kTrustedProxy;
  peer.number = kNumbers + ++number_;
  HttpConnection::Socket socket(asio::make_strand(io_.get_executor()));
  const int descriptor = connection.get();
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  socket.assign(asio::generic::stream_protocol(address.ss_family, 0), descriptor);
  connection.Release();
  ++*alive_;
  std::shared_ptr<const void> alive(nullptr, [number = alive_](const void*) {
    if (--*number == 0) number->notify_all();
  });
  const auto made = MakeHttpConnection(std::move(socket), std::move(peer), std::move(tls), shared_, std::move(alive));
  MakeRoom();
  connections_.push_back(made);
  made->Start();
}

void HttpServer::MakeRoom() {
  if (connections_.size() < options_.max_connections && connections_.size() < 2 * kept_ + 16) return;
  std::erase_if(connections_, [](const auto& one) { return one.expired(); });
  while (connections_.size() >= options_.max_connections) {
    if (const auto oldest = connections_.front().lock()) oldest->Close();
    connections_.erase(connections_.begin());
  }
  kept_ = connections_.size();
}

std::shared_ptr<asio::ssl::context> HttpServer::Tls() {
  if (auto current = options_.certificates->current(); current != tls_certificates_) {
    tls_ = MakeTlsContext(*current, options_.tls_client_auth);
    if (tls_ != nullptr) tls_certificates_ = std::move(current);
  }
  return tls_;
}

std::set<TcpEnd> HttpServer::BusyConnections(bool with_uploads) {
  std::set<TcpEnd> busy;
  const std::lock_guard lock(mutex_);
  for (const auto& one : connections_) {
    const auto connection = one.lock();
    if (connection == nullptr || !connection->is_busy(with_uploads)) continue;
    busy.insert({PeerOf(connection->peer().name), PortOf(connection->peer().name)});
  }
  return busy;
}

}  // namespace posenc::server

// The HTTP/1.1 server: threads that serve connections which somebody else accepts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "server/core/descriptor.h"
#include "server/http/connection.h"
#include "server/listen/certificates.h"
#include "server/listen/listener.h"
#include "server/listen/peer.h"

namespace posenc::server {

class HttpServer {
 public:
  struct Options {
    size_t threads = 1;
    size_t max_connections = std::numeric_limits<size_t>::max();  // one more closes the oldest
    HttpShared shared;
    std::shared_ptr<CertificateStore> certificates;  // null: no TLS
    std::string tls_client_auth = "none";
  };

  explicit HttpServer(Options options);
  // Closes all connections, and waits until all requests that were handed over are answered.
  ~HttpServer();

  // Serves an accepted connection. Over Unix sockets there is no TLS. Thread-safe.
  void Serve(Descriptor connection, Listener::Kind kind);
  // The connections that are busy (HttpConnection::is_busy). Thread-safe.
  std::set<TcpEnd> BusyConnections(bool with_uploads);

 private:
  std::shared_ptr<boost::asio::ssl::context> Tls();
  // Forgets connections that have ended, and closes the oldest if there are too many.
  void MakeRoom();

  const Options options_;
  const std::shared_ptr<const HttpShared> shared_;
  boost::asio::io_context io_;
  const std::shared_ptr<std::atomic<int64_t>> alive_ = std::make_shared<std::atomic<int64_t>>(0);  // connections
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<HttpConnection>> connections_;  // the oldest first; guarded by mutex_, as all below
  size_t kept_ = 0;                                         // of connections_ after the last look for ended ones
  uint64_t number_ = 0;
  std::shared_ptr<const Certificates> tls_certificates_;  // of tls_
  std::shared_ptr<boost::asio::ssl::context> tls_;
  std::vector<std::thread> threads_;
};

}  // namespace posenc::server

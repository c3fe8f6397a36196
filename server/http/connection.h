// One HTTP/1.1 connection: reads requests, one after another, and sends their answers.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "boost/asio/basic_stream_socket.hpp"
#include "boost/asio/generic/stream_protocol.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/strand.hpp"
#include "posenc/base/busy_threads.h"
#include "server/core/buffer_pool.h"
#include "server/core/fair_limit.h"
#include "server/http/message.h"

namespace posenc::server {

struct HttpLimits {
  size_t max_header_bytes = 0;  // of all fields of a request, and its first line
  size_t max_body_bytes = 0;
  std::chrono::seconds handshake_timeout{};
  std::chrono::seconds receive_timeout{};  // of a request's header, and of its body; also between requests
  std::chrono::seconds send_timeout{};
  std::chrono::seconds max_age{};  // then the next answer is the connection's last
};

// Settings and limits that all connections of a server share.
struct HttpShared {
  HttpHandler handler;
  HttpLimits limits;
  std::shared_ptr<FairLimit> body_bytes;  // of bodies, from when they come until their requests are answered
  std::shared_ptr<BufferPool> buffers;
  std::function<bool()> is_draining;  // then each answer is its connection's last
  BusyThreads* busy = nullptr;  // records since when each of the server's threads is in one step; null: nobody asks
};

// The number of the server's thread that runs, for HttpShared::busy.
inline thread_local size_t http_thread = 0;

// Thread-safe.
class HttpConnection {
 public:
  using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
  using Socket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, Strand>;

  virtual ~HttpConnection() = default;
  // Serves the connection until it ends. It owns itself.
  virtual void Start() = 0;
  virtual const HttpPeer& peer() const = 0;
  // True while a request is being answered or, with `with_uploads`, while its body is being received.
  virtual bool is_busy(bool with_uploads) const = 0;
  // Send an answer, run a step, and end the connection: HttpExchange calls these.
  virtual void Send(HttpAnswer answer, std::function<void()> sent) = 0;
  virtual void Post(std::function<void()> step) = 0;
  virtual void Close() = 0;
};

// `tls`: null for a connection without. `alive` is destroyed after the connection.
std::shared_ptr<HttpConnection> MakeHttpConnection(HttpConnection::Socket socket, HttpPeer peer,
                                                   std::shared_ptr<boost::asio::ssl::context> tls,
                                                   std::shared_ptr<const HttpShared> shared,
                                                   std::shared_ptr<const void> alive);

}  // namespace posenc::server

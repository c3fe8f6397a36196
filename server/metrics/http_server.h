// A small HTTP server for scrapes and probes: GET of a few paths, on a thread of its own, so that neither a slow client
// nor load on the gRPC side can delay the other. It uses GNU libmicrohttpd.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/listen/listening_socket.h"

struct MHD_Connection;
struct MHD_Daemon;

namespace posenc::server {

class HttpServer {
 public:
  struct Response {
    int status = 200;
    std::string body;
    const char* content_type = "text/plain; charset=utf-8";
  };
  // Answers a GET of a path, e.g. "/metrics". Called on the server's threads.
  using Handlers = std::map<std::string, std::function<Response()>, std::less<>>;

  // Listens at ADDRESS:PORT. Returns INVALID_ARGUMENT naming `flag` if the address is bad or taken. At most 64
  // connections are open at each socket, 16 of one address: one more than 64 ends the oldest. One on which nothing
  // moves for ten seconds is closed.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(std::string_view flag, const std::string& address,
                                                           Handlers handlers);
  // Waits for handlers that run.
  ~HttpServer();

  int port() const { return sockets_.front().port; }

 private:
  explicit HttpServer(Handlers handlers) : handlers_(std::move(handlers)) {}

  const Handlers handlers_;
  std::vector<ListeningSocket> sockets_;
  std::vector<MHD_Daemon*> daemons_;             // one for each socket
  std::list<std::deque<MHD_Connection*>> open_;  // of each daemon, the oldest first
};

}  // namespace posenc::server

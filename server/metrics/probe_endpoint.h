// A small HTTP endpoint for scrapes and probes: GET of a few paths, on threads of its own, so that neither a slow
// client nor load on the other ports can delay the other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/http/http_server.h"
#include "server/listen/listener.h"

namespace posenc::server {

class ProbeEndpoint {
 public:
  // Answers a GET of a path, e.g. "/metrics". Called on the endpoint's thread.
  using Handlers = std::map<std::string, std::function<HttpAnswer()>, std::less<>>;

  // Listens at ADDRESS:PORT. Returns INVALID_ARGUMENT naming `flag` if the address is bad or taken. At most 64
  // connections are open, 16 of one address: one more than 64 ends the oldest. One on which nothing moves for ten
  // seconds is closed.
  static absl::StatusOr<std::unique_ptr<ProbeEndpoint>> Start(std::string_view flag, const std::string& address,
                                                              Handlers handlers);

  int port() const { return listener_->http_port(); }

 private:
  ProbeEndpoint(std::unique_ptr<Listener> listener, HttpServer::Options options);

  HttpServer http_;
  std::unique_ptr<Listener> listener_;  // ends first
};

}  // namespace posenc::server

// HTTP/1.1 requests and answers, between connections (connection.h) and those who answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "boost/beast/http/fields.hpp"

namespace posenc::server {

// Where a request comes from. As gRPC names it: "ipv4:192.0.2.1:50051", "ipv6:%5B::1%5D:50051", "unix:".
struct HttpPeer {
  std::string name;
  uint64_t number = 0;  // of the connection: no other open one has it
  bool is_tls = false;
  bool is_trusted_proxy = false;  // whose headers say who calls
  // Names of the verified client certificate: "dns:a.example", ...; "unnamed" alone if it has none. Empty: none shown.
  std::vector<std::string> names;

  bool is_unix() const { return name.starts_with("unix"); }
};

// Bytes that somebody else owns.
struct SharedBytes {
  absl::Span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

struct HttpRequest {   // NOLINT(bugprone-exception-escape): an assignment of Beast's fields may allocate
  std::string verb;    // "GET"
  std::string target;  // "/v2/models?x=1"
  boost::beast::http::fields fields;
  // Name of the caller's connection, or of its address as a trusted proxy gives it; empty over other Unix sockets.
  std::string caller;
  const HttpPeer* peer;  // lives as long as the request

  // The first field of this name, in any case; empty if absent.
  std::string_view field(std::string_view name) const {
    const auto found = fields.find(boost::beast::string_view(name.data(), name.size()));
    return found == fields.end() ? std::string_view() : std::string_view(found->value().data(), found->value().size());
  }
};

struct HttpAnswer {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> fields = {};  // names and values of printable ASCII
  std::vector<SharedBytes> more = {};                            // of the body, behind `body`
};

// {"error": text}, as the Open Inference Protocol has it.
HttpAnswer HttpError(int status, std::string_view text);
// The first line and the fields of an answer with a body of so many bytes. `is_last`: the connection ends after it.
std::string HttpHeaderOf(const HttpAnswer& answer, size_t body_bytes, bool is_last, bool is_http_1_0);

// A request whose body has come, and its answer. Thread-safe.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual const SharedBytes& body() const = 0;
  // True once the client has gone away.
  virtual bool is_gone() const = 0;
  // Runs a step on a thread of the server.
  virtual void Post(std::function<void()> step) = 0;
  // Sends the answer, once. `sent`, unless null, is called when it is sent or lost, from a thread of the server.
  virtual void Answer(HttpAnswer answer, std::function<void()> sent) = 0;
  // Closes the connection.
  virtual void Close() = 0;
};

// Answers a request once its header has come: at once, so that its body is not read, or by a function that gets it with
// its body. Both are called on a thread of the server, and must not block it.
using HttpContinuation = std::function<void(std::shared_ptr<HttpExchange>)>;
using HttpHandler = std::function<std::variant<HttpAnswer, HttpContinuation>(const HttpRequest&)>;

}  // namespace posenc::server

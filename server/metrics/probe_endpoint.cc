#include "server/metrics/probe_endpoint.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "posenc/base/status.h"
#include "server/core/compression.h"

namespace posenc::server {
namespace {

constexpr size_t kMostConnections = 64;
constexpr size_t kMoreWhileClosing = 4096;  // the listener notices up to a tenth of a second later that one has ended
constexpr size_t kMostOfAddress = 16;
constexpr std::chrono::seconds kIdle{10};
constexpr size_t kCompressed = 1024;  // bytes from which on an answer is compressed
constexpr size_t kMostHeaderBytes = size_t{16} << 10;

// "gzip" in a list such as "deflate, gzip;q=0.5". A scraper that gives it the weight 0 does without.
bool TakesGzip(const HttpRequest& request) {
  const std::string fields = absl::AsciiStrToLower(std::string(request.field("accept-encoding")));
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(fields, ','))) {
    const std::vector<std::string> words = absl::StrSplit(part, ';');
    const std::string weight = words.size() > 1 ? absl::StrReplaceAll(words[1], {{" ", ""}}) : "q=1";
    const bool is_zero = weight.find_first_not_of("q=0.") == std::string::npos;
    if (absl::StripAsciiWhitespace(words[0]) == "gzip" && !is_zero) return true;
  }
  return false;
}

HttpAnswer Text(int status, std::string text) {
  return {.status = status, .body = std::move(text), .content_type = "text/plain; charset=utf-8"};
}

HttpAnswer AnswerTo(const ProbeEndpoint::Handlers& handlers, const HttpRequest& request) {
  if (request.verb != "GET" && request.verb != "HEAD") {
    HttpAnswer answer = Text(405, "only GET\n");
    answer.fields.emplace_back("Allow", "GET, HEAD");
    return answer;
  }
  const std::string_view target = request.target;
  if (const auto handler = handlers.find(target.substr(0, target.find('?'))); handler != handlers.end()) {
    HttpAnswer answer = handler->second();
    const bool may_compress = answer.body.size() >= kCompressed && TakesGzip(request);
    if (auto compressed = may_compress ? Gzip(answer.body) : std::nullopt) {
      answer.body = *std::move(compressed);
      answer.fields.emplace_back("Content-Encoding", "gzip");
    }
    answer.fields.emplace_back("Vary", "Accept-Encoding");
    return answer;
  }
  std::string paths = "no such path; there are:";
  for (const auto& [path, unused] : handlers) paths += " " + path;
  return Text(404, paths + "\n");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeEndpoint>> ProbeEndpoint::Start(std::string_view flag, const std::string& address,
                                                                    Handlers handlers) {
  POSENC_ASSIGN_OR_RETURN(auto listener, Listener::Listen({.http_addresses = {address},
                                                           .http_flag = std::string(flag),
                                                           .max_connections = kMostConnections + kMoreWhileClosing,
                                                           .max_connections_per_peer = kMostOfAddress,
                                                           .send_timeout = kIdle,
                                                           .handshake_timeout = kIdle}));
  HttpServer::Options options = {.max_connections = kMostConnections};
  options.shared.handler = [handlers = std::move(handlers)](const HttpRequest& request) {
    return AnswerTo(handlers, request);
  };
  options.shared.limits = {.max_header_bytes = kMostHeaderBytes,
                           .receive_timeout = kIdle,
                           .send_timeout = kIdle,
                           .max_age = std::chrono::hours(24 * 365)};
  options.shared.is_draining = [] { return false; };
  return std::unique_ptr<ProbeEndpoint>(new ProbeEndpoint(std::move(listener), std::move(options)));
}

ProbeEndpoint::ProbeEndpoint(std::unique_ptr<Listener> listener, HttpServer::Options options)
    : http_(std::move(options)), listener_(std::move(listener)) {
  listener_->Start([this](Descriptor connection, const ListeningSocket&, Listener::Kind kind) {
    http_.Serve(std::move(connection), kind);
  });
}

}  // namespace posenc::server

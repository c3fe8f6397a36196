#include "server/http/message.h"

#include <fmt/format.h>

#include "boost/beast/http/status.hpp"
#include "nlohmann/json.hpp"

namespace posenc::server {

namespace http = boost::beast::http;

HttpAnswer HttpError(int status, std::string_view text) {
  return {
      .status = status,
      .body = nlohmann::json{{"error", text}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

std::string HttpHeaderOf(const HttpAnswer& answer, size_t body_bytes, bool is_last, bool is_http_1_0) {
  const boost::beast::string_view reason = http::obsolete_reason(http::int_to_status(answer.status));
  std::string header = fmt::format("HTTP/1.1 {} {}\r\nContent-Length: {}\r\n", answer.status,
                                   std::string_view(reason.data(), reason.size()), body_bytes);
  if (body_bytes > 0) header += fmt::format("Content-Type: {}\r\n", answer.content_type);
  for (const auto& [name, value] : answer.fields) header += fmt::format("{}: {}\r\n", name, value);
  if (is_last) {
    header += "Connection: close\r\n";
  } else if (is_http_1_0) {
    header += "Connection: keep-alive\r\n";
  }
  return header += "\r\n";
}

}  // namespace posenc::server

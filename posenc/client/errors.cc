#include "posenc/client/errors.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr std::string_view kErrorInfoType = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr std::string_view kDomain = "posenc";
// Bytes. More than gRPC's limit on the headers that hold a status.
constexpr size_t kLongestText = size_t{1} << 16;

// Escapes control characters in a server's text: errors reach terminals and logs.
std::string Safe(std::string_view text) { return Quote(text, kLongestText); }

std::optional<v1::ErrorInfo> InfoIn(const v1::RichStatus& rich) {
  for (const google::protobuf::Any& any : rich.details()) {
    v1::ErrorInfo info;
    if (any.type_url() == kErrorInfoType && info.ParseFromString(any.value()) && info.domain() == kDomain) return info;
  }
  return std::nullopt;
}

std::optional<v1::ErrorInfo> InfoIn(const grpc::Status& status) {
  v1::RichStatus rich;
  return rich.ParseFromString(status.error_details()) ? InfoIn(rich) : std::nullopt;
}

std::string Metadata(const v1::ErrorInfo& info, const std::string& key) {
  const auto found = info.metadata().find(key);
  return found == info.metadata().end() ? std::string() : Safe(found->second);
}

absl::Status FromInfo(absl::StatusCode code, std::string_view message, const v1::ErrorInfo& info) {
  return Restore(code, message,
                 {.reason = info.reason(),
                  .field = Metadata(info, "field"),
                  .value = Metadata(info, "value"),
                  .limit = Metadata(info, "limit"),
                  .other_field = Metadata(info, "other_field"),
                  .line = Metadata(info, "line"),
                  .column = Metadata(info, "column"),
                  .operand = Metadata(info, "operand"),
                  .byte_offset = Metadata(info, "byte_offset")});
}

// Returns the first of the variables that is set, if only to nothing; null if none is.
const char* FirstSet(std::initializer_list<const char*> names) {
  const auto found =
      std::find_if(names.begin(), names.end(), [](const char* name) { return std::getenv(name) != nullptr; });
  return found == names.end() ? nullptr : *found;
}

// Returns the variable with the proxy that gRPC connects by, or null if it connects directly.
const char* ProxyVariable(const std::string& address) {
  const char* proxy = FirstSet({"grpc_proxy", "https_proxy", "http_proxy"});
  if (proxy == nullptr || *std::getenv(proxy) == '\0' || address.starts_with("unix")) return nullptr;
  const char* without = FirstSet({"no_grpc_proxy", "no_proxy"});
  const std::string host = address.substr(0, address.rfind(':'));
  for (const std::string& suffix :
       std::vector<std::string>(absl::StrSplit(without == nullptr ? "" : std::getenv(without), ','))) {
    if (!suffix.empty() && host.ends_with(suffix)) return nullptr;
  }
  return proxy;
}

}  // namespace

absl::Status FromRich(const v1::RichStatus& rich) {
  const auto code = static_cast<absl::StatusCode>(rich.code());
  const auto info = InfoIn(rich);
  return info ? FromInfo(code, Safe(rich.message()), *info) : absl::Status(code, Safe(rich.message()));
}

bool SaysNotStarted(const grpc::Status& status) {
  const auto info = InfoIn(status);
  return info && Metadata(*info, "started") == "false";
}

absl::Status FromGrpc(const grpc::Status& status, const std::string& address, bool was_connected) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = Safe(status.error_message());
  const auto code = static_cast<absl::StatusCode>(status.error_code());  // the numbers are the same
  if (const auto info = InfoIn(status)) return FromInfo(code, message, *info);
  if (code == absl::StatusCode::kUnavailable && was_connected) {
    return absl::UnavailableError(
        absl::StrCat("the connection to ", address, " was lost (", message, "); has posenc-server ended there?"));
  }
  if (code == absl::StatusCode::kUnavailable) {
    // gRPC's words, if the server closed the connection, or if the handshake of TLS failed.
    bool listens = false;
    for (const char* words :
         {"Socket closed", "Connection reset by peer", "Broken pipe", "handshake failed", "peer certificate"}) {
      listens = listens || absl::StrContains(message, words);
    }
    const char* proxy = ProxyVariable(address);
    const std::string hint =
        proxy != nullptr
            ? absl::StrCat("gRPC connects by the proxy of $", proxy,
                           ", not directly: is that meant? The variable no_proxy ", "names hosts without a proxy")
        : absl::StrContains(message, "DNS resolution failed") || absl::StrContains(message, "errors resolving") ||
                !absl::StrContains(address, ':')
            ? "an address is HOST:PORT or unix:PATH, such as localhost:50051"
        : listens
            ? "a server listens there: does only one side use TLS, is a certificate wrong, or are there too many "
              "connections?"
            : absl::StrCat("is posenc-server running there? Start it with `posenc-server --listen ", address, "`");
    return absl::UnavailableError(absl::StrCat("no answer from ", address, " (", message, "); ", hint));
  }
  // This client never cancels a call that it waits for, so the server did.
  if (code == absl::StatusCode::kCancelled) {
    return absl::UnavailableError(absl::StrCat(
        address,
        " has cancelled the call: is it shutting down, or was the answer not taken within its --send-timeout?"));
  }
  // posenc never answers it. gRPC says it of a call that a proxy ended without a status, because its server was killed.
  if (code == absl::StatusCode::kUnknown) {
    return absl::UnavailableError(absl::StrCat("the call ended without a status of ", address, " (", message,
                                               "): has the server, or one behind it, been killed?"));
  }
  // HTTP/2's ENHANCE_YOUR_CALM: the server's gRPC had no memory left before the message was complete.
  if (code == absl::StatusCode::kResourceExhausted && absl::StrContains(message, "RST_STREAM")) {
    return absl::UnavailableError(absl::StrCat(address, " had no memory left to receive the call"));
  }
  return absl::Status(code, message);
}

std::optional<int64_t> PushbackFrom(const std::multimap<grpc::string_ref, grpc::string_ref>& trailers) {
  const auto found = trailers.find("grpc-retry-pushback-ms");
  if (found == trailers.end()) return std::nullopt;
  int64_t milliseconds = 0;
  const std::string text(found->second.data(), found->second.size());
  return absl::SimpleAtoi(text, &milliseconds) ? milliseconds : -1;
}

}  // namespace posenc

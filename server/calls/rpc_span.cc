#include "server/calls/rpc_span.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "server/calls/status_map.h"

namespace posenc::server {
namespace {

// The server's own failures; other errors are the caller's, as the conventions for gRPC have it.
bool IsOfServer(grpc::StatusCode code) {
  switch (code) {
    case grpc::UNKNOWN:
    case grpc::DEADLINE_EXCEEDED:
    case grpc::UNIMPLEMENTED:
    case grpc::INTERNAL:
    case grpc::UNAVAILABLE:
    case grpc::DATA_LOSS: return true;
    default: return false;
  }
}

}  // namespace

void SetPeer(const std::string& connection, bool is_unix, CallSpan* span) {
  span->Set("network.transport", is_unix ? "unix" : "tcp");
  const size_t begin = connection.find(':'), end = connection.rfind(':');
  if (end <= begin || begin == std::string::npos) return;
  std::string_view address = std::string_view(connection).substr(begin + 1, end - begin - 1);
  if (address.starts_with("%5B") && address.ends_with("%5D")) address = address.substr(3, address.size() - 6);
  // Over a Unix socket, it is the address that a trusted proxy gives.
  span->Set(is_unix ? "client.address" : "network.peer.address", address);
  span->Set(is_unix ? "client.port" : "network.peer.port", int64_t{PortOf(connection)});
}

std::unique_ptr<CallSpan> BeginSpan(const Tracer* tracer, const Rpc& rpc, const std::string& path,
                                    const Method* method) {
  if (tracer == nullptr) return nullptr;
  const std::string name = path.starts_with('/') ? path.substr(1) : path;
  auto span = tracer->Begin(rpc.header(kTraceparent), rpc.header(kTracestate), method != nullptr && method->is_probe(),
                            method != nullptr ? name : "grpc");
  if (span == nullptr) return nullptr;
  span->Set("rpc.system.name", "grpc");
  span->Set("rpc.method", method != nullptr ? name : "_OTHER");
  if (method == nullptr) span->Set("rpc.method_original", name);
  SetPeer(rpc.connection(), rpc.is_unix(), span.get());
  return span;
}

void SetStatus(const grpc::Status& status, CallSpan* span) {
  const std::string code = absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code()));
  span->Set("rpc.response.status_code", code);
  SetErrorDetails(status, span);
  if (!IsOfServer(status.error_code())) return;
  span->Set("error.type", code);
  span->SetError(status.error_message());
}

void SetErrorDetails(const grpc::Status& status, CallSpan* span) {
  const auto info = ErrorInfoOf(status);
  if (!info) return;
  span->Set("posenc.error.reason", info->reason());
  const auto field = info->metadata().find("field");
  if (field != info->metadata().end()) span->Set("posenc.error.field", field->second);
}

}  // namespace posenc::server

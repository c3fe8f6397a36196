#include "server/calls/status_map.h"

#include "server/core/rich_status.h"

namespace posenc::server {

grpc::Status ToGrpc(const absl::Status& status, bool started) {
  if (status.ok()) return grpc::Status::OK;
  const v1::RichStatus rich = ToRich(status, started);
  return {static_cast<grpc::StatusCode>(status.code()), rich.message(), rich.SerializeAsString()};
}

std::optional<v1::ErrorInfo> ErrorInfoOf(const grpc::Status& status) {
  v1::RichStatus rich;
  v1::ErrorInfo info;
  const bool has_details = rich.ParseFromString(status.error_details()) && rich.details_size() > 0;
  return has_details && info.ParseFromString(rich.details(0).value()) ? std::make_optional(info) : std::nullopt;
}

}  // namespace posenc::server

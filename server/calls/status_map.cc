#include "server/calls/status_map.h"

#include "server/core/rich_status.h"

namespace posenc::server {

grpc::Status ToGrpc(const absl::Status& status, bool started) {
  if (status.ok()) return grpc::Status::OK;
  const v1::RichStatus rich = ToRich(status, started);
  return {static_cast<grpc::StatusCode>(status.code()), rich.message(), rich.SerializeAsString()};
}

}  // namespace posenc::server

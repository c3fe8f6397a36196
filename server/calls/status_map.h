// The only mapping of the library's errors to gRPC's.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace posenc::server {

// Converts a status, with ToRich()'s details (rich_status.h) in grpc-status-details-bin.
grpc::Status ToGrpc(const absl::Status& status, bool started);

}  // namespace posenc::server

// The one map from the library's errors to gRPC's.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace posenc::server {

// With the details that proto/posenc/v1/error.proto promises, in grpc-status-details-bin. `started` says whether work
// on the request had begun. The message is ASCII and at most 1 KiB: beyond about 8 KB of status, clients see another
// error.
grpc::Status ToGrpc(const absl::Status& status, bool started);

}  // namespace posenc::server

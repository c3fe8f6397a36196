// The only mapping of the library's errors to gRPC's.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "posenc/v1/error.pb.h"

namespace posenc::server {

// Converts a status, with ToRich()'s details (rich_status.h) in grpc-status-details-bin.
grpc::Status ToGrpc(const absl::Status& status, bool started);
// Returns the details that ToGrpc() has put into a status; nullopt if it has none.
std::optional<v1::ErrorInfo> ErrorInfoOf(const grpc::Status& status);

}  // namespace posenc::server

// Conversion of gRPC errors to the library's errors, so that a caller sees the same errors from every backend.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <grpcpp/support/status.h>
#include <grpcpp/support/string_ref.h>

#include "absl/status/status.h"
#include "posenc/v1/error.pb.h"

namespace posenc {

// Keeps code and message, and restores the details for DetailsOf() if grpc-status-details-bin
// (proto/posenc/v1/error.proto) holds a posenc ErrorInfo. Escapes control characters in all texts. UNAVAILABLE without
// details did not come from a posenc server: the message then names `address`, and says how to start a server or, with
// `was_connected`, that the connection was lost. CANCELLED without details comes from a server that ended the call,
// e.g. to shut down; it becomes UNAVAILABLE, because a retry may reach another server. RESOURCE_EXHAUSTED becomes
// UNAVAILABLE if gRPC has reset the call.
absl::Status FromGrpc(const grpc::Status& status, const std::string& address, bool was_connected);

// Converts an error that came in a message.
absl::Status FromRich(const v1::RichStatus& rich);

// True if a posenc server says that work on the request had not begun.
bool SaysNotStarted(const grpc::Status& status);

// Parses the trailer grpc-retry-pushback-ms: milliseconds to wait; negative: do not retry. Returns -1 for a value that
// is not a number, as gRPC's own clients do. Absent without the trailer.
std::optional<int64_t> PushbackFrom(const std::multimap<grpc::string_ref, grpc::string_ref>& trailers);

}  // namespace posenc

// From gRPC's errors back to those that the library makes, so that a caller cannot tell where an error came from.
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

// The same code and message; with the details of grpc-status-details-bin (proto/posenc/v1/error.proto), where it holds
// an ErrorInfo of ours, as DetailsOf() returns them. UNAVAILABLE without such details did not come from a posenc
// server: the message then names `address`, and says how to start one, or that it is lost if the channel was connected
// before. CANCELLED without them is the end of a server that was reached too late to be refused in order, and becomes
// UNAVAILABLE: another try may find another server. So does RESOURCE_EXHAUSTED where gRPC has reset the call.
absl::Status FromGrpc(const grpc::Status& status, const std::string& address, bool was_connected);

// An error that came in a message.
absl::Status FromRich(const v1::RichStatus& rich);

// The trailer grpc-retry-pushback-ms: milliseconds to wait, negative: do not come back. What is not a number forbids
// it too, as gRPC's own clients read it.
std::optional<int64_t> PushbackFrom(const std::multimap<grpc::string_ref, grpc::string_ref>& trailers);

}  // namespace posenc

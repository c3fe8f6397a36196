// Tensors that lie in the caller's memory, beside request and response (CallOptions).
#pragma once

#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "posenc/client/backend.h"

namespace posenc {

// Calls `visit` with every tensor within the message, at any depth.
void ForEachTensor(const google::protobuf::Message& message, absl::FunctionRef<void(const v1::Tensor&)> visit);

// Whether the bytes have a byte of memory in common.
bool Overlap(absl::Span<const std::byte> a, absl::Span<const std::byte> b);

// INVALID_ARGUMENT unless each input is of a tensor of the request without data, and of one only, and no two outputs
// overlap.
absl::Status CheckMemory(const google::protobuf::Message& request, const CallOptions& options);

// INVALID_ARGUMENT where there is any: of streams.
absl::Status RefuseMemory(const CallOptions& options);

// Where the caller wants tensors of the response; those that are not here go into the response. INVALID_ARGUMENT where
// the memory is not as large as the tensor, or there is no such tensor.
using Destinations = absl::flat_hash_map<const v1::Tensor*, std::byte*>;
absl::StatusOr<Destinations> DestinationsOf(const google::protobuf::Message& response, const CallOptions& options,
                                            absl::FunctionRef<size_t(const v1::Tensor&)> bytes_of);

}  // namespace posenc

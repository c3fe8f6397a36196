// Tensors in the caller's memory, beside request and response (CallOptions).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "posenc/backend/backend.h"

namespace posenc {

// Calls `visit` with every tensor within the message, at any depth. The message is a request or an answer of an RPC.
void ForEachTensor(const google::protobuf::Message& message, absl::FunctionRef<void(const v1::Tensor&)> visit);

// True if the spans have a byte of memory in common.
bool Overlap(absl::Span<const std::byte> a, absl::Span<const std::byte> b);

// Returns INVALID_ARGUMENT unless each input belongs to a different tensor of the request, which has no data, and no
// two outputs overlap.
absl::Status CheckMemory(const google::protobuf::Message& request, const CallOptions& options);

// Returns INVALID_ARGUMENT if memory is missing for an operand of so many bytes, or if an output overlaps an input or
// the other output. A tensor may be rotated in place.
absl::Status CheckMemory(int64_t q_bytes, int64_t k_bytes, const RotaryMemory& memory);

// Returns INVALID_ARGUMENT if the options have inputs or outputs, which streams do not support.
absl::Status RefuseMemory(const CallOptions& options);

// The caller's memory for tensors of the response; tensors that are absent here go into the response. DestinationsOf()
// returns INVALID_ARGUMENT if the sizes of memory and tensor differ, or there is no such tensor.
using Destinations = absl::flat_hash_map<const v1::Tensor*, std::byte*>;
absl::StatusOr<Destinations> DestinationsOf(const google::protobuf::Message& response, const CallOptions& options,
                                            absl::FunctionRef<size_t(const v1::Tensor&)> bytes_of);

}  // namespace posenc

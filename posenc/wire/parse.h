// Parsing and strict validation of requests. All requests go through it, so that nothing that proto3 would silently
// ignore is accepted.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message.h"
#include "posenc/wire/walker.h"

namespace posenc::wire {

// Returns INVALID_ARGUMENT for an unknown field (UNKNOWN_FIELD, field = its path with its number, e.g. "mask.2000") or
// an unknown enum value (UNKNOWN_VALUE, field = its path, e.g. "mask.fill_kind"), anywhere but in a
// posenc.v1.CallHints, which cannot change a byte of the answer. A newer client's field must not be ignored: its answer
// would be wrong with status OK.
//
// If `has_regions` is null, regions are refused too (UNSUPPORTED); else it is set to true if there are any.
absl::Status RejectUnknown(const google::protobuf::Message& message, bool* has_regions = nullptr);

// Returns INVALID_ARGUMENT (UNKNOWN_FIELD) for an unknown field of the message itself, of any package.
absl::Status RejectUnknownFields(const google::protobuf::Message& message);

// Maximum bytes of a request excluding tensor data: config.json files, frequencies, segments.
inline constexpr size_t kMaxStrippedBytes = size_t{8} << 20;

// Parses a stripped message (walker.h) and rejects unknown fields and enum values. Returns INVALID_ARGUMENT naming the
// message or the field. `has_regions` is passed to RejectUnknown. Throws std::bad_alloc soon after the thread's memory
// account (memory_account.h) was refused.
absl::Status ParseStripped(const std::string& stripped, google::protobuf::Message* request,
                           bool* has_regions = nullptr);

// Strips, parses and checks a serialized request of the stripper's type. Its tensors then hold tickets: indices into
// the returned ranges. RESOURCE_EXHAUSTED above kMaxStrippedBytes.
absl::StatusOr<std::vector<ByteRange>> ParseRequest(const Stripper& stripper,
                                                    google::protobuf::io::ZeroCopyInputStream* input,
                                                    google::protobuf::Message* request);

}  // namespace posenc::wire

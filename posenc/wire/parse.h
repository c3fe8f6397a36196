// Parsing and strict validation of requests. All requests go through it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message.h"
#include "posenc/wire/walker.h"

namespace posenc::wire {

// Maximum bytes of a request excluding tensor data: config.json files, frequencies, segments.
inline constexpr size_t kMaxStrippedBytes = size_t{8} << 20;

// Parses a stripped message (walker.h) and rejects unknown fields and enum values. Returns INVALID_ARGUMENT naming the
// message or the field. `has_regions` is passed to RejectUnknown (strict.h).
absl::Status ParseStripped(const std::string& stripped, google::protobuf::Message* request,
                           bool* has_regions = nullptr);

// Strips, parses and checks a serialized request of the stripper's type. Its tensors then hold tickets: indices into
// the returned ranges. RESOURCE_EXHAUSTED above kMaxStrippedBytes.
absl::StatusOr<std::vector<ByteRange>> ParseRequest(const Stripper& stripper,
                                                    google::protobuf::io::ZeroCopyInputStream* input,
                                                    google::protobuf::Message* request);

}  // namespace posenc::wire

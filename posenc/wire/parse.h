// The one way from a request's bytes to a message that may be acted on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message.h"
#include "posenc/wire/walker.h"

namespace posenc::wire {

// Of a request, beside the tensors' data: config.json files, frequencies, segments.
inline constexpr size_t kMaxStrippedBytes = size_t{8} << 20;

// Parses what was stripped (walker.h) and checks for what is unknown. INVALID_ARGUMENT names the message. has_regions
// as in RejectUnknown (strict.h).
absl::Status ParseStripped(const std::string& stripped, google::protobuf::Message* request,
                           bool* has_regions = nullptr);

// The same of a request of the stripper's type as it came. Its tensors hold tickets into the ranges returned.
absl::StatusOr<std::vector<ByteRange>> ParseRequest(const Stripper& stripper,
                                                    google::protobuf::io::ZeroCopyInputStream* input,
                                                    google::protobuf::Message* request);

}  // namespace posenc::wire

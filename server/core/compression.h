// gzip and zlib: what callers have compressed, and what they take compressed.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace posenc::server {

// True if the bytes begin as gzip's do. No message of protobuf begins so: there is no wire type 7.
bool IsGzip(absl::Span<const std::byte> bytes);

// Reads gzip (RFC 1952) or zlib (RFC 1950) to its end. Returns INVALID_ARGUMENT naming `field` if it is malformed or
// goes on behind its end, and RESOURCE_EXHAUSTED once there are more than `most` bytes. `go_on` is asked for each 64
// KiB of what is read and each MiB of what it becomes.
absl::StatusOr<std::string> Inflate(google::protobuf::io::ZeroCopyInputStream* compressed, size_t most,
                                    std::string_view field, const std::function<absl::Status()>& go_on);

// Compresses with gzip, fast rather than small. nullopt without memory for that.
std::optional<std::string> Gzip(const std::string& text);

}  // namespace posenc::server

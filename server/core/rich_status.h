// Conversion of the library's errors to messages.
#pragma once

#include "absl/status/status.h"
#include "posenc/v1/error.pb.h"

namespace posenc::server {

// Converts a status, with the ErrorInfo that proto/posenc/v1/error.proto promises. `started`: work on the request had
// begun. The message is ASCII and at most 1 KiB: if a status exceeds about 8 KB, gRPC clients see a different error.
v1::RichStatus ToRich(const absl::Status& status, bool started);

}  // namespace posenc::server

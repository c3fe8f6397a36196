// The library's errors as messages.
#pragma once

#include "absl/status/status.h"
#include "posenc/v1/error.pb.h"

namespace posenc::server {

// With the ErrorInfo that proto/posenc/v1/error.proto promises. `started` says whether work on the request had begun.
// The message is ASCII and at most 1 KiB: beyond about 8 KB of status, gRPC's clients see another error.
v1::RichStatus ToRich(const absl::Status& status, bool started);

}  // namespace posenc::server

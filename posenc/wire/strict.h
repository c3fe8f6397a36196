// Rejects request contents that proto3 would silently ignore.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace posenc::wire {

// Returns INVALID_ARGUMENT for an unknown field (UNKNOWN_FIELD, field = path of the message that holds it) or an
// unknown enum value (UNKNOWN_VALUE, field = its path, e.g. "mask.fill_kind"), anywhere but in a posenc.v1.CallHints,
// which cannot change a byte of the answer. A newer client's field must not be ignored: its answer would be wrong with
// status OK.
//
// If `has_regions` is null, regions are refused too (UNSUPPORTED); else it is set to true if there are any.
absl::Status RejectUnknown(const google::protobuf::Message& message, bool* has_regions = nullptr);

}  // namespace posenc::wire

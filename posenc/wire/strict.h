// What proto3 would drop in silence.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace posenc::wire {

// INVALID_ARGUMENT for an unknown field (UNKNOWN_FIELD, field = path of the message that holds it) or an unknown enum
// value (UNKNOWN_VALUE, field = its path, as "mask.fill_kind"), anywhere but in a posenc.v1.CallHints, which holds
// nothing that can change a byte of the answer. A newer client's field must not be dropped: its answer would be wrong
// with status OK.
//
// Regions are refused too (UNSUPPORTED), unless `has_regions` is given: it is set to true if there are any.
absl::Status RejectUnknown(const google::protobuf::Message& message, bool* has_regions = nullptr);

}  // namespace posenc::wire

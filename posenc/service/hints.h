// The hints of a request (CallHints), wherever its message has them.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "posenc/service/devices.h"
#include "posenc/v1/info.pb.h"

namespace posenc::wire {

// The hints in a request's message, or one level down (StreamTableRequest.table). Null if it has none.
const v1::CallHints* HintsOf(const google::protobuf::Message& request);

// Returns INVALID_ARGUMENT for hints that no call may have. Calls that do not read a hint check it too, so that a wrong
// one is found wherever it is given. `devices`: null if there is only the CPU.
absl::Status CheckHints(const google::protobuf::Message& request, const Devices* devices);

}  // namespace posenc::wire

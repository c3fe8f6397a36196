// Hashes a message that may have large tensors.
#pragma once

#include "google/protobuf/message_lite.h"
#include "posenc/base/fingerprint.h"

namespace posenc::wire {

// Adds the serialized message as one text, without a copy of it. Has interruption points.
void AddMessage(const google::protobuf::MessageLite& message, Fingerprint& fingerprint);

}  // namespace posenc::wire

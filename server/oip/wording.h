// Errors of a posenc.v1 request in the words of the Open Inference Protocol.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "server/oip/encodings.h"

namespace posenc::server {

// Returns the error of a request of this encoding with the protocol's names in its fields and its limit. `request` is
// the typed request: of several inputs and parameters that a field stands for, the one that it has is named.
absl::Status InWordsOf(const Encoding& encoding, const google::protobuf::Message& request, const absl::Status& status);

}  // namespace posenc::server

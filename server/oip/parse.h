// Parsing of the requests of the Open Inference Protocol.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace posenc::server {

// Maximum number of entries of each kind in a request: of inputs, of parameters of its inputs, and so on. A legal one
// has some twenty.
inline constexpr int kMostEntries = 256;

// Parses a request of the package inference. RESOURCE_EXHAUSTED above kMostEntries, before memory is allocated for
// them: an empty input takes two bytes of a request and 200 of memory. INVALID_ARGUMENT if it is malformed, or the
// message itself has an unknown field.
absl::Status ParseInference(const std::string& serialized, google::protobuf::Message* request);

}  // namespace posenc::server

// Evidence of diagnoses. Random tensors follow no encoding, so a diagnosis of them ends before most of its code. This
// evidence is computed by the server, in half of the cases by other settings than the expected ones, or only in parts.
#pragma once

#include <functional>

#include "google/protobuf/message.h"
#include "tests/fuzz/random.h"

namespace posenc::fuzz {

// Serves the RPC that has such requests. Returns false if the call fails.
using Answer = std::function<bool(const google::protobuf::Message& request, google::protobuf::Message* response)>;

// Changes the evidence of a DiagnoseRequest or a DiagnoseBiasRequest. Does nothing to other messages, or if the
// settings cannot be computed.
void ComputeEvidence(const Answer& answer, google::protobuf::Message* message, Random& random);

}  // namespace posenc::fuzz

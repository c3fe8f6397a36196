// From a ModelInferRequest to the request of posenc.v1 that it stands for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "inference/service.pb.h"
#include "posenc/service/operations.h"
#include "posenc/wire/payloads.h"
#include "server/oip/models.h"
#include "server/oip/named_memory.h"

namespace posenc::server {

// The server and the caller, as far as the reading of a request depends on them.
struct InferContext {
  const Models& models;
  const NamedMemory& memory;
  std::string scope;  // of the caller's names of shared memory; empty: it is not on this host
  // Adds a tensor's bytes to the request's payloads and returns its ticket.
  std::function<std::string(std::string bytes)> add_bytes;
  int64_t most_values;  // in settings; ReadInferRequest() returns WouldBlock() for more
};

// Returns UNKNOWN_FIELD for an unknown field of one of the request's tensors.
absl::Status RejectUnknownFieldsOfTensors(const inference::ModelInferRequest& request);

// Returns the model that the request names. NOT_FOUND if there is no such model or version, UNAVAILABLE if it cannot be
// served.
absl::StatusOr<std::shared_ptr<const Model>> ModelOf(const Models& models, const std::string& name,
                                                     const std::string& version);

// Fills `typed`, the request of the model's encoding. The request is stripped: raw_input_contents are tickets. Sets
// *has_regions if a tensor is in shared memory. Errors are INVALID_ARGUMENT, and NOT_FOUND for an unknown region; they
// name the input or the parameter.
absl::Status ReadInferRequest(const inference::ModelInferRequest& request, const Model& model,
                              const InferContext& context, google::protobuf::Message* typed, bool* has_regions);

// Puts the outputs that the request wants in shared memory there: sets their regions in the answer and in the request.
// `outputs` are of `response`. INVALID_ARGUMENT if a region is too small. Sets *has_regions if there are any.
absl::Status PlaceOutputs(const inference::ModelInferRequest& request, const Encoding& encoding,
                          const InferContext& context, const google::protobuf::Message& response,
                          const std::vector<wire::Output>& outputs, google::protobuf::Message* typed,
                          bool* has_regions);

}  // namespace posenc::server

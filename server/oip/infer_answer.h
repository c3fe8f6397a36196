// Layout of ModelInferResponse: the tensors of an answer of posenc.v1, computed in place as raw_output_contents.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "inference/service.pb.h"
#include "posenc/service/operations.h"
#include "posenc/wire/answer.h"
#include "server/oip/models.h"

namespace posenc::server {

// kInStream: the response is in a ModelStreamInferResponse, and says that it is final if the request asks for it.
enum class InferRpc { kUnary, kInStream };

// Lays out a response without its id: the outputs that the request wants, in its order; all of them if it names none.
// `outputs` are of `response`. Leaves out a wanted k if there is no input k, as Triton's backends do: perf_analyzer
// names all outputs of a model. INVALID_ARGUMENT if none is left.
absl::StatusOr<wire::Answer> LayOutInfer(const inference::ModelInferRequest& request, const Model& model,
                                         const google::protobuf::Message& response,
                                         const std::vector<wire::Output>& outputs, InferRpc rpc);

// Returns the tag and length of a length-delimited field of a serialized message.
std::string Delimited(int number, size_t length);

// Maximum length of a request's id, which answers and errors repeat.
inline constexpr size_t kMostIdBytes = 256;
// Removes the id from a serialized ModelInferRequest and returns it; leaves it there if it is longer, or not printable
// ASCII.
std::string TakeId(std::string* request);
// Adds the id to a response. The second also puts that into a ModelStreamInferResponse.
wire::Answer WithId(const wire::Answer& response, const std::string& id);
wire::Answer WithIdInStream(const wire::Answer& response, const std::string& id);

}  // namespace posenc::server

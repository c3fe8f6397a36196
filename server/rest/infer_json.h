// Requests of ModelInfer over HTTP: JSON, with tensors' elements in it or, by the binary tensor data extension, behind
// it. They become requests of inference.GRPCInferenceService.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/http/message.h"

namespace posenc::server {

// Maximum size of a request's JSON.
inline constexpr size_t kMostJsonBytes = size_t{8} << 20;

// How a request wants its outputs.
enum class OutputForm { kJson, kBinary, kSharedMemory };
struct OutputForms {
  OutputForm otherwise = OutputForm::kJson;                // of outputs that the request does not name
  std::map<std::string, OutputForm, std::less<>> outputs;  // by name

  OutputForm Of(std::string_view name) const {
    const auto found = outputs.find(name);
    return found == outputs.end() ? otherwise : found->second;
  }
  bool HasJson() const {
    if (outputs.empty()) return otherwise == OutputForm::kJson;
    return std::any_of(outputs.begin(), outputs.end(), [](const auto& one) { return one.second == OutputForm::kJson; });
  }
};

struct InferJson {
  grpc::ByteBuffer request;  // a ModelInferRequest, whose raw_input_contents share the body
  OutputForms forms;
};

// Reads the body of a request for a model. `json_bytes`: the first bytes of the body, which are JSON; binary tensors
// are behind them, in the order of the inputs. INVALID_ARGUMENT names the place in the JSON; RESOURCE_EXHAUSTED above
// kMostJsonBytes, or 10,000 values that are not elements. What a ModelInferRequest can hold is not checked further.
absl::StatusOr<InferJson> ReadInferJson(std::string_view model_name, std::string_view model_version,
                                        const SharedBytes& body, size_t json_bytes);

}  // namespace posenc::server

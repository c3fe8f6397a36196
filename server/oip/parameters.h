// Parameters of the Open Inference Protocol as fields of a posenc.v1 request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/map.h"
#include "google/protobuf/message.h"
#include "inference/service.pb.h"
#include "server/oip/encodings.h"

namespace posenc::server {

using InferParameters = google::protobuf::Map<std::string, inference::InferParameter>;

// Sets the field of each parameter. Names of enum values may lack the enum's prefix and be in lower case. `other` is
// asked about parameters that stand for no field: false if it does not know them either. Those that Triton's and
// KServe's clients set, and that change no byte of an answer here, are ignored. Errors name the parameter, after
// `where`: INVALID_ARGUMENT for one that is unknown, has another type, or contradicts another one.
absl::Status SetParameters(std::string_view where, const InferParameters& given,
                           const std::vector<ParameterField>& fields,
                           absl::FunctionRef<bool(const std::string& name)> other, google::protobuf::Message* request);

// Values of single parameters; MISMATCH if it has another type. 0 and "" if it is absent.
absl::StatusOr<int64_t> IntegerOf(std::string_view where, const InferParameters& given, const std::string& name);
absl::StatusOr<std::string> TextOf(std::string_view where, const InferParameters& given, const std::string& name);

}  // namespace posenc::server

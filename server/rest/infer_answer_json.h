// Answers of ModelInfer over HTTP: JSON, with outputs' elements in it or, by the binary tensor data extension, behind
// it.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/http/message.h"
#include "server/rest/infer_json.h"

namespace posenc::server {

// Maximum size of the elements of all outputs in JSON.
inline constexpr size_t kMostJsonElementBytes = size_t{8} << 20;

// Translates a ModelInferResponse. Its raw_output_contents stay where they are. INVALID_ARGUMENT names an output that
// JSON cannot hold: one of FP16 or BF16, infinite or NaN elements, or more than kMostJsonElementBytes.
absl::StatusOr<HttpAnswer> WriteInferJson(const grpc::ByteBuffer& response, const OutputForms& forms);

}  // namespace posenc::server

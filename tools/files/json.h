// JSON of answers: proto3's mapping with the field names of the proto files, except for tensors, which become
//   {"dtype": "DATA_TYPE_FP32", "shape": [2, 2], "data": [1, 0.5, "NaN", "-Infinity"]}
// The elements are decimals in row-major order: the shortest that parse back to the same bits of the element's type
// (except NaN payloads), as proto3 writes its own floats. BOOL is false or true.
#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc {

// Returns several lines that end with a newline. Tensors are supported as direct fields of `message` only. Returns
// INVALID_ARGUMENT if the size of a tensor's data does not match its type and shape.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message);

// Parses proto3's JSON. Errors are INVALID_ARGUMENT; their message is one line, without the parser's picture of the
// place.
absl::Status FromJson(const std::string& json, google::protobuf::Message* message);

// Returns one tensor in the format above, on one line.
absl::StatusOr<std::string> TensorToJson(const v1::Tensor& tensor);

}  // namespace posenc

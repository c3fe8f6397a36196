// Answers as JSON: proto3's mapping with the field names of the proto files, but for tensors, which become
//   {"dtype": "DATA_TYPE_FP32", "shape": [2, 2], "data": [1, 0.5, "NaN", "-Infinity"]}
// with the elements as decimals, row-major: the shortest that read back to the same bits of the element's type (NaN's
// payload excepted), as proto3 does with its own floats. BOOL is false or true.
#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "absl/status/statusor.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc {

// Several lines, ending with a newline. `message` is not changed; its tensors are only expected as direct fields.
// INVALID_ARGUMENT where a tensor's data are not as long as its type and shape say.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message);

// One tensor, as above, on one line.
absl::StatusOr<std::string> TensorToJson(const v1::Tensor& tensor);

}  // namespace posenc

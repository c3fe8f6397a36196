// Element types of the Open Inference Protocol, and tensors' elements that are not raw bytes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "inference/service.pb.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::server {

// Returns the type of this name, e.g. "FP32". INVALID_ARGUMENT, listing `accepted`, for one that is not among them.
absl::StatusOr<v1::DataType> DataTypeOf(const std::string& field, const std::string& name,
                                        const std::vector<std::string>& accepted);
// The name of a type; the type must not be DATA_TYPE_UNSPECIFIED.
std::string NameOf(v1::DataType type);
// The type of this name in a model's configuration.
inference::DataType ConfigTypeOf(const std::string& name);

// Returns the elements as little-endian bytes. INVALID_ARGUMENT unless they are in the type's own field: FP16 and BF16
// have none, and must be raw.
absl::StatusOr<std::string> BytesOf(const std::string& input, v1::DataType type,
                                    const inference::InferTensorContents& contents);

}  // namespace posenc::server

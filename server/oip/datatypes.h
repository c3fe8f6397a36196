// Element types of the Open Inference Protocol, and tensors' elements that are not raw bytes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "inference/service.pb.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::server {

// Returns the type of this name, e.g. "FP32". INVALID_ARGUMENT for one that posenc does not have.
absl::StatusOr<v1::DataType> DataTypeOf(const std::string& field, const std::string& name);
// The name of a type; the type must not be DATA_TYPE_UNSPECIFIED.
std::string NameOf(v1::DataType type);
// The type of this name in a model's configuration.
inference::DataType ConfigTypeOf(const std::string& name);

// Returns the elements as little-endian bytes. INVALID_ARGUMENT unless they are in the type's own field: FP16 and BF16
// have none, and must be raw.
absl::StatusOr<std::string> BytesOf(const std::string& input, v1::DataType type,
                                    const inference::InferTensorContents& contents);

}  // namespace posenc::server

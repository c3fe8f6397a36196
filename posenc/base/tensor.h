// Tensor shapes and their validation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/dtype.h"
#include "posenc/base/limits.h"

namespace posenc {

struct TensorShape {
  DType dtype = DType::kFP32;
  std::vector<int64_t> shape;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  bool empty() const { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }
};

// Returns the tensor's size in bytes. INVALID_ARGUMENT naming `field` if the rank or a dimension is above its limit, a
// dimension is negative, or the byte count needs more than 63 bits (dimensions of 0 count as 1 in that check).
absl::StatusOr<int64_t> ByteSize(std::string_view field, const TensorShape& tensor, const Limits& limits);

// Checks the shape of a tensor that a request declares, as ByteSize() does. A tensor of no bytes must also fit
// max_request_bytes with 1 in place of each 0: nothing else bounds the work that its other dimensions cause.
absl::Status CheckDeclared(std::string_view field, const TensorShape& tensor, const Limits& limits);

// Checks a number of tokens, positions or rows: 0 .. max_dimension, else INVALID_ARGUMENT naming `field`.
absl::Status CheckCount(std::string_view field, int64_t count, const Limits& limits);

// Returns RESOURCE_EXHAUSTED if an answer of `bytes` bytes exceeds max_output_bytes.
absl::Status CheckOutput(int64_t bytes, const Limits& limits);

// Formats a shape as "[2, 3, 4]".
std::string ToString(const std::vector<int64_t>& shape);

}  // namespace posenc

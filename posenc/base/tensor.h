// Shapes, checked once where they enter.
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

// The tensor's bytes. INVALID_ARGUMENT naming `field`: rank above the limit, a negative dimension, a product that does
// not fit 63 bits (dimensions of 0 do not hide it).
absl::StatusOr<int64_t> ByteSize(std::string_view field, const TensorShape& tensor, const Limits& limits);

// RESOURCE_EXHAUSTED if an answer of that many bytes is above the limit.
absl::Status CheckOutput(int64_t bytes, const Limits& limits);

// "[2, 3, 4]".
std::string ToString(const std::vector<int64_t>& shape);

}  // namespace posenc

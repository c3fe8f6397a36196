#include "tools/files/tensor_header.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace posenc {

TensorHeader HeaderOf(const std::string& name, const v1::Tensor& tensor) {
  return {name, tensor.dtype(), {tensor.shape().begin(), tensor.shape().end()}};
}

uint64_t ElementSize(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FP64:
    case v1::DATA_TYPE_INT64: return 8;
    case v1::DATA_TYPE_FP32:
    case v1::DATA_TYPE_INT32: return 4;
    case v1::DATA_TYPE_FP16:
    case v1::DATA_TYPE_BF16: return 2;
    case v1::DATA_TYPE_BOOL: return 1;
    default: return 0;
  }
}

absl::StatusOr<uint64_t> ByteSize(const TensorHeader& header) {
  // A zero dimension makes the tensor empty, however large the others are; they must still be valid.
  uint64_t size = ElementSize(header.dtype);
  bool empty = false;
  for (int64_t dimension : header.shape) {
    empty = empty || dimension == 0;
    if (dimension < 0 || (dimension > 0 && __builtin_mul_overflow(size, static_cast<uint64_t>(dimension), &size)) ||
        size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return absl::InvalidArgumentError(absl::StrCat("shape [", absl::StrJoin(header.shape, ", "),
                                                     "] has a negative dimension or 2^63 bytes or more"));
    }
  }
  return empty ? 0 : size;
}

}  // namespace posenc

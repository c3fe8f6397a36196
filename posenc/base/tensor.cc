#include "posenc/base/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "posenc/base/status.h"

namespace posenc {

absl::StatusOr<int64_t> ByteSize(std::string_view field, const TensorShape& tensor, const Limits& limits) {
  if (tensor.rank() > limits.max_tensor_rank) {
    return InvalidArgument("OUT_OF_RANGE", fmt::format("{}.shape", field), fmt::format("of rank {}", tensor.rank()),
                           fmt::format("must be of rank at most {}", limits.max_tensor_rank));
  }
  int64_t bytes = static_cast<int64_t>(SizeOf(tensor.dtype));
  bool empty = false;
  for (int64_t n = 0; n < tensor.rank(); ++n) {
    const int64_t size = tensor.shape[n];
    if (size < 0) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}.shape[{}]", field, n), fmt::format("{}", size),
                             "must be at least 0");
    }
    empty = empty || size == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}.shape", field), ToString(tensor.shape),
                             "must be below 2^63 in bytes");
    }
  }
  return empty ? 0 : bytes;
}

absl::Status CheckOutput(int64_t bytes, const Limits& limits) {
  if (bytes <= limits.max_output_bytes) return absl::OkStatus();
  return TooLarge("answer", fmt::format("{} bytes of tensors", bytes),
                  fmt::format("must be at most {} (max_output_bytes)", limits.max_output_bytes));
}

std::string ToString(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace posenc

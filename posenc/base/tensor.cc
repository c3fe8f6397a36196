#include "posenc/base/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "posenc/base/status.h"

namespace posenc {

namespace {

// The tensor's size in bytes with 1 in place of each 0.
absl::StatusOr<int64_t> SizeWithoutZeros(std::string_view field, const TensorShape& tensor, const Limits& limits) {
  if (tensor.rank() > limits.max_tensor_rank) {
    return InvalidArgument("OUT_OF_RANGE", fmt::format("{}.shape", field), fmt::format("of rank {}", tensor.rank()),
                           fmt::format("must be of rank at most {}", limits.max_tensor_rank));
  }
  auto bytes = static_cast<int64_t>(SizeOf(tensor.dtype));
  for (int64_t n = 0; n < tensor.rank(); ++n) {
    const int64_t size = tensor.shape[n];
    if (size < 0 || size > limits.max_dimension) return CheckCount(fmt::format("{}.shape[{}]", field, n), size, limits);
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}.shape", field), ToString(tensor.shape),
                             "must be below 2^63 in bytes");
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<int64_t> ByteSize(std::string_view field, const TensorShape& tensor, const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(const int64_t bytes, SizeWithoutZeros(field, tensor, limits));
  return tensor.empty() ? 0 : bytes;
}

absl::Status CheckDeclared(std::string_view field, const TensorShape& tensor, const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(const int64_t bytes, SizeWithoutZeros(field, tensor, limits));
  if (!tensor.empty() || bytes <= limits.max_request_bytes) return absl::OkStatus();
  return InvalidArgument(
      "OUT_OF_RANGE", fmt::format("{}.shape", field), ToString(tensor.shape),
      fmt::format("must be at most {} bytes (max_request_bytes) with 1 in place of each 0", limits.max_request_bytes));
}

absl::Status CheckCount(std::string_view field, int64_t count, const Limits& limits) {
  if (count >= 0 && count <= limits.max_dimension) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{}", count),
                         fmt::format("must be 0 .. {} (max_dimension)", limits.max_dimension));
}

absl::Status CheckOutput(int64_t bytes, const Limits& limits) {
  if (bytes <= limits.max_output_bytes) return absl::OkStatus();
  return TooLarge("answer", fmt::format("{} bytes of tensors", bytes),
                  fmt::format("must be at most {} (max_output_bytes)", limits.max_output_bytes));
}

std::string ToString(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace posenc

#include "posenc/relative/head_rows.h"

#include <fmt/format.h>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"

namespace posenc {

absl::StatusOr<HeadRows> HeadRows::Of(std::string_view field, const TensorShape& tensor, Layout layout,
                                      const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckDataType(fmt::format("{}.dtype", field), tensor.dtype));
  const bool by_token = layout == Layout::kBSHD;
  if (tensor.rank() != 4) {
    return InvalidArgument("MISMATCH", fmt::format("{}.shape", field), ToString(tensor.shape),
                           by_token ? "must be [B, S, H, d]" : "must be [B, H, S, d]");
  }
  POSENC_RETURN_IF_ERROR(ByteSize(field, tensor, limits).status());
  const auto& shape = tensor.shape;
  HeadRows rows{tensor.dtype, shape[0], shape[by_token ? 2 : 1], shape[by_token ? 1 : 2], shape[3]};
  if (rows.heads > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", fmt::format("{}.shape[{}]", field, by_token ? 2 : 1),
                           fmt::format("{}", rows.heads),
                           fmt::format("must be at most {} heads (max_heads)", limits.max_heads));
  }
  rows.token_stride = by_token ? rows.heads * rows.dim : rows.dim;
  rows.head_stride = by_token ? rows.dim : rows.tokens * rows.dim;
  return rows;
}

size_t HeadRows::At(int64_t b, int64_t head, int64_t token) const {
  return (b * tokens * heads * dim + head * head_stride + token * token_stride) * SizeOf(dtype);
}

void HeadRows::Load(const std::byte* data, int64_t b, int64_t head, int64_t token, int64_t count, float* out) const {
  if (token_stride == dim) return Convert(dtype, DType::kFP32, data + At(b, head, token), out, count * dim);
  for (int64_t n = 0; n < count; ++n) {
    Convert(dtype, DType::kFP32, data + At(b, head, token + n), out + n * dim, dim);
  }
}

}  // namespace posenc

// View of a tensor [B, S, H, d] or [B, H, S, d] as rows of d channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/tensor.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct HeadRows {
  DType dtype = DType::kFP32;
  int64_t batch = 0, heads = 0, tokens = 0, dim = 0;
  int64_t token_stride = 0, head_stride = 0;  // elements

  // INVALID_ARGUMENT unless the tensor is FP32, FP16 or BF16 and has four axes.
  static absl::StatusOr<HeadRows> Of(std::string_view field, const TensorShape& tensor, Layout layout,
                                     const Limits& limits);

  // Byte offset of a token's row.
  size_t At(int64_t b, int64_t head, int64_t token) const;
  // Writes the rows of `count` tokens from `token` on to `out`, contiguous, as float32.
  void Load(const std::byte* data, int64_t b, int64_t head, int64_t token, int64_t count, float* out) const;
};

}  // namespace posenc

// A tensor of tokens and heads, [B, S, H, d] or [B, H, S, d], seen as rows of d channels.
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

  // FP32, FP16 or BF16.
  static absl::StatusOr<HeadRows> Of(std::string_view field, const TensorShape& tensor, Layout layout,
                                     const Limits& limits);

  // The byte at which the row of a token starts.
  size_t At(int64_t b, int64_t head, int64_t token) const;
  // So many tokens' rows from `token` on as float32, one after another.
  void Load(const std::byte* data, int64_t b, int64_t head, int64_t token, int64_t count, float* out) const;
};

}  // namespace posenc

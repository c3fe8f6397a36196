// Primitive: multiplies elements of head rows by a factor of their token, in place.
#pragma once

#include <cstddef>

#include "posenc/base/dtype.h"

namespace posenc {

struct RowScaling {
  DType dtype;           // element type of y: FP32, FP16 or BF16
  size_t elements;       // of each head row, from y on
  const float* factors;  // [tokens], finite
  std::byte* y;
  size_t tokens, heads;
  size_t token_stride;  // bytes from one token's first head row to the next token's
  size_t head_stride;   // bytes from one head row to the next of the same token
};

// y = y * factor, a float32 product rounded once to y's type. Tokens whose factor is 1 are left as they are.
// Thread-safe for disjoint rows. No alignment needed. Same bytes on every CPU target, except for NaN payloads. Aborts
// on other dtypes.
void ScaleRows(const RowScaling& work);

}  // namespace posenc

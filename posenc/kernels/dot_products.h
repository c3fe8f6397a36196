// Primitive: products of rows with columns, the same bytes on every processor.
//
//   out[r, i] = sum over c = 0 .. depth-1, in this order, of rows[r, c] * columns[c, i]
//
// in float64. The columns hold float32 numbers, so that each product is exact, and a fused multiply-add gives the same
// as a product and a sum: processors with and without it agree.
#pragma once

#include <cstddef>

namespace posenc {

struct DotProducts {
  const float* rows;  // [row_count, depth]
  size_t row_stride;  // elements from one row to the next
  size_t row_count;
  size_t depth;
  const double* columns;  // [depth, width], float32 numbers
  size_t width;
  double* out;  // [row_count, width]
};

// Thread-safe for disjoint outputs.
void Run(const DotProducts& work);

}  // namespace posenc

// Primitive: matrix product of rows and columns, with the same bytes on every processor.
//
//   out[r, i] = sum over c = 0 .. depth-1, in this order, of rows[r, c] * columns[c, i]
//
// in float64. Rows and columns hold float32 numbers, so each product is exact and a fused multiply-add equals a product
// and a sum: processors with and without FMA agree.
#pragma once

#include <cstddef>

namespace posenc {

struct DotProducts {
  const float* rows;  // [row_count, depth]
  size_t row_stride;  // elements from one row to the next
  size_t row_count;
  size_t depth;
  const double* columns;  // [depth, width], row-major; values must be float32 numbers
  size_t width;
  double* out;  // [row_count, width]
};

// Computes all of `out`, with interruption points between millions of products. Thread-safe for disjoint outputs.
void ComputeDotProducts(const DotProducts& work);

}  // namespace posenc

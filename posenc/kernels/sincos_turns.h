// Primitive: cosines and sines of a sum of products, in turns or radians: angle = 2 pi sum_j factor_j point_j, or the
// sum itself, as if in infinite precision, rounded once to `dtype`.
//
// The fast path is float64 arithmetic with a proven error bound. MPFR computes the entries that it cannot decide, in
// some microseconds each: about one in a hundred million, all of FP64, and sums of |products| of 2^50 or more (radians:
// 2^20).
#pragma once

#include <cstddef>

#include "posenc/base/dtype.h"

namespace posenc {

struct SinCosTurns {
  DType dtype;            // FP32, FP16, BF16 or FP64
  const double* factors;  // [pairs, terms], row-major, finite
  const double* point;    // [terms], finite
  size_t pairs;
  size_t terms;
  std::byte* cos;  // [pairs] of dtype; no alignment needed
  std::byte* sin;  // [pairs]
  bool radians = false;
};

// Computes all of cos and sin. Gives the same bytes on every CPU target. A value of exactly zero is +0.
void ComputeSinCosTurns(const SinCosTurns& work);

}  // namespace posenc

// Error-free transformations and arithmetic on unevaluated sums hi + lo of two doubles, as
// posenc/kernels/double_double-inl.h has them in lanes.
#pragma once

#include <math.h>

#include "cuda/elements/element.h"
#include "posenc/kernels/sincos_constants.h"

namespace posenc::cuda {

// a + b exactly (Knuth).
POSENC_ELEMENT DoubleDouble TwoSum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// The same where |a| >= |b| or a = 0 (Dekker).
POSENC_ELEMENT DoubleDouble FastTwoSum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// a * b exactly, if nothing overflows and |a * b| > 2^-960.
POSENC_ELEMENT DoubleDouble TwoProduct(double a, double b) {
  const double product = a * b;
  return {product, fma(a, b, -product)};
}

// With a relative error below 2^-103, if |lo| <= 2^-51 |hi|. The result's parts may overlap by a few bits.
POSENC_ELEMENT DoubleDouble Multiply(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = TwoProduct(a.hi, b.hi);
  return {product.hi, fma(a.hi, b.lo, fma(a.lo, b.hi, product.lo))};
}

}  // namespace posenc::cuda

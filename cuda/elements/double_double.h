// Error-free transformations and arithmetic on unevaluated sums hi + lo of two doubles: the scalar version of
// posenc/kernels/double_double-inl.h.
#pragma once

#include <math.h>

#include "cuda/elements/element.h"
#include "posenc/kernels/sincos_constants.h"

namespace posenc::cuda {

// TwoSum (Knuth): hi + lo = a + b exactly.
POSENC_ELEMENT DoubleDouble TwoSum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// TwoSum for |a| >= |b| or a = 0 (Dekker, Fast2Sum).
POSENC_ELEMENT DoubleDouble FastTwoSum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// TwoProduct: hi + lo = a * b exactly, if nothing overflows and |a * b| > 2^-960.
POSENC_ELEMENT DoubleDouble TwoProduct(double a, double b) {
  const double product = a * b;
  return {product, fma(a, b, -product)};
}

// Product with a relative error below 2^-103, if |lo| <= 2^-51 |hi|. The result's parts may overlap by a few bits.
POSENC_ELEMENT DoubleDouble Multiply(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = TwoProduct(a.hi, b.hi);
  return {product.hi, fma(a.hi, b.lo, fma(a.lo, b.hi, product.lo))};
}

}  // namespace posenc::cuda

// Rows of cosines and sines times xPos's scale.
#pragma once

#include "posenc/kernels/sincos_rows.h"
#include "posenc/methods/rope/xpos.h"

namespace posenc {

// All rows of `work`, its entries times zeta^((p - centre) / scale_base), or divided by it:
//
//   kExact             scale * cos * a as if in infinite precision, rounded once. FP64 tables come from MPFR alone.
//   kFloat32, kFloat64 the type's own power, for k its reciprocal (`reciprocal`: what the libraries multiply by); times
//                      cos * a of that type (divided by, where work.divide), rounded; then rounded to work.dtype. An
//                      entry of 0 stays 0.
void RunWithXpos(const SinCosRows& work, const XposPlan& xpos, bool reciprocal);

}  // namespace posenc

// Rows of cosines and sines times xPos's scale.
#pragma once

#include "posenc/kernels/sincos_rows.h"
#include "posenc/methods/rope/xpos.h"

namespace posenc {

// Computes all rows of `work`, with its entries multiplied or divided by zeta^((p - centre) / scale_base):
//
//   kExact             scale * cos * a as if in infinite precision, rounded once. FP64 tables come from MPFR alone.
//   kFloat32, kFloat64 the power in that type, or its reciprocal for k (`reciprocal`, as in the libraries); cos * a in
//                      that type is multiplied by it (divided if work.divide) and rounded, then rounded to work.dtype.
//                      An entry of 0 stays 0.
void RunWithXpos(const SinCosRows& work, const XposPlan& xpos, bool reciprocal);

}  // namespace posenc

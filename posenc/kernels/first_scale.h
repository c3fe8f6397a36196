// What the first rounded values of a table are multiplied by (sincos_rows.h): the CPU's kernel and the device's
// elements take it from here.
#pragma once

#include <cmath>

#include "posenc/kernels/sincos_constants.h"

namespace posenc {

struct FirstScale {
  DoubleDouble scale = {1.0, 0.0};
  bool in_range = true;  // else the fast path's bounds do not hold
};

// a, or 1/a, to twice a double's precision: of the recipes whose first rounding has the scale in it.
inline FirstScale FirstScaleOf(double a, bool divide) {
  FirstScale first{{a, 0.0}};
  if (divide) {
    first.scale.hi = 1.0 / a;
    first.scale.lo = std::fma(-first.scale.hi, a, 1.0) / a;
  }
  const double magnitude = std::abs(first.scale.hi);
  first.in_range = magnitude >= 0x1p-300 && magnitude <= 0x1p300;
  return first;
}

}  // namespace posenc

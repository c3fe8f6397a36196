// Scale factor that the first rounding of a cos/sin table includes (sincos_rows.h). Shared by the CPU kernel and the
// CUDA code.
#pragma once

#include <cmath>

#include "posenc/kernels/sincos_constants.h"

namespace posenc {

struct FirstScale {
  DoubleDouble scale = {1.0, 0.0};
  bool in_range = true;  // 2^-300 <= |scale| <= 2^300; else the fast path's bounds do not hold
};

// Returns a, or 1/a if `divide`, in double-double, for recipes whose first rounding includes the scale.
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

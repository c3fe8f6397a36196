// Primitive: rows of cosines and sines, each times a power of its column's base:
//
//   a * cos(p * f) * base^((p - centre) / scale_base), and the sine likewise, as if in infinite precision, rounded
//   once.
//
// Everything is computed in double with a proven error bound (docs/exact-tables.md, "xPos"). The caller computes the
// entries that this cannot decide: of FP32 about one in four million, and all whose power is not within e^-400 .. e^400
// or that sincos_rows.h leaves to MPFR. The bytes are the same on every CPU target.
#pragma once

#include <functional>

#include "posenc/kernels/sincos_rows.h"
#include "posenc/kernels/sincos_slow.h"

namespace posenc {

struct SinCosPowers {
  SinCosRows rows;         // kExact, to FP32, FP16 or BF16; finite positions
  const double* log_base;  // [pairs], the natural logarithms, each with a relative error of at most 2^-53
  double centre;
  double scale_base;
};

// The correctly rounded entries of a row and a column.
using SlowPower = std::function<CosSin(size_t row, size_t pair)>;

void ComputeSinCosPowers(const SinCosPowers& work, const SlowPower& slow);

}  // namespace posenc

// Primitive: a row of cosines and sines, each times a power of its column's base:
//
//   a * cos(position * inv_freq) * base^exponent, and the sine likewise, as if in infinite precision, rounded once.
//
// Everything is computed in double with a proven error bound (docs/exact-tables.md, "xPos"). Entries that this cannot
// decide are left to the caller: of FP32 about one in four million, and all whose base^exponent is not within
// e^-400 .. e^400 or that sincos_rows.h leaves to MPFR. A decided entry has the same bytes on every CPU target.
#pragma once

#include <cstddef>
#include <vector>

#include "posenc/base/dtype.h"
#include "posenc/kernels/first_scale.h"

namespace posenc {

struct SinCosPowers {
  DType dtype;             // FP32, FP16 or BF16
  const double* inv_freq;  // [pairs], finite
  const double* log_base;  // [pairs], the natural logarithms, each with a relative error of at most u = 2^-53
  size_t pairs;
  FirstScale scale;  // a
};

// Fills cos and sin, [pairs] of dtype, for one position, which must be finite, and an exponent with a relative error of
// at most 2u. Replaces `unproven` by the columns with an entry that is not decided; both entries there are arbitrary.
void ComputeSinCosPowers(const SinCosPowers& row, double position, double exponent, void* cos, void* sin,
                         std::vector<size_t>& unproven);

}  // namespace posenc

// Primitive: rows of cosines and sines, angle = position * inv_freq, correctly rounded. With from_positions, the angle
// is the difference position * inv_freq - from_position * from_inv_freq (kExact only).
//
// Three recipes (docs/accuracy.md); "rounded" is to nearest, ties to even, always done correctly:
//   kExact    cos(p * f) * a (or / a) as if in infinite precision, rounded once, directly to `dtype`.
//   kFloat32  angle = fl32(fl32(p) * f); cos rounded to float32; times (divided by) fl32(a), rounded to float32;
//             then rounded to `dtype`. f holds float32 values.
//   kFloat64  angle = fl64(p * f); cos rounded to float64; times (divided by) a, rounded to float64; then rounded to
//             `dtype`.
//
// An angle of exactly zero gives cos = a (or 1/a) and sin = +0, for all signs of p, f and a. kExact with a = 0 gives
// only +0. Results may be subnormals, signed zeros or infinities of `dtype`. An angle that overflows in kFloat32 or
// kFloat64 gives NaN.
//
// The fast path is vector code with a proven error bound. MPFR computes the pairs that it cannot decide, in some
// microseconds each (docs/exact-tables.md): about one in four million, and all angles beyond 2^44 or below 2^-500.
// kExact, except to FP64, is two to six times as fast where at least 32 consecutive positions are equally spaced.
#pragma once

#include <cstddef>

#include "posenc/base/dtype.h"
#include "posenc/base/modes.h"

namespace posenc {

struct SinCosRows {
  Frequencies frequencies;
  DType dtype;              // element type of cos and sin: FP32, FP16, BF16 or FP64
  const double* positions;  // [rows], any finite value, negative and fractional included
  const double* inv_freq;   // [pairs], finite
  size_t rows;
  size_t pairs;
  double scale = 1.0;   // a: finite
  bool divide = false;  // divide by a instead of multiplying; then a must not be 0
  void* cos;            // [rows, pairs] of dtype, row-major
  void* sin;            // [rows, pairs]
  bool large = false;   // results exceed a core's caches (posenc/base/caches.h)

  const double* from_positions = nullptr;  // [rows], or null
  const double* from_inv_freq = nullptr;   // [pairs]; with from_positions. Then `divide` must be false
};

// Computes rows [begin, end). Thread-safe for disjoint ranges. Gives the same bytes on every CPU target.
void ComputeSinCosRows(const SinCosRows& work, size_t begin, size_t end);

}  // namespace posenc

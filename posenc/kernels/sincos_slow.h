// Slow path of Ziv's test: one entry of SinCosRows by MPFR, at growing precision until its rounding is certain.
//
// An entry takes some microseconds, so the fast path uses it only for entries that it cannot prove
// (docs/exact-tables.md).
#pragma once

#include <mpfr.h>

#include <functional>

#include "posenc/kernels/sincos_rows.h"

namespace posenc {

struct CosSin {
  double cos;
  double sin;
};

// Returns the format of the recipe's first rounding of cos and sin: work.dtype for kExact, FP32 for kFloat32, FP64 for
// kFloat64. kExact includes work.scale in that rounding; the other recipes scale the rounded values afterwards.
DType FirstRounding(const SinCosRows& work);

// Returns the correctly rounded cosine and sine at one position and frequency, in the format FirstRounding(work). Reads
// only frequencies, dtype, scale and divide of work. An angle that overflows (kFloat32, kFloat64) gives NaN.
CosSin SinCosSlow(const SinCosRows& work, double position, double inv_freq);

// Returns the correctly rounded cosine and sine of position * inv_freq, times a real number a != 0. apply_scale
// multiplies `value` by a in place, with an error below 2^(2-precision of the value), and returns 0 if that was exact.
// A product outside MPFR's exponent range gives a zero or infinity of the right sign. Throws ComputationStopped if the
// computation is interrupted (it calls InterruptionPoint()), or with INTERNAL if 8192 bits do not decide the rounding.
CosSin ScaledSinCos(double position, double inv_freq, DType dtype,
                    const std::function<int(mpfr_ptr value)>& apply_scale);

// Returns the correctly rounded entry of a `work` with from_positions.
CosSin SinCosSlowOfDifference(const SinCosRows& work, size_t row, size_t pair);

// ComputeSinCosRows() with another slow path, for tests: for example one that counts calls. Null keeps the fast path's
// values of unproven entries. Entries of differences have SinCosSlowOfDifference().
using SinCosSlowPath = CosSin (*)(const SinCosRows& work, double position, double inv_freq);
void RunWithSlowPath(const SinCosRows& work, size_t begin, size_t end, SinCosSlowPath slow_path);

}  // namespace posenc

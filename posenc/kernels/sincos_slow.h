// The way out of Ziv's test: one entry of SinCosRows by MPFR, at growing precision until its rounding is certain.
//
// Some microseconds an entry, so the fast path asks for what it cannot prove only (docs/exact-tables.md).
#pragma once

#include <mpfr.h>

#include <functional>

#include "posenc/kernels/sincos_rows.h"

namespace posenc {

struct CosSin {
  double cos;
  double sin;
};

// The format in which cos and sin of the recipe are rounded for the first time: `work.dtype` for kExact, else FP32 or
// FP64. kExact includes work.scale in that rounding; the other recipes scale the rounded values afterwards.
DType FirstRounding(const SinCosRows& work);

// Correctly rounded cosine and sine at one position and frequency in the format FirstRounding(work); of work only
// frequencies, dtype, scale and divide are read. An angle that overflows (kFloat32, kFloat64) gives NaN.
CosSin SinCosSlow(const SinCosRows& work, double position, double inv_freq);

// Correctly rounded cosine and sine of position * inv_freq times a real number that is not 0. apply_scale multiplies
// `value` by it in place, with an error below 2^(2-precision of the value), and returns 0 if that was exact. A product
// that leaves MPFR's range of exponents gives a zero or an infinity of the right sign. An interruption point.
CosSin ScaledSinCos(double position, double inv_freq, DType dtype,
                    const std::function<int(mpfr_ptr value)>& apply_scale);

// Run() with another slow path, for tests: one that counts, or null, which leaves unproven entries as the fast path
// guessed them.
using SinCosSlowPath = CosSin (*)(const SinCosRows& work, double position, double inv_freq);
void RunWithSlowPath(const SinCosRows& work, size_t begin, size_t end, SinCosSlowPath slow_path);

}  // namespace posenc

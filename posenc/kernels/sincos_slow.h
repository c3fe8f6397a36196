// The way out of Ziv's test: one entry of SinCosRows by MPFR, at growing precision until its rounding is certain.
//
// Some microseconds an entry, so the fast path asks for what it cannot prove only (docs/exact-tables.md).
#pragma once

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

// Run() with another slow path, for tests: one that counts, or null, which leaves unproven entries as the fast path
// guessed them.
using SinCosSlowPath = CosSin (*)(const SinCosRows& work, double position, double inv_freq);
void RunWithSlowPath(const SinCosRows& work, size_t begin, size_t end, SinCosSlowPath slow_path);

}  // namespace posenc

// Table entries whose cosine or sine is so near to a rounding boundary of a format that no fixed precision rounds all
// of them correctly. Random entries are never that near.
#pragma once

#include <cstdint>
#include <vector>

#include "posenc/base/dtype.h"

namespace posenc {

struct HardCase {
  double position;
  double inv_freq;
  double scale;
};

// Frequencies arccos(y)/p and arcsin(y)/p (plus whole turns) for boundaries y of the format. p is the one of `tries`
// positions up to 2^40 where p times the rounded frequency is nearest to the angle.
std::vector<HardCase> AnglesOfBoundaries(DType dtype, int count, int tries, uint64_t seed);

// p * inv_freq is itself a boundary of size 2^-10 down to 2^smallest: the sine is nearer to it than 2^(2*smallest)
// times its size.
std::vector<HardCase> AnglesOnBoundaries(DType dtype, int count, int smallest, uint64_t seed);

// The scale is a boundary, and the cosine of a small angle is just below 1. Not for FP64, whose boundaries are not
// doubles.
std::vector<HardCase> ScalesOnBoundaries(DType dtype, int count, uint64_t seed);

}  // namespace posenc

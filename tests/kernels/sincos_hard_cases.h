// Table entries whose cosine or sine lies so near to a rounding boundary of a format that no arithmetic of fixed
// precision rounds all of them right. Random entries are never that near.
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

// Frequencies arccos(y)/p and arcsin(y)/p (plus whole turns) for boundaries y of the format; of `tries` positions p up
// to 2^40 for every y, the one where p times the rounded frequency comes nearest to the angle.
std::vector<HardCase> AnglesOfBoundaries(DType dtype, int count, int tries, uint64_t seed);

// p * inv_freq is a boundary itself, of a size between 2^-10 and 2^smallest: the sine is nearer to it than
// 2^(2*smallest) times its size.
std::vector<HardCase> AnglesOnBoundaries(DType dtype, int count, int smallest, uint64_t seed);

// The scale is a boundary, and the cosine of a small angle very little below 1. Not for FP64, whose boundaries are no
// doubles.
std::vector<HardCase> ScalesOnBoundaries(DType dtype, int count, uint64_t seed);

}  // namespace posenc

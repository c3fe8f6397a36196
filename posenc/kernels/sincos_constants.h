// Error bounds and coefficients of the fast cosine and sine (sincos_fast-inl.h); derived in docs/exact-tables.md.
#pragma once

namespace posenc {

// Unevaluated sum hi + lo.
struct DoubleDouble {
  double hi;
  double lo;
};

// Range of |angle| in which the bounds hold, both ends included.
constexpr double kFastMin = 0x1p-500;
constexpr double kFastMax = 0x1p44;

// Error bounds: relative to the result, plus absolute for each quarter turn that the reduction subtracts.
constexpr double kNarrowRelative = 0x1p-48;
constexpr double kNarrowPerTurn = 0x1p-101;
constexpr double kWideRelative = 0x1p-96;
constexpr double kWidePerTurn = 0x1p-150;

// Error bound of a run's entries (sincos_run-inl.h), relative to the scale (cosines) or to the sines that an entry's
// sine is made of. In the absolute bound, one turn of half a step counts as kRunTurns turns of the middle.
constexpr double kRunRelative = 0x1p-50;
constexpr double kRunTurns = 0x1p20;

// A power e^x that multiplies a narrow result (sincos_powers.cc): the greatest |x|, and what |x| adds to the result's
// relative error bound. In a run (sincos_powers_run-inl.h), the greatest |x| of a block's middle, and of its rows
// relative to the middle.
constexpr double kMostGrowth = 400;
constexpr double kGrowthRelative = 0x1p-50;
constexpr double kMostMiddleGrowth = 100;
constexpr double kMostBlockGrowth = 0.5;

// pi/2 = kHalfPi1 + kHalfPi2 + kHalfPi3 + 2^-163.6
constexpr double kHalfPi1 = 0x1.921fb54442d18p+0;
constexpr double kHalfPi2 = 0x1.1a62633145c07p-54;
constexpr double kHalfPi3 = -0x1.f1976b7ed8fbcp-110;
constexpr double kInverseHalfPi = 0x1.45f306dc9c883p-1;

// (-1)^k / (2k+1)! and (-1)^k / (2k)!, k = 1, 2, ...
constexpr DoubleDouble kSinWide[] = {
    {-0x1.5555555555555p-3, -0x1.5555555555555p-57},  {0x1.1111111111111p-7, 0x1.1111111111111p-63},
    {-0x1.a01a01a01a01ap-13, -0x1.a01a01a01a01ap-73}, {0x1.71de3a556c734p-19, -0x1.c154f8ddc6c00p-73},
    {-0x1.ae64567f544e4p-26, 0x1.c062e06d1f209p-80},  {0x1.6124613a86d09p-33, 0x1.f28e0cc748ebep-87},
    {-0x1.ae7f3e733b81fp-41, -0x1.1d8656b0ee8cbp-97}};
constexpr DoubleDouble kCosWide[] = {{-0x1.0000000000000p-1, 0x0.0p+0},
                                     {0x1.5555555555555p-5, 0x1.5555555555555p-59},
                                     {-0x1.6c16c16c16c17p-10, 0x1.f49f49f49f49fp-65},
                                     {0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-76},
                                     {-0x1.27e4fb7789f5cp-22, -0x1.cbbc05b4fa99ap-76},
                                     {0x1.1eed8eff8d898p-29, -0x1.2aec959e14c06p-83},
                                     {-0x1.93974a8c07c9dp-37, -0x1.05d6f8a2efd1fp-92}};

}  // namespace posenc

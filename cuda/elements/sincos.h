// Cosine and sine of an angle with a proven error bound. The operations are those of posenc/kernels/sincos_fast-inl.h
// in the same order, so its range and its bounds (docs/exact-tables.md) hold here too.
#pragma once

#include <cstdint>

#include "cuda/elements/double_double.h"

namespace posenc::cuda {

struct NarrowAngle {
  double cos;
  double sin;
  double turns;  // number of quarter turns subtracted, not negative
};
struct WideAngle {
  DoubleDouble cos;
  DoubleDouble sin;
  double turns;
};

// Returns x / (pi/2) rounded to an integer. The two lowest bits of `quadrant` are that integer modulo 4.
POSENC_ELEMENT double QuarterTurns(double x, uint64_t& quadrant) {
  constexpr double kToInteger = 0x1.8p52;  // shifts the fraction out of the significand
  const double shifted = fma(x, kInverseHalfPi, kToInteger);
  quadrant = BitCast<uint64_t>(shifted);
  return shifted - kToInteger;
}

// Converts the cosine and sine of the reduced angle to those of the angle, in place.
POSENC_ELEMENT void TurnBack(uint64_t quadrant, double& cos, double& sin) {
  const double unsigned_cos = quadrant & 1 ? sin : cos, unsigned_sin = quadrant & 1 ? cos : sin;
  cos = BitCast<double>(BitCast<uint64_t>(unsigned_cos) ^ ((quadrant + 1) >> 1 & 1) << 63);
  sin = BitCast<double>(BitCast<uint64_t>(unsigned_sin) ^ (quadrant >> 1 & 1) << 63);
}

// Cosine and sine of x.hi + x.lo in double.
POSENC_ELEMENT NarrowAngle NarrowSinCos(DoubleDouble x) {
  uint64_t quadrant;
  const double n = QuarterTurns(x.hi, quadrant);
  const DoubleDouble product = TwoProduct(n, kHalfPi1);
  const double rest = fma(-n, kHalfPi2, x.lo - product.lo);
  const double r = (x.hi - product.hi) + rest;  // the inner difference is exact

  const double z = r * r;
  double s = -0x1.ae7f3e733b81fp-41;  // -1/15!
  s = fma(s, z, 0x1.6124613a86d09p-33);
  s = fma(s, z, -0x1.ae64567f544e4p-26);
  s = fma(s, z, 0x1.71de3a556c734p-19);
  s = fma(s, z, -0x1.a01a01a01a01ap-13);
  s = fma(s, z, 0x1.1111111111111p-7);
  s = fma(s, z, -0x1.5555555555555p-3);  // -1/3!
  double sin = fma(s, r * z, r);

  double c = 0x1.ae7f3e733b81fp-45;  // 1/16!
  c = fma(c, z, -0x1.93974a8c07c9dp-37);
  c = fma(c, z, 0x1.1eed8eff8d898p-29);
  c = fma(c, z, -0x1.27e4fb7789f5cp-22);
  c = fma(c, z, 0x1.a01a01a01a01ap-16);
  c = fma(c, z, -0x1.6c16c16c16c17p-10);
  c = fma(c, z, 0x1.5555555555555p-5);
  c = fma(c, z, -0.5);
  double cos = fma(c, z, 1.0);

  TurnBack(quadrant, cos, sin);
  return {cos, sin, fabs(n)};
}

// z * (c[0] + z * (c[1] + ... z * (c[kLast] + z * sum))), where z * (the inner part) is below each coefficient.
// Recursive, because device code can use the table's entries as constants, but not the table itself.
template <const auto& kCoefficients, int kLast = sizeof(kCoefficients) / sizeof(DoubleDouble) - 1>
POSENC_ELEMENT DoubleDouble WideHorner(DoubleDouble z, DoubleDouble sum) {
  constexpr double kHi = kCoefficients[kLast].hi, kLo = kCoefficients[kLast].lo;
  const DoubleDouble product = Multiply(z, sum);
  const DoubleDouble next = FastTwoSum(kHi, product.hi);
  sum = {next.hi, next.lo + (product.lo + kLo)};
  if constexpr (kLast > 0) {
    return WideHorner<kCoefficients, kLast - 1>(z, sum);
  } else {
    return Multiply(z, sum);
  }
}

// Cosine and sine of x.hi + x.lo in double-double. The low parts may overlap the high ones by a few bits.
POSENC_ELEMENT WideAngle WideSinCos(DoubleDouble x) {
  uint64_t quadrant;
  const double n = QuarterTurns(x.hi, quadrant);
  const DoubleDouble product1 = TwoProduct(n, kHalfPi1), product2 = TwoProduct(n, kHalfPi2);
  const DoubleDouble middle1 = TwoSum(x.lo, -product1.lo);
  const DoubleDouble middle2 = TwoSum(middle1.hi, -product2.hi);
  const DoubleDouble leading = TwoSum(x.hi - product1.hi, middle2.hi);  // the difference is exact
  const double last = fma(-n, kHalfPi3, (middle1.lo + middle2.lo) - product2.lo);
  const DoubleDouble r = TwoSum(leading.hi, leading.lo + last);
  const DoubleDouble z = Multiply(r, r);

  double s = 0x1.3f3ccdd165fa9p-84;  // 1/25!
  s = fma(s, z.hi, -0x1.761b41316381ap-75);
  s = fma(s, z.hi, 0x1.71b8ef6dcf572p-66);
  s = fma(s, z.hi, -0x1.2f49b46814157p-57);
  s = fma(s, z.hi, 0x1.952c77030ad4ap-49);  // 1/17!
  const DoubleDouble sin_rest = Multiply(r, WideHorner<kSinWide>(z, {s, 0.0}));
  DoubleDouble sin = FastTwoSum(r.hi, sin_rest.hi);
  sin.lo += r.lo + sin_rest.lo;

  double c = -0x1.88e85fc6a4e5ap-89;  // -1/26!
  c = fma(c, z.hi, 0x1.f2cf01972f578p-80);
  c = fma(c, z.hi, -0x1.0ce396db7f853p-70);
  c = fma(c, z.hi, 0x1.e542ba4020225p-62);
  c = fma(c, z.hi, -0x1.6827863b97d97p-53);
  c = fma(c, z.hi, 0x1.ae7f3e733b81fp-45);  // 1/16!
  const DoubleDouble cos_rest = WideHorner<kCosWide>(z, {c, 0.0});
  DoubleDouble cos = FastTwoSum(1.0, cos_rest.hi);
  cos.lo += cos_rest.lo;

  TurnBack(quadrant, cos.hi, sin.hi);
  TurnBack(quadrant, cos.lo, sin.lo);
  return {cos, sin, fabs(n)};
}

}  // namespace posenc::cuda

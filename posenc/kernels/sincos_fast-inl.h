// Cosine and sine of an angle x_hi + x_lo with a proven bound on the error: in double for formats of up to 24 bits
// (`Narrow...`), in double-double for FP64 (`Wide...`). docs/exact-tables.md derives the bounds;
// tests/kernels/sincos_bound_test.cc checks the code against them.
//
// Valid for kFastMin <= |x_hi| <= kFastMax, |x_lo| <= 2^-53 |x_hi|. With n quarter turns subtracted (`turns` = |n|),
//
//   |error of a result v| <= |v| * k...Relative + |n| * k...PerTurn
//
// FMA is used where the processor has it. The last bits of the results depend on FMA, the bounds do not.

#if defined(POSENC_KERNELS_SINCOS_FAST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_SINCOS_FAST_INL_H_
#undef POSENC_KERNELS_SINCOS_FAST_INL_H_
#else
#define POSENC_KERNELS_SINCOS_FAST_INL_H_
#endif

#include <hwy/highway.h>

#include "posenc/kernels/double_double-inl.h"
#include "posenc/kernels/sincos_constants.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// n = x / (pi/2) rounded to an integer; `quadrant` holds n modulo 4 in its two lowest bits.
template <class D, class V, class VU>
HWY_INLINE V QuarterTurns(D d, V x, VU& quadrant) {
  const V to_integer = hn::Set(d, 0x1.8p52);  // pushes the fraction out of the significand
  const V shifted = hn::MulAdd(x, hn::Set(d, kInverseHalfPi), to_integer);
  quadrant = hn::BitCast(hn::RebindToUnsigned<D>(), shifted);
  return hn::Sub(shifted, to_integer);
}

// Swaps cosine and sine of the reduced angle in odd quadrants. SinSign and CosSign give the signs.
template <class D, class V, class VU>
HWY_INLINE void SwapByQuadrant(D d, VU quadrant, V& cos, V& sin) {
  const hn::RebindToUnsigned<D> du;
  const auto odd = hn::RebindMask(d, hn::TestBit(quadrant, hn::Set(du, 1)));
  const V old_cos = cos;
  cos = hn::IfThenElse(odd, sin, cos);
  sin = hn::IfThenElse(odd, old_cos, sin);
}
template <class D, class VU>
HWY_INLINE hn::Vec<D> SinSign(D d, VU quadrant) {  // -0.0 where the sine is negated: quadrants 2, 3
  return hn::And(hn::BitCast(d, hn::ShiftLeft<62>(quadrant)), hn::SignBit(d));
}
template <class D, class VU>
HWY_INLINE hn::Vec<D> CosSign(D d, VU quadrant) {  // -0.0 in quadrants 1, 2
  return SinSign(d, hn::Add(quadrant, hn::Set(hn::RebindToUnsigned<D>(), 1)));
}

template <class D, class V>
HWY_INLINE void NarrowSinCos(D d, V x_hi, V x_lo, V& cos, V& sin, V& turns) {
  hn::Vec<hn::RebindToUnsigned<D>> quadrant;
  const V n = QuarterTurns(d, x_hi, quadrant);
  V product_lo;
  const V product_hi = TwoProduct(d, n, hn::Set(d, kHalfPi1), product_lo);
  const V rest = hn::NegMulAdd(n, hn::Set(d, kHalfPi2), hn::Sub(x_lo, product_lo));
  const V r = hn::Add(hn::Sub(x_hi, product_hi), rest);  // the inner difference is exact

  const auto constant = [d](double c) HWY_ATTR { return hn::Set(d, c); };
  const V z = hn::Mul(r, r);
  V s = constant(-0x1.ae7f3e733b81fp-41);  // -1/15!
  s = hn::MulAdd(s, z, constant(0x1.6124613a86d09p-33));
  s = hn::MulAdd(s, z, constant(-0x1.ae64567f544e4p-26));
  s = hn::MulAdd(s, z, constant(0x1.71de3a556c734p-19));
  s = hn::MulAdd(s, z, constant(-0x1.a01a01a01a01ap-13));
  s = hn::MulAdd(s, z, constant(0x1.1111111111111p-7));
  s = hn::MulAdd(s, z, constant(-0x1.5555555555555p-3));  // -1/3!
  sin = hn::MulAdd(s, hn::Mul(r, z), r);

  V c = constant(0x1.ae7f3e733b81fp-45);  // 1/16!
  c = hn::MulAdd(c, z, constant(-0x1.93974a8c07c9dp-37));
  c = hn::MulAdd(c, z, constant(0x1.1eed8eff8d898p-29));
  c = hn::MulAdd(c, z, constant(-0x1.27e4fb7789f5cp-22));
  c = hn::MulAdd(c, z, constant(0x1.a01a01a01a01ap-16));
  c = hn::MulAdd(c, z, constant(-0x1.6c16c16c16c17p-10));
  c = hn::MulAdd(c, z, constant(0x1.5555555555555p-5));
  c = hn::MulAdd(c, z, constant(-0.5));
  cos = hn::MulAdd(c, z, constant(1.0));

  SwapByQuadrant(d, quadrant, cos, sin);
  cos = hn::Xor(cos, CosSign(d, quadrant));
  sin = hn::Xor(sin, SinSign(d, quadrant));
  turns = hn::Abs(n);
}

// Replaces sum = hi + lo by z * (first + z * (... + z * (last + z * sum))). Requires |z * inner part| < |coefficient|.
template <class D, class V, size_t kSize>
HWY_INLINE void WideHorner(D d, V z_hi, V z_lo, const DoubleDouble (&coefficients)[kSize], V& hi, V& lo) {
  for (size_t k = kSize; k > 0; --k) {
    V product_lo, error;
    const V product_hi = Multiply(d, z_hi, z_lo, hi, lo, product_lo);
    hi = FastTwoSum(hn::Set(d, coefficients[k - 1].hi), product_hi, error);
    lo = hn::Add(error, hn::Add(product_lo, hn::Set(d, coefficients[k - 1].lo)));
  }
  hi = Multiply(d, z_hi, z_lo, hi, lo, lo);
}

// Cosine and sine in double-double. The low parts may overlap the high parts by a few bits.
template <class D, class V>
HWY_INLINE void WideSinCos(D d, V x_hi, V x_lo, V& cos_hi, V& cos_lo, V& sin_hi, V& sin_lo, V& turns) {
  hn::Vec<hn::RebindToUnsigned<D>> quadrant;
  const V n = QuarterTurns(d, x_hi, quadrant);
  V product1_lo, product2_lo, error1, error2, error3, r_lo;
  const V product1_hi = TwoProduct(d, n, hn::Set(d, kHalfPi1), product1_lo);
  const V product2_hi = TwoProduct(d, n, hn::Set(d, kHalfPi2), product2_lo);
  V middle = TwoSum(x_lo, hn::Neg(product1_lo), error1);
  middle = TwoSum(middle, hn::Neg(product2_hi), error2);
  const V leading = TwoSum(hn::Sub(x_hi, product1_hi), middle, error3);  // the inner difference is exact
  const V last = hn::NegMulAdd(n, hn::Set(d, kHalfPi3), hn::Sub(hn::Add(error1, error2), product2_lo));
  const V r_hi = TwoSum(leading, hn::Add(error3, last), r_lo);

  const auto constant = [d](double c) HWY_ATTR { return hn::Set(d, c); };
  V z_lo, error;
  const V z_hi = Multiply(d, r_hi, r_lo, r_hi, r_lo, z_lo);
  V hi = constant(0x1.3f3ccdd165fa9p-84);  // 1/25!
  hi = hn::MulAdd(hi, z_hi, constant(-0x1.761b41316381ap-75));
  hi = hn::MulAdd(hi, z_hi, constant(0x1.71b8ef6dcf572p-66));
  hi = hn::MulAdd(hi, z_hi, constant(-0x1.2f49b46814157p-57));
  hi = hn::MulAdd(hi, z_hi, constant(0x1.952c77030ad4ap-49));  // 1/17!
  V lo = hn::Zero(d);
  WideHorner(d, z_hi, z_lo, kSinWide, hi, lo);
  hi = Multiply(d, r_hi, r_lo, hi, lo, lo);
  sin_hi = FastTwoSum(r_hi, hi, error);
  sin_lo = hn::Add(error, hn::Add(r_lo, lo));

  hi = constant(-0x1.88e85fc6a4e5ap-89);  // -1/26!
  hi = hn::MulAdd(hi, z_hi, constant(0x1.f2cf01972f578p-80));
  hi = hn::MulAdd(hi, z_hi, constant(-0x1.0ce396db7f853p-70));
  hi = hn::MulAdd(hi, z_hi, constant(0x1.e542ba4020225p-62));
  hi = hn::MulAdd(hi, z_hi, constant(-0x1.6827863b97d97p-53));
  hi = hn::MulAdd(hi, z_hi, constant(0x1.ae7f3e733b81fp-45));  // 1/16!
  lo = hn::Zero(d);
  WideHorner(d, z_hi, z_lo, kCosWide, hi, lo);
  cos_hi = FastTwoSum(constant(1.0), hi, error);
  cos_lo = hn::Add(error, lo);

  SwapByQuadrant(d, quadrant, cos_hi, sin_hi);
  SwapByQuadrant(d, quadrant, cos_lo, sin_lo);
  const V cos_sign = CosSign(d, quadrant);
  const V sin_sign = SinSign(d, quadrant);
  cos_hi = hn::Xor(cos_hi, cos_sign);
  cos_lo = hn::Xor(cos_lo, cos_sign);
  sin_hi = hn::Xor(sin_hi, sin_sign);
  sin_lo = hn::Xor(sin_lo, sin_sign);
  turns = hn::Abs(n);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

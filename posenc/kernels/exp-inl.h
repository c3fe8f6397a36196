// e^x of doubles.

// Per-target include guard.
#if defined(POSENC_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_EXP_INL_H_
#undef POSENC_KERNELS_EXP_INL_H_
#else
#define POSENC_KERNELS_EXP_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns e^x for |x| <= 700 with a relative error below 4u (u = 2^-53): 2^n e^r with |r| <= ln 2 / 2, by a Taylor
// series whose remainder is below 2^-57. The bytes are the same on every processor, unless `kFuse` allows FMA, which
// rounds less often.
template <bool kFuse = false, class D, class V>
HWY_INLINE V Exp(D d, V x) {
  const auto multiply_add = [](V a, V b, V c) HWY_ATTR {
    if constexpr (kFuse) return hn::MulAdd(a, b, c);
    return hn::Add(hn::Mul(a, b), c);
  };
  constexpr double kInverseFactorials[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
      1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       1.0 / 2,      1.0,         1.0};
  constexpr double kLn2High = 0x1.62e42fefa0000p-1,
                   kLn2Low = 0x1.cf79abc9e3b3ap-40;  // the high part ends in 17 zero bits: n * kLn2High is exact
  const auto to_integer = hn::Set(d, 0x1.8p52);      // pushes the fraction out of the significand
  const auto shifted = multiply_add(x, hn::Set(d, 0x1.71547652b82fep+0), to_integer);
  const auto n = hn::Sub(shifted, to_integer);
  const auto r = hn::Sub(hn::Sub(x, hn::Mul(n, hn::Set(d, kLn2High))), hn::Mul(n, hn::Set(d, kLn2Low)));
  auto sum = hn::Set(d, kInverseFactorials[0]);
  for (size_t k = 1; k < sizeof(kInverseFactorials) / sizeof(double); ++k) {
    sum = multiply_add(sum, r, hn::Set(d, kInverseFactorials[k]));
  }
  // n modulo 2^12, in the lowest bits of `shifted`, is added to the exponent.
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::Add(hn::BitCast(du, sum), hn::ShiftLeft<52>(hn::BitCast(du, shifted))));
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

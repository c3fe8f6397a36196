// Angles of table entries in double-double, and the ranges in which they are computed without overflow or underflow.

#if defined(POSENC_KERNELS_SINCOS_ANGLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_SINCOS_ANGLE_INL_H_
#undef POSENC_KERNELS_SINCOS_ANGLE_INL_H_
#else
#define POSENC_KERNELS_SINCOS_ANGLE_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "posenc/kernels/double_double-inl.h"
#include "posenc/kernels/narrow_format-inl.h"
#include "posenc/kernels/sincos_constants.h"
#include "posenc/kernels/sincos_rows.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns whether no product with a number of ordinary size can overflow or underflow.
inline bool OrdinaryPosition(double position) {
  const double size = std::abs(position);
  return size == 0 || (size >= 0x1p-800 && size <= 0x1p900);
}
template <class D, class V>
HWY_INLINE hn::Mask<D> OrdinaryAngle(D d, V x) {
  const V size = hn::Abs(x);
  return hn::And(hn::Ge(size, hn::Set(d, kFastMin)), hn::Le(size, hn::Set(d, kFastMax)));
}

// Sets x_hi + x_lo to the recipe's angle. Returns the lanes in which the angle is zero.
template <Frequencies kFrequencies, class D, class V>
HWY_INLINE hn::Mask<D> Angle(D d, V position, V inv_freq, V& x_hi, V& x_lo) {
  if constexpr (kFrequencies == Frequencies::kExact) {
    x_hi = TwoProduct(d, position, inv_freq, x_lo);
    return hn::Or(hn::Eq(position, hn::Zero(d)), hn::Eq(inv_freq, hn::Zero(d)));
  } else {
    x_hi = hn::Mul(position, inv_freq);
    if constexpr (kFrequencies == Frequencies::kFloat32) x_hi = RoundTo(d, x_hi, NarrowFormatOf(DType::kFP32));
    x_lo = hn::Zero(d);
    return hn::Eq(x_hi, hn::Zero(d));
  }
}

// Sets x_hi + x_lo to position * inv_freq - from * from_inv_freq, and `error` to a bound of its absolute error. Returns
// the lanes in which the angle is zero; NaN is the angle in lanes that are out of range.
//
// The products and the sum of their leading parts are exact. Of the three additions that remain, two are rounded, on
// numbers of at most 2^-52 (|product| + |from_product|): an error below 2^-104 times that.
template <class D, class V>
HWY_INLINE hn::Mask<D> AngleDifference(D d, V position, V inv_freq, V from, V from_inv_freq, V& x_hi, V& x_lo,
                                       V& error) {
  V product_lo, from_lo, sum_lo;
  const V product = TwoProduct(d, position, inv_freq, product_lo);
  const V from_product = TwoProduct(d, from, from_inv_freq, from_lo);
  const V sum = TwoSum(product, hn::Neg(from_product), sum_lo);
  x_hi = TwoSum(sum, hn::Add(hn::Sub(product_lo, from_lo), sum_lo), x_lo);
  error = hn::Mul(hn::Add(hn::Abs(product), hn::Abs(from_product)), hn::Set(d, 0x1p-104));
  const auto is_usable = [d](V a, V b, V ab) HWY_ATTR {
    return hn::Or(OrdinaryAngle(d, ab), hn::Or(hn::Eq(a, hn::Zero(d)), hn::Eq(b, hn::Zero(d))));
  };
  const auto usable = hn::And(is_usable(position, inv_freq, product), is_usable(from, from_inv_freq, from_product));
  x_hi = hn::IfThenElse(usable, x_hi, hn::NaN(d));
  return hn::Eq(x_hi, hn::Zero(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

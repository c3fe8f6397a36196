// Error-free transformations and double-double arithmetic (unevaluated sums hi + lo), lane by lane.
//
// Functions return vectors through references because scalable vectors cannot be members of a struct.

#if defined(POSENC_KERNELS_DOUBLE_DOUBLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_DOUBLE_DOUBLE_INL_H_
#undef POSENC_KERNELS_DOUBLE_DOUBLE_INL_H_
#else
#define POSENC_KERNELS_DOUBLE_DOUBLE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// sum + error = a + b exactly (Knuth).
template <class V>
HWY_INLINE V TwoSum(V a, V b, V& error) {
  const V sum = hn::Add(a, b);
  const V b_part = hn::Sub(sum, a);
  error = hn::Add(hn::Sub(a, hn::Sub(sum, b_part)), hn::Sub(b, b_part));
  return sum;
}

// TwoSum for |a| >= |b| or a = 0 (Dekker, Fast2Sum): sum + error = a + b exactly.
template <class V>
HWY_INLINE V FastTwoSum(V a, V b, V& error) {
  const V sum = hn::Add(a, b);
  error = hn::Sub(b, hn::Sub(sum, a));
  return sum;
}

#if !HWY_NATIVE_FMA
// a = hi + lo, each of at most 26 bits, so that products of halves are exact (Veltkamp). Requires |a| < 2^996.
template <class D, class V>
HWY_INLINE V Split(D d, V a, V& lo) {
  const V scaled = hn::Mul(a, hn::Set(d, 0x1p27 + 1));
  const V hi = hn::Sub(scaled, hn::Sub(scaled, a));
  lo = hn::Sub(a, hi);
  return hi;
}
#endif

// product + error = a * b exactly, if nothing overflows and |a * b| > 2^-960.
template <class D, class V>
HWY_INLINE V TwoProduct(D d, V a, V b, V& error) {
  const V product = hn::Mul(a, b);
#if HWY_NATIVE_FMA
  (void)d;
  error = hn::MulSub(a, b, product);
#else
  V a_lo, b_lo;
  const V a_hi = Split(d, a, a_lo);
  const V b_hi = Split(d, b, b_lo);
  const V cross = hn::Add(hn::Mul(a_hi, b_lo), hn::Sub(hn::Mul(a_hi, b_hi), product));
  error = hn::Add(hn::Mul(a_lo, b_lo), hn::Add(hn::Mul(a_lo, b_hi), cross));
#endif
  return product;
}

// hi + lo = (a_hi + a_lo) * (b_hi + b_lo) with a relative error below 2^-103, if |lo| <= 2^-51 |hi| in both factors.
// The returned hi and lo may overlap by a few bits.
template <class D, class V>
HWY_INLINE V Multiply(D d, V a_hi, V a_lo, V b_hi, V b_lo, V& lo) {
  V error;
  const V hi = TwoProduct(d, a_hi, b_hi, error);
  lo = hn::MulAdd(a_hi, b_lo, hn::MulAdd(a_lo, b_hi, error));
  return hi;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

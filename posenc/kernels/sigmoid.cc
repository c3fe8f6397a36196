#include "posenc/kernels/sigmoid.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/sigmoid.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(-x) for x in 0 .. 700: 2^-n exp(r), r within ln 2 / 2 of 0, by Taylor's series, whose rest is below 2^-57.
// Products and sums apart: fused ones would round otherwise.
template <class D, class V>
HWY_INLINE V ExpOfNegative(D d, V x) {
  constexpr double kInverseFactorials[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
      1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       1.0 / 2,      1.0,         1.0};
  constexpr double kLn2High = 0x1.62e42fefa0000p-1,
                   kLn2Low = 0x1.cf79abc9e3b3ap-40;  // the first has 11 zeros at its end
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, 0x1.71547652b82fep+0)));
  const auto r = hn::Sub(hn::Sub(hn::Mul(n, hn::Set(d, kLn2High)), x), hn::Neg(hn::Mul(n, hn::Set(d, kLn2Low))));
  auto sum = hn::Set(d, kInverseFactorials[0]);
  for (size_t k = 1; k < sizeof(kInverseFactorials) / sizeof(double); ++k) {
    sum = hn::Add(hn::Mul(sum, r), hn::Set(d, kInverseFactorials[k]));
  }
  const hn::RebindToSigned<D> di;
  const auto exponent = hn::ShiftLeft<52>(hn::Sub(hn::Set(di, 1023), hn::ConvertTo(di, n)));
  return hn::Mul(sum, hn::BitCast(d, exponent));
}

template <class D>
HWY_INLINE size_t SigmoidWhole(D d, double* values, size_t begin, size_t count) {
  const auto one = hn::Set(d, 1.0), most = hn::Set(d, 700.0);
  size_t n = begin;
  for (; n + hn::Lanes(d) <= count; n += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, values + n);
    const auto magnitude = hn::Abs(x);
    const auto within = hn::Le(magnitude, most);
    const auto power = hn::IfThenElseZero(within, ExpOfNegative(d, hn::IfThenElseZero(within, magnitude)));
    const auto numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), power, one);
    const auto y = hn::Div(numerator, hn::Add(one, power));
    hn::StoreU(hn::IfThenElse(hn::Eq(x, x), y, x), d, values + n);
  }
  return n;
}

void SigmoidAll(double* values, size_t count) {
  const size_t rest = SigmoidWhole(hn::ScalableTag<double>(), values, 0, count);
  SigmoidWhole(hn::CappedTag<double, 1>(), values, rest, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(SigmoidAll);

void Sigmoid(double* values, size_t count) { HWY_DYNAMIC_DISPATCH(SigmoidAll)(values, count); }

}  // namespace posenc
#endif  // HWY_ONCE

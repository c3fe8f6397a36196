#include "posenc/kernels/powers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/powers.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x with a relative error below 4u, |x| <= 700: 2^n e^r, r within ln 2 / 2 of 0, by Taylor's series, whose rest is
// below 2^-57.
template <class D, class V>
HWY_INLINE V Exp(D d, V x) {
  constexpr double kPerLn2 = 1.44269504088896338700, kLn2High = 6.93147180369123816490e-01,
                   kLn2Low = 1.90821492927058770002e-10;  // the first has 32 bits: n * kLn2High is exact
  constexpr double kReciprocals[] = {1.0 / 13, 1.0 / 12, 1.0 / 11, 1.0 / 10, 1.0 / 9, 1.0 / 8, 1.0 / 7,
                                     1.0 / 6,  1.0 / 5,  1.0 / 4,  1.0 / 3,  1.0 / 2, 1.0};
  const hn::RebindToUnsigned<D> du;
  const V to_integer = hn::Set(d, 0x1.8p52);  // pushes the fraction out of the significand
  const V shifted = hn::MulAdd(x, hn::Set(d, kPerLn2), to_integer);
  const V n = hn::Sub(shifted, to_integer);
  const V r = hn::NegMulAdd(n, hn::Set(d, kLn2Low), hn::NegMulAdd(n, hn::Set(d, kLn2High), x));
  const V one = hn::Set(d, 1.0);
  V sum = one;
  for (const double reciprocal : kReciprocals) sum = hn::MulAdd(hn::Mul(r, hn::Set(d, reciprocal)), sum, one);
  const auto exponent = hn::ShiftLeft<52>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, 1023)));
  return hn::Mul(sum, hn::BitCast(d, exponent));
}

template <class D>
HWY_INLINE size_t PowersOf(D d, const double* log_base, double exponent, size_t begin, size_t count, double* powers,
                           double* errors) {
  size_t i = begin;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto x = hn::Mul(hn::LoadU(d, log_base + i), hn::Set(d, exponent));
    const auto size = hn::Abs(x);
    const auto within = hn::Le(size, hn::Set(d, 700.0));
    const auto power = Exp(d, hn::IfThenElseZero(within, x));
    hn::StoreU(hn::IfThenElse(within, power, hn::NaN(d)), d, powers + i);
    // 4u|x| from the product's factors and rounding, 4u from Exp; the same again as slack, and for what multiplies it.
    hn::StoreU(hn::Mul(hn::Add(size, hn::Set(d, 8.0)), hn::Set(d, 0x1p-50)), d, errors + i);
  }
  return i;
}

void PowersOfAll(const double* log_base, double exponent, size_t count, double* powers, double* errors) {
  const size_t rest = PowersOf(hn::ScalableTag<double>(), log_base, exponent, 0, count, powers, errors);
  PowersOf(hn::CappedTag<double, 1>(), log_base, exponent, rest, count, powers, errors);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(PowersOfAll);

void Powers(const double* log_base, double exponent, size_t count, double* powers, double* errors) {
  HWY_DYNAMIC_DISPATCH(PowersOfAll)(log_base, exponent, count, powers, errors);
}

}  // namespace posenc
#endif  // HWY_ONCE

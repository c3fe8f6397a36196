#include "posenc/kernels/powers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/powers.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "posenc/kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
    // 4u|x| from the product's factors and rounding, 4u from Exp; then slack for the caller's arithmetic.
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

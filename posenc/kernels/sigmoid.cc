#include "posenc/kernels/sigmoid.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/sigmoid.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "posenc/kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE size_t SigmoidWhole(D d, double* values, size_t begin, size_t count) {
  const auto one = hn::Set(d, 1.0), most = hn::Set(d, 700.0);
  size_t n = begin;
  for (; n + hn::Lanes(d) <= count; n += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, values + n);
    const auto magnitude = hn::Abs(x);
    const auto within = hn::Le(magnitude, most);
    const auto power = hn::IfThenElseZero(within, Exp(d, hn::Neg(hn::IfThenElseZero(within, magnitude))));
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

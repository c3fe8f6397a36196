#include "posenc/methods/rope/xpos.h"

#include <fmt/format.h>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/exact/arithmetic.h"

namespace posenc {
namespace {

// zeta as lucidrains' and x-transformers' code computes it: (arange(0, d, 2) + 0.4 * d) / (1.4 * d).
template <class A>
std::vector<typename A::Element> Zeta(int64_t rotary_dim) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const S d(static_cast<double>(rotary_dim));
  const E shift(S(2.0) / S(5.0) * d), divisor(S(7.0) / S(5.0) * d);
  std::vector<E> zeta;
  for (int64_t i = 0; i < rotary_dim; i += 2) zeta.push_back((E(static_cast<double>(i)) + shift) / divisor);
  return zeta;
}

}  // namespace

absl::Status Complete(Xpos& xpos) {
  if (!xpos.scale_base) xpos.scale_base = 512;
  POSENC_RETURN_IF_ERROR(CheckPositive("scale_base", *xpos.scale_base));
  if (!xpos.centre) {
    return InvalidArgument("MISSING", "centre", "", "must be given: it is often half of the longest length");
  }
  return CheckFinite("centre", *xpos.centre);
}

XposPlan MakeXposPlan(Frequencies arithmetic, const Xpos& xpos, int64_t rotary_dim) {
  XposPlan plan{*xpos.centre, *xpos.scale_base, rotary_dim, {}, {}};
  plan.zeta = Evaluate(arithmetic, [&](auto a) { return Values<decltype(a)>{Zeta<decltype(a)>(rotary_dim), {}}; }).list;
  if (arithmetic != Frequencies::kExact) {
    for (double zeta : plan.zeta) plan.log_zeta.push_back(RoundedLog<double>(zeta));
    return plan;
  }
  plan.log_zeta = Evaluate(arithmetic, [&](auto a) {
                    auto logs = Zeta<decltype(a)>(rotary_dim);
                    for (auto& x : logs) x = Log(x);
                    return Values<decltype(a)>{std::move(logs), {}};
                  }).list;
  return plan;
}

}  // namespace posenc

// NTK-aware scaling by a fixed factor s, as in vLLM:
//
//   f_i = (theta*s)^(-2i/d) / s^(2/d)      with mixed_b = b: f_i = theta^(-2i/d) / exp(A (i+1)^b),  A = ln s / (d/2)^b
//
// In vLLM ln s is a 0-dimensional tensor, and the power of d/2 is computed in Python.
#include "posenc/methods/rope/rope.h"

#include "posenc/base/status.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const RopeParameters& p = input.parameters;
  const S theta(*p.rope_theta), s(*p.factor), d(input.dim);
  std::vector<E> inv_freq = ThetaPowers<A>(E(p.mixed_b ? theta : theta * s), input.dim, input.pairs);
  if (!p.mixed_b) {
    const E divisor(Pow(s, S(2.0) / d));
    for (E& f : inv_freq) f = E(1.0) / f / divisor;
  } else {
    const E a = Log(E(s)) / E(Pow(d / S(2.0), S(*p.mixed_b)));
    for (size_t i = 0; i < inv_freq.size(); ++i) {
      const E power = Pow(E(static_cast<double>(i + 1)), E(S(*p.mixed_b)));
      inv_freq[i] = E(1.0) / inv_freq[i] / Exp(a * power);
    }
  }
  return RopeValues<A>(std::move(inv_freq));
}

absl::Status Complete(RopeParameters& p, const RopeInput&) {
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "ntk"));
  return RequireAtLeast("factor", *p.factor, 1);
}

}  // namespace

RopeMethod NtkRope() {
  return {
      .rope_type = "ntk",
      .reads = {"factor", "mixed_b"},
      .complete = Complete,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc

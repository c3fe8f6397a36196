// NTK-aware scaling by a fixed alpha (Hunyuan; lucidrains' theta_rescale_factor): f_i = theta'^(-2i/d) with
//
//   theta' = theta * alpha^(d/(d-2))
//
// independent of the sequence length.
#include "posenc/methods/rope/rope.h"

#include "posenc/base/checks.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const S d(input.dim);
  const S theta = S(*input.parameters.rope_theta) * Pow(S(*input.parameters.alpha), d / (d - S(2.0)));
  std::vector<E> inv_freq = ThetaPowers<A>(E(theta), input.dim, input.pairs);
  for (E& f : inv_freq) f = E(1.0) / f;
  return RopeValues<A>(std::move(inv_freq));
}

absl::Status Complete(RopeParameters& p, const RopeInput& input) {
  POSENC_RETURN_IF_ERROR(Require("alpha", p.alpha, "ntk_alpha"));
  POSENC_RETURN_IF_ERROR(CheckPositive("alpha", *p.alpha));
  return RequireAboveTwo(input, "ntk_alpha");
}

}  // namespace

RopeMethod NtkAlphaRope() {
  return {
      .rope_type = "ntk_alpha",
      .reads = {"alpha"},
      .complete = Complete,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc

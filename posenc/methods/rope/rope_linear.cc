// Position interpolation (arXiv:2306.15595) as transformers does it: every frequency divided by s = factor.
// Dividing the positions instead is the same over the real numbers, but not in float32 (docs/accuracy.md).
#include "posenc/methods/rope/rope.h"

#include "posenc/base/checks.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using E = typename A::Element;
  const E factor(*input.parameters.factor);
  std::vector<E> inv_freq = ThetaPowers<A>(E(*input.parameters.rope_theta), input.dim, input.pairs);
  for (E& f : inv_freq) f = E(1.0) / f / factor;
  return RopeValues<A>(std::move(inv_freq));
}

absl::Status Complete(RopeParameters& p, const RopeInput&) {
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "linear"));
  return CheckPositive("factor", *p.factor);
}

}  // namespace

RopeMethod LinearRope() {
  return {
      .rope_type = "linear",
      .reads = {"factor"},
      .complete = Complete,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc

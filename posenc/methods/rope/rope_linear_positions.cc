// Position interpolation (arXiv:2306.15595) as older transformers, vLLM and lucidrains do it: every position divided by
// s = factor. Over the real numbers that equals "linear", so kExact divides the frequencies. Other arithmetics divide
// the positions, in their own type.
#include "posenc/methods/rope/rope.h"

#include <type_traits>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using E = typename A::Element;
  constexpr bool kExact = std::is_same_v<A, ExactArithmetic>;
  const E factor(*input.parameters.factor);
  std::vector<E> inv_freq = ThetaPowers<A>(E(*input.parameters.rope_theta), input.dim, input.pairs);
  for (E& f : inv_freq) f = kExact ? E(1.0) / f / factor : E(1.0) / f;
  return RopeValues<A>(std::move(inv_freq), 1.0, 1.0, kExact ? 1.0 : *input.parameters.factor);
}

absl::Status Complete(RopeParameters& p, const RopeInput&) {
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "linear_positions"));
  return CheckPositive("factor", *p.factor);
}

}  // namespace

RopeMethod LinearPositionsRope() {
  return {
      .rope_type = "linear_positions",
      .reads = {"factor"},
      .complete = Complete,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc

// Proportional RoPE (Gemma 4): the width stays d. The first k = int(partial_rotary_factor * d / 2) pairs have frequency
// theta^(-2i/d) / s, the others 0.
#include "posenc/methods/rope/rope.h"

#include <cmath>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using E = typename A::Element;
  const RopeParameters& p = input.parameters;
  const double turning = std::floor(*p.partial_rotary_factor * input.dim / 2);
  const E factor(*p.factor);
  std::vector<E> inv_freq =
      ThetaPowers<A>(E(*p.rope_theta), input.dim,
                     turning < static_cast<double>(input.pairs) ? static_cast<int64_t>(turning) : input.pairs);
  for (E& f : inv_freq) f = E(1.0) / f / factor;
  inv_freq.resize(input.pairs, E(0.0));
  return RopeValues<A>(std::move(inv_freq));
}

absl::Status Complete(RopeParameters& p, const RopeInput&) {
  if (!p.partial_rotary_factor) p.partial_rotary_factor = 1;
  if (!p.factor) p.factor = 1;
  return CheckPositive("factor", *p.factor);
}

}  // namespace

RopeMethod ProportionalRope() {
  return {
      .rope_type = "proportional",
      .reads = {"factor", "partial_rotary_factor"},
      .complete = Complete,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc

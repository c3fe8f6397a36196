// Rotary embedding as in RoFormer (arXiv:2104.09864): f_i = theta^(-2i/d).
#include "posenc/methods/rope/rope.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using E = typename A::Element;
  std::vector<E> inv_freq = ThetaPowers<A>(E(*input.parameters.rope_theta), input.dim, input.pairs);
  for (E& f : inv_freq) f = E(1.0) / f;
  return RopeValues<A>(std::move(inv_freq));
}

}  // namespace

RopeMethod DefaultRope() {
  return {
      .rope_type = "default",
      .reads = {},
      .complete = [](RopeParameters&, const RopeInput&) { return absl::OkStatus(); },
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc

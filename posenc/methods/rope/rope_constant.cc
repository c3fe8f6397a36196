// lucidrains' constant frequencies: all 1, so that the position is the angle.
#include "posenc/methods/rope/rope.h"

#include "posenc/base/status.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  return RopeValues<A>(std::vector<typename A::Element>(input.pairs, 1.0));
}

}  // namespace

RopeMethod ConstantRope() {
  return {
      .rope_type = "constant",
      .reads = {},
      .complete = [](RopeParameters&, const RopeInput&) { return absl::OkStatus(); },
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
      .has_theta = false,
  };
}

}  // namespace posenc

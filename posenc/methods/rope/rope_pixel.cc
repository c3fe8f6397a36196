// lucidrains' pixel frequencies for positions from -1 to 1: evenly spaced from pi to pi * max_freq/2. As in
// torch.linspace, the first half is computed from the start, the second half from the end. A single pair gets the
// start.
#include "posenc/methods/rope/rope.h"

#include "posenc/base/checks.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const E start(1.0), end{S(*input.parameters.max_freq) / S(2.0)}, pi{S::Pi()};
  const auto count = [](int64_t n) { return E(static_cast<double>(n)); };
  std::vector<E> inv_freq(input.pairs, start * pi);
  if (input.pairs > 1) {
    const E step = (end - start) / count(input.pairs - 1);
    for (int64_t i = 0; i < input.pairs; ++i) {
      const bool up = i < input.pairs / 2;
      inv_freq[i] = (up ? start + step * count(i) : end - step * count(input.pairs - 1 - i)) * pi;
    }
  }
  return RopeValues<A>(std::move(inv_freq));
}

absl::Status Complete(RopeParameters& p, const RopeInput&) {
  if (!p.max_freq) p.max_freq = 10;
  return CheckPositive("max_freq", *p.max_freq);
}

}  // namespace

RopeMethod PixelRope() {
  return {
      .rope_type = "pixel",
      .reads = {"max_freq"},
      .complete = Complete,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
      .has_theta = false,
  };
}

}  // namespace posenc

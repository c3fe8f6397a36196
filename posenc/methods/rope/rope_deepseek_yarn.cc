// YaRN as in DeepSeek's own code: transformers' frequencies, but the attention scaling is always
// m(s, mscale) / m(s, mscale_all_dim). transformers uses both only if neither is 0: for mscale 0.707, mscale_all_dim 0
// and s = 40 it has 1.36889 instead of 1.26080.
#include "posenc/methods/rope/rope.h"

#include "posenc/base/status.h"
#include "posenc/methods/rope/yarn_ramp.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using S = typename A::Scalar;
  const RopeParameters& p = input.parameters;
  const S s(*p.factor), all_dim = YarnMagnitude<S>(s, *p.mscale_all_dim);
  return RopeValues<A>(YarnFrequencies<A>(input, /*truncate=*/true), YarnMagnitude<S>(s, *p.mscale) / all_dim,
                       all_dim * all_dim);
}

absl::Status Complete(RopeParameters& p, const RopeInput&) {
  if (!p.mscale) p.mscale = 1;
  if (!p.mscale_all_dim) p.mscale_all_dim = 0;
  return CompleteYarn(p, "deepseek_yarn");
}

}  // namespace

RopeMethod DeepseekYarnRope() {
  return {
      .rope_type = "deepseek_yarn",
      .reads = {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"},
      .complete = Complete,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc

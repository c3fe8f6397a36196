// YaRN (arXiv:2309.00071) with DeepSeek's magnitudes, as transformers computes them, and gpt-oss's truncate.
#include "posenc/methods/rope/rope.h"

#include "posenc/base/status.h"
#include "posenc/methods/rope/yarn_ramp.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using S = typename A::Scalar;
  const RopeParameters& p = input.parameters;
  const S s(*p.factor);
  const double mscale = p.mscale.value_or(0), mscale_all_dim = p.mscale_all_dim.value_or(0);
  S attention_scaling(1.0);
  if (p.attention_factor) {
    attention_scaling = S(*p.attention_factor);
  } else if (mscale != 0 && mscale_all_dim != 0) {
    attention_scaling = YarnMagnitude<S>(s, mscale) / YarnMagnitude<S>(s, mscale_all_dim);
  } else {
    attention_scaling = YarnMagnitude<S>(s, 1.0);
  }
  S softmax_scale_factor(1.0);
  if (mscale_all_dim != 0) {
    const S m = YarnMagnitude<S>(s, mscale_all_dim);
    softmax_scale_factor = m * m;
  }
  return RopeValues<A>(YarnFrequencies<A>(input, *p.truncate), attention_scaling, softmax_scale_factor);
}

absl::Status Complete(RopeParameters& p, const RopeInput& input) {
  if (!p.factor && input.max_position_embeddings && p.original_max_position_embeddings) {
    p.factor = *input.max_position_embeddings / *p.original_max_position_embeddings;
  }
  if (!p.truncate) p.truncate = true;
  POSENC_RETURN_IF_ERROR(CompleteYarn(p, "yarn"));
  return RequireAtLeast("attention_factor", p.attention_factor.value_or(1), 0);
}

}  // namespace

RopeMethod YarnRope() {
  return {
      .rope_type = "yarn",
      .reads = {"factor", "max_position_embeddings", "original_max_position_embeddings", "attention_factor",
                "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
      .complete = Complete,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc

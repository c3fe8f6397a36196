// YaRN as in transformers and as in DeepSeek's own code. rope_ggml_yarn.cc has llama.cpp's.
#include <fmt/format.h>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/methods/rope/rope.h"
#include "posenc/methods/rope/yarn_ramp.h"

namespace posenc {

absl::Status CompleteYarn(RopeParameters& p, std::string_view rope_type) {
  POSENC_RETURN_IF_ERROR(Require("original_max_position_embeddings", p.original_max_position_embeddings, rope_type));
  POSENC_RETURN_IF_ERROR(CheckPositive("original_max_position_embeddings", *p.original_max_position_embeddings));
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, rope_type));
  POSENC_RETURN_IF_ERROR(CheckPositive("factor", *p.factor));
  if (*p.rope_theta == 1) {
    return InvalidArgument("OUT_OF_RANGE", "rope_theta", "1",
                           fmt::format("must not be 1: rope_type \"{}\" divides by ln(rope_theta)", rope_type));
  }
  if (!p.beta_fast) p.beta_fast = 32;
  if (!p.beta_slow) p.beta_slow = 1;
  POSENC_RETURN_IF_ERROR(CheckPositive("beta_slow", *p.beta_slow));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("beta_fast", *p.beta_fast, "beta_slow", *p.beta_slow));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("mscale", p.mscale.value_or(0), 0));
  return RequireAtLeast("mscale_all_dim", p.mscale_all_dim.value_or(0), 0);
}

namespace {

// YaRN (arXiv:2309.00071) with DeepSeek's magnitudes, as transformers computes them, and gpt-oss's truncate.
template <class A>
Values<A> TransformersYarnFormula(const RopeInput& input) {
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

absl::Status CompleteTransformersYarn(RopeParameters& p, const RopeInput& input) {
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
      .complete = CompleteTransformersYarn,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return TransformersYarnFormula<decltype(a)>(input); });
          },
      .blends = true,
  };
}

namespace {

// YaRN as in DeepSeek's own code: transformers' frequencies, but the attention scaling is always
// m(s, mscale) / m(s, mscale_all_dim). transformers uses both only if neither is 0: for mscale 0.707, mscale_all_dim 0
// and s = 40 it has 1.36889 instead of 1.26080.
template <class A>
Values<A> DeepseekYarnFormula(const RopeInput& input) {
  using S = typename A::Scalar;
  const RopeParameters& p = input.parameters;
  const S s(*p.factor), all_dim = YarnMagnitude<S>(s, *p.mscale_all_dim);
  return RopeValues<A>(YarnFrequencies<A>(input, /*truncate=*/true), YarnMagnitude<S>(s, *p.mscale) / all_dim,
                       all_dim * all_dim);
}

absl::Status CompleteDeepseekYarn(RopeParameters& p, const RopeInput&) {
  if (!p.mscale) p.mscale = 1;
  if (!p.mscale_all_dim) p.mscale_all_dim = 0;
  return CompleteYarn(p, "deepseek_yarn");
}

}  // namespace

RopeMethod DeepseekYarnRope() {
  return {
      .rope_type = "deepseek_yarn",
      .reads = {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"},
      .complete = CompleteDeepseekYarn,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return DeepseekYarnFormula<decltype(a)>(input); });
          },
      .blends = true,
  };
}

}  // namespace posenc

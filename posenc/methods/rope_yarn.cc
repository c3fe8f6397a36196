// YaRN (arXiv:2309.00071) with DeepSeek's magnitudes and gpt-oss's truncate.
//
// Pair i turns L0*f_i/(2 pi) times within the original context L0. Pairs that turn beta_fast times or more keep their
// frequency, those that turn beta_slow times or fewer get f_i/s, and a linear ramp over i mixes the two in between.
#include "posenc/methods/rope_yarn.h"

#include <algorithm>

#include "posenc/status.h"

namespace posenc {
namespace {

// DeepSeek's magnitude: 0.1 k ln s + 1 for s > 1.
template <class S>
S Magnitude(const S& s, const S& k) {
  if (s <= S(1.0)) return S(1.0);
  return S(1.0) / S(10.0) * k * Log(s) + S(1.0);
}

// The (fractional) pair that turns `rotations` times within L0.
template <class A>
typename A::Scalar CorrectionDim(double rotations, const RopeInput& input) {
  using S = typename A::Scalar;
  const S d(static_cast<double>(input.rotary_dim));
  const S turns = S(*input.parameters.original_max_position_embeddings) / (S(rotations) * S(2.0) * S::Pi());
  return d * Log(turns) / (S(2.0) * Log(S(*input.parameters.rope_theta)));
}

template <class A>
Values<A> Formula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const RopeParameters& p = input.parameters;
  const S s(*p.factor);

  S low = CorrectionDim<A>(*p.beta_fast, input);
  S high = CorrectionDim<A>(*p.beta_slow, input);
  if (*p.truncate) {
    low = Floor(low);
    high = Ceil(high);
  }
  const S last(static_cast<double>(input.rotary_dim - 1));  // d-1, not d/2-1: as released
  if (low < S(0.0)) low = S(0.0);
  if (high > last) high = last;
  if (low == high) high = high + S(1.0) / S(1000.0);
  const E start(low), length(high - low);

  std::vector<E> inv_freq = ThetaPowers<A>(E(*p.rope_theta), input.rotary_dim);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const E power = inv_freq[i];
    E ramp = (E(static_cast<double>(i)) - start) / length;
    if (ramp < E(0.0)) ramp = E(0.0);
    if (ramp > E(1.0)) ramp = E(1.0);
    const E kept = E(1.0) - ramp;
    inv_freq[i] = E(1.0) / (E(s) * power) * (E(1.0) - kept) + E(1.0) / power * kept;
  }

  const double mscale = p.mscale.value_or(0), mscale_all_dim = p.mscale_all_dim.value_or(0);
  S attention_scaling(1.0);
  if (p.attention_factor) {
    attention_scaling = S(*p.attention_factor);
  } else if (mscale != 0 && mscale_all_dim != 0) {
    attention_scaling = Magnitude<S>(s, mscale) / Magnitude<S>(s, mscale_all_dim);
  } else {
    attention_scaling = Magnitude<S>(s, 1.0);
  }
  S softmax_scale_factor(1.0);
  if (mscale_all_dim != 0) {
    const S m = Magnitude<S>(s, mscale_all_dim);
    softmax_scale_factor = m * m;
  }
  return RopeValues<A>(std::move(inv_freq), attention_scaling, softmax_scale_factor);
}

absl::Status Complete(RopeParameters& p, const RopeInput& input) {
  POSENC_RETURN_IF_ERROR(Require("original_max_position_embeddings", p.original_max_position_embeddings, "yarn"));
  POSENC_RETURN_IF_ERROR(RequirePositive("original_max_position_embeddings", *p.original_max_position_embeddings));
  if (!p.factor && input.max_position_embeddings) {
    p.factor = *input.max_position_embeddings / *p.original_max_position_embeddings;
  }
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "yarn"));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("factor", *p.factor, 1));
  if (*p.rope_theta == 1) {
    return InvalidArgument("OUT_OF_RANGE", "rope_theta", "1",
                           "rope_type \"yarn\" divides by ln(rope_theta): must not be 1");
  }
  if (!p.beta_fast) p.beta_fast = 32;
  if (!p.beta_slow) p.beta_slow = 1;
  if (!p.truncate) p.truncate = true;
  POSENC_RETURN_IF_ERROR(RequirePositive("beta_slow", *p.beta_slow));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("beta_fast", *p.beta_fast, *p.beta_slow));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("attention_factor", p.attention_factor.value_or(1), 0));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("mscale", p.mscale.value_or(0), 0));
  return RequireAtLeast("mscale_all_dim", p.mscale_all_dim.value_or(0), 0);
}

}  // namespace

RopeMethod YarnRope() {
  return {
      .rope_type = "yarn",
      .reads = {"factor", "max_position_embeddings", "original_max_position_embeddings", "attention_factor",
                "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
      .complete = Complete,
      .needs_seq_len = NeverNeedsSeqLen,
      .branch = NoBranch,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc

// YaRN as in ggml (llama.cpp). With u_i = f_i / freq_factors_i, e = ext_factor and the ramp's r from 0 to 1,
//
//   f_i = u_i/s * (1 - m) + u_i * m,   m = (1 - r) e,   a = attn_factor * (1 + 0.1 ln s)      for e != 0
//   f_i = u_i/s,                                        a = attn_factor                      for e == 0
//
// ggml computes everything in float32, and powers of theta as products of theta^(-2/d). It scales angles, this code
// scales frequencies; over the real numbers the results are equal. There f_i = u_i/s * (1 + (s-1) m), whose terms are
// positive: for large e and s near 1 the terms of ggml's sum cancel.
#include "posenc/methods/rope/rope.h"

#include "posenc/base/status.h"
#include "posenc/methods/rope/yarn_ramp.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using E = typename A::Element;
  const RopeParameters& p = input.parameters;
  const E ext_factor(*p.ext_factor), freq_scale = E(1.0) / E(*p.factor);
  const bool extrapolates = *p.ext_factor != 0;
  E low(0.0), length(1.0), attention_scaling(*p.attn_factor);
  if (extrapolates) {
    const YarnRamp<E> ramp(input, /*truncate=*/true);
    const E shortest = E(1.0) / E(1000.0);
    low = ramp.low;
    length = ramp.high - ramp.low;
    if (length < shortest) length = shortest;
    attention_scaling = attention_scaling * (E(1.0) + E(1.0) / E(10.0) * Log(E(1.0) / freq_scale));
  }

  const E theta_scale = Pow(E(*p.rope_theta), E(-2.0) / E(input.dim));
  std::vector<E> inv_freq;
  E power(1.0);
  for (int64_t i = 0; i < input.pairs; ++i) {
    const E kept = p.freq_factors.empty() ? power : power / E(p.freq_factors[i]);
    const E scaled = freq_scale * kept;
    const E mix = (E(1.0) - RampAt(i, low, length)) * ext_factor;
    if (!extrapolates) {
      inv_freq.push_back(scaled);
    } else if constexpr (kOverReals<A>) {
      inv_freq.push_back(scaled * (E(1.0) + (E(*p.factor) - E(1.0)) * mix));
    } else {
      inv_freq.push_back(scaled * (E(1.0) - mix) + kept * mix);
    }
    power = power * theta_scale;
  }
  return RopeValues<A>(std::move(inv_freq), typename A::Scalar(attention_scaling));
}

absl::Status Complete(RopeParameters& p, const RopeInput& input) {
  if (!p.ext_factor) p.ext_factor = 1;
  if (!p.attn_factor) p.attn_factor = 1;
  POSENC_RETURN_IF_ERROR(RequireAtLeast("ext_factor", *p.ext_factor, 0));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("attn_factor", *p.attn_factor, 0));
  if (!p.freq_factors.empty()) {
    POSENC_RETURN_IF_ERROR(RequireFactors("freq_factors", p.freq_factors, input.pairs));
  }
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "ggml_yarn"));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("factor", *p.factor, 1));
  return *p.ext_factor != 0 ? CompleteYarn(p, "ggml_yarn") : absl::OkStatus();
}

}  // namespace

RopeMethod GgmlYarnRope() {
  return {
      .rope_type = "ggml_yarn",
      .reads = {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "ext_factor", "attn_factor",
                "freq_factors"},
      .complete = Complete,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
      .blends = true,
  };
}

}  // namespace posenc

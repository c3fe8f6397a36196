// Frequency ramp shared by all kinds of YaRN (arXiv:2309.00071).
//
// Pair i makes L0*f_i/(2 pi) rotations within the original context L0. Pairs with beta_fast rotations or more keep
// their frequency, those with beta_slow or fewer get f_i/s, and a linear ramp over i mixes the two in between.
#pragma once

#include <vector>

#include "posenc/methods/rope/rope.h"

namespace posenc {

// Returns DeepSeek's magnitude: 0.1 k ln s + 1 for s > 1, otherwise 1.
template <class S>
S YarnMagnitude(const S& s, const S& k) {
  if (s <= S(1.0)) return S(1.0);
  return S(1.0) / S(10.0) * k * Log(s) + S(1.0);
}

// Returns the (fractional) index of the pair that makes `rotations` rotations within L0.
template <class S>
S CorrectionDim(double rotations, const RopeInput& input) {
  const S turns = S(*input.parameters.original_max_position_embeddings) / (S(rotations) * S(2.0) * S::Pi());
  return S(input.dim) * Log(turns) / (S(2.0) * Log(S(*input.parameters.rope_theta)));
}

// Pair indices at which the ramp starts and ends.
template <class S>
struct YarnRamp {
  S low, high;

  YarnRamp(const RopeInput& input, bool truncate)
      : low(CorrectionDim<S>(*input.parameters.beta_fast, input)),
        high(CorrectionDim<S>(*input.parameters.beta_slow, input)) {
    if (truncate) {
      low = Floor(low);
      high = Ceil(high);
    }
    const S last(input.dim - 1);  // d-1, not d/2-1: as in the released code
    if (low < S(0.0)) low = S(0.0);
    if (high > last) high = last;
  }
};

// Returns the height of the ramp at pair i, clamped to 0 .. 1.
template <class E>
E RampAt(size_t i, const E& start, const E& length) {
  const E ramp = (E(static_cast<double>(i)) - start) / length;
  return ramp < E(0.0) ? E(0.0) : ramp > E(1.0) ? E(1.0) : ramp;
}

// Returns the frequencies as transformers and DeepSeek's code compute them.
template <class A>
std::vector<typename A::Element> YarnFrequencies(const RopeInput& input, bool truncate) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  YarnRamp<S> ramp(input, truncate);
  if (ramp.low == ramp.high) ramp.high = ramp.high + S(1.0) / S(1000.0);
  const E start(ramp.low), length(ramp.high - ramp.low), s{S(*input.parameters.factor)};
  std::vector<E> inv_freq = ThetaPowers<A>(E(*input.parameters.rope_theta), input.dim, input.pairs);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const E power = inv_freq[i];
    const E kept = E(1.0) - RampAt(i, start, length);
    inv_freq[i] = E(1.0) / (s * power) * (E(1.0) - kept) + E(1.0) / power * kept;
  }
  return inv_freq;
}

// Fills in defaults of beta_fast and beta_slow. Returns INVALID_ARGUMENT naming the field that is missing or out of
// range.
absl::Status CompleteYarn(RopeParameters& parameters, std::string_view rope_type);

}  // namespace posenc

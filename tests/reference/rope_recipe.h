// Reference: what transformers 5.23 does, operation by operation, for each rotary scaling.
//
// T is the tensors' number, P Python's: Number<24> and Number<53> are what torch and CPython do, if every step is
// rounded correctly; Number<300> for both is the formula over the real numbers. Where a Python number meets a tensor it
// is first rounded to the tensor's type, with one exception: see Dynamic. number / tensor is reciprocal(tensor) *
// number.
#pragma once

#include <algorithm>
#include <vector>

#include "posenc/spec.h"
#include "tests/reference/mpfr_number.h"

namespace posenc::reference {

template <class T, class P>
struct RopeRecipe {
  const RopeParameters& p;
  int d;              // rotary width
  double max_length;  // max_position_embeddings
  double seq_len;

  std::vector<T> inv_freq;
  P attention_scaling = P(1);
  P softmax_scale_factor = P(1);

  void Compute() {
    if (p.rope_type == "default") inv_freq = Default(T(Theta()));
    if (p.rope_type == "linear") Linear();
    if (p.rope_type == "dynamic") Dynamic();
    if (p.rope_type == "ntk_alpha") inv_freq = Default(T(P(Theta()) * Pow(P(*p.alpha), P(d) / (P(d) - P(2)))));
    if (p.rope_type == "yarn") Yarn();
    if (p.rope_type == "longrope") Longrope();
    if (p.rope_type == "llama3") Llama3();
  }

 private:
  double Theta() const { return p.rope_theta.value_or(10000); }

  // base ** (arange(0, d, 2) / d)
  T Power(const T& base, int i) const { return Pow(base, T(2 * i) / T(d)); }

  std::vector<T> Default(const T& base) const {
    std::vector<T> result;
    for (int i = 0; i < d / 2; ++i) result.push_back(T(1) / Power(base, i));
    return result;
  }

  void Linear() {
    inv_freq = Default(T(Theta()));
    for (T& f : inv_freq) f = f / T(*p.factor);
  }

  // seq_len is a tensor without dimensions. torch raises such a tensor to a Python number in float64.
  void Dynamic() {
    if (!(seq_len > max_length)) {
      inv_freq = Default(T(Theta()));
      return;
    }
    const P exponent = P(d) / (P(d) - P(2));
    const T bracket = T(*p.factor) * T(seq_len) / T(max_length) - T(P(*p.factor) - P(1));
    inv_freq = Default(T(Theta()) * T(Pow(P(bracket), exponent)));
  }

  // get_mscale
  static P Magnitude(const P& scale, const P& mscale) {
    if (!(scale > P(1))) return P(1);
    return P(1) / P(10) * mscale * Log(scale) + P(1);
  }

  P CorrectionDim(double rotations) const {
    const P length(*p.original_max_position_embeddings);
    return P(d) * Log(length / (P(rotations) * P(2) * P::Pi())) / (P(2) * Log(P(Theta())));
  }

  void Yarn() {
    const P scale = p.factor ? P(*p.factor) : P(max_length / *p.original_max_position_embeddings);
    const double mscale = p.mscale.value_or(0), all = p.mscale_all_dim.value_or(0);
    if (p.attention_factor) {
      attention_scaling = P(*p.attention_factor);
    } else if (mscale != 0 && all != 0) {
      attention_scaling = Magnitude(scale, P(mscale)) / Magnitude(scale, P(all));
    } else {
      attention_scaling = Magnitude(scale, P(1));
    }
    if (all != 0) softmax_scale_factor = Magnitude(scale, P(all)) * Magnitude(scale, P(all));

    P low = CorrectionDim(p.beta_fast.value_or(32)), high = CorrectionDim(p.beta_slow.value_or(1));
    if (p.truncate.value_or(true)) {
      low = Floor(low);
      high = Ceil(high);
    }
    if (low < P(0)) low = P(0);
    if (high > P(d - 1)) high = P(d - 1);
    if (low == high) high = high + P(1) / P(1000);
    for (int i = 0; i < d / 2; ++i) {
      T ramp = (T(i) - T(low)) / T(high - low);
      if (ramp < T(0)) ramp = T(0);
      if (ramp > T(1)) ramp = T(1);
      const T extrapolation_factor = T(1) - ramp;
      const T power = Power(T(Theta()), i);
      const T extrapolation = T(1) / power;
      const T interpolation = T(1) / (T(scale) * power);
      inv_freq.push_back(interpolation * (T(1) - extrapolation_factor) + extrapolation * extrapolation_factor);
    }
  }

  void Longrope() {
    const double length = *p.original_max_position_embeddings;
    const bool is_long = p.longrope_branch == LongropeBranch::kLong ||
                         (p.longrope_branch == LongropeBranch::kBySeqLen && seq_len > length);
    const std::vector<double>& factors = is_long ? p.long_factor : p.short_factor;
    for (int i = 0; i < d / 2; ++i) inv_freq.push_back(T(1) / (T(factors[i]) * Power(T(Theta()), i)));
    const double scale = p.factor.value_or(max_length / length);
    if (p.attention_factor) {
      attention_scaling = P(*p.attention_factor);
    } else if (scale > 1) {
      attention_scaling = Sqrt(P(1) + Log(P(scale)) / Log(P(length)));
    }
  }

  void Llama3() {
    const P length(*p.original_max_position_embeddings), lo(*p.low_freq_factor), hi(*p.high_freq_factor);
    for (const T& f : Default(T(Theta()))) {
      const T wavelength = T(1) / f * T(P(2) * P::Pi());
      const bool above = wavelength > T(length / lo), below = wavelength < T(length / hi);
      T result = above ? f / T(*p.factor) : f;
      if (!above && !below && !(lo == hi)) {
        const T smooth = (T(1) / wavelength * T(length) - T(lo)) / T(hi - lo);
        result = (T(1) - smooth) * f / T(*p.factor) + smooth * f;
      }
      inv_freq.push_back(result);
    }
  }
};

}  // namespace posenc::reference

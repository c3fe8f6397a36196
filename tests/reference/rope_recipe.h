// Reference: the operations of transformers 5.23 (for its own scalings), vLLM, DeepSeek's code, ggml and lucidrains.
//
// T is the tensors' number, P is Python's: Number<24> and Number<53> behave like torch and CPython if every step is
// rounded correctly; Number<300> for both is the formula over the real numbers. A Python number that meets a tensor is
// first rounded to the tensor's type, except in Dynamic. number / tensor is reciprocal(tensor) * number.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "posenc/settings/settings.h"
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
  P position_divisor = P(1);

  void Compute() {
    const P width(Width());
    if (p.rope_type == "default") inv_freq = Default(T(Theta()));
    if (p.rope_type == "linear") Linear();
    if (p.rope_type == "dynamic") Dynamic();
    if (p.rope_type == "linear_positions") {
      inv_freq = Default(T(Theta()));
      position_divisor = P(*p.factor);
    }
    if (p.rope_type == "ntk_alpha") inv_freq = Default(T(P(Theta()) * Pow(P(*p.alpha), width / (width - P(2)))));
    if (p.rope_type == "qwen_ntk") Steps(seq_len);
    if (p.rope_type == "telechat_ntk") Steps(std::max(seq_len, max_length));
    if (p.rope_type == "ntk") Ntk();
    if (p.rope_type == "yarn" || p.rope_type == "deepseek_yarn") Yarn();
    if (p.rope_type == "ggml_yarn") GgmlYarn();
    if (p.rope_type == "longrope") Longrope();
    if (p.rope_type == "llama3") Llama3();
    if (p.rope_type == "proportional") Proportional();
    if (p.rope_type == "pixel") Pixel();
    if (p.rope_type == "constant") inv_freq.assign(d / 2, T(1));
    if (p.negate_angle.value_or(false)) {
      for (T& f : inv_freq) f = T(0) - f;
    }
  }

 private:
  double Theta() const { return p.rope_theta.value_or(10000); }

  // The divisor of the exponents.
  double Width() const { return p.frequency_dim.value_or(d); }

  // Qwen's and TeleChat's NTK: alpha is one less than a power of two.
  void Steps(double length) {
    int exponent = 1;
    while (std::ldexp(*p.original_max_position_embeddings, exponent - 1) < length) ++exponent;
    const P width(Width());
    const P alpha(std::ldexp(1, exponent) - 1);
    inv_freq = Default(T(P(Theta()) * Pow(alpha, width / (width - P(2)))));
    if (p.rope_type == "telechat_ntk" && length > max_length) {
      attention_scaling = P(1) / P(10) * Log(P(length) / P(max_length)) + P(1);
    }
  }

  // base ** (arange(0, d, 2) / d)
  T Power(const T& base, int i) const { return Pow(base, T(2 * i) / T(Width())); }

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
    const P exponent = P(Width()) / (P(Width()) - P(2));
    const T bracket = T(*p.factor) * T(seq_len) / T(max_length) - T(P(*p.factor) - P(1));
    inv_freq = Default(T(Theta()) * T(Pow(P(bracket), exponent)));
  }

  // get_mscale
  static P Magnitude(const P& scale, const P& mscale) {
    if (!(scale > P(1))) return P(1);
    return P(1) / P(10) * mscale * Log(scale) + P(1);
  }

  // N is P, but T for ggml.
  template <class N>
  N CorrectionDim(double rotations) const {
    const N length(*p.original_max_position_embeddings);
    return N(Width()) * Log(length / (N(rotations) * N(2) * N::Pi())) / (N(2) * Log(N(Theta())));
  }

  void Yarn() {
    const P scale = p.factor ? P(*p.factor) : P(max_length / *p.original_max_position_embeddings);
    const double mscale = p.mscale.value_or(0), all = p.mscale_all_dim.value_or(0);
    if (p.rope_type == "deepseek_yarn") {
      attention_scaling = Magnitude(scale, P(p.mscale.value_or(1))) / Magnitude(scale, P(all));
    } else if (p.attention_factor) {
      attention_scaling = P(*p.attention_factor);
    } else if (mscale != 0 && all != 0) {
      attention_scaling = Magnitude(scale, P(mscale)) / Magnitude(scale, P(all));
    } else {
      attention_scaling = Magnitude(scale, P(1));
    }
    if (all != 0) softmax_scale_factor = Magnitude(scale, P(all)) * Magnitude(scale, P(all));

    P low = CorrectionDim<P>(p.beta_fast.value_or(32)), high = CorrectionDim<P>(p.beta_slow.value_or(1));
    if (p.truncate.value_or(true)) {
      low = Floor(low);
      high = Ceil(high);
    }
    if (low < P(0)) low = P(0);
    if (high > P(Width() - 1)) high = P(Width() - 1);
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

  // vLLM's NTKScalingRotaryEmbedding._compute_inv_freq
  void Ntk() {
    const double s = *p.factor;
    if (!p.mixed_b) {
      inv_freq = Default(T(P(Theta()) * P(s)));
      for (T& f : inv_freq) f = f / T(Pow(P(s), P(2) / P(Width())));
      return;
    }
    inv_freq = Default(T(Theta()));
    const T a = Log(T(s)) / T(Pow(P(Width()) / P(2), P(*p.mixed_b)));
    for (int i = 0; i < d / 2; ++i) inv_freq[i] = inv_freq[i] / Exp(a * Pow(T(i + 1), T(*p.mixed_b)));
  }

  // rope_yarn, ggml_rope_yarn_corr_dims and ggml_rope_cache_init, all in float, at position 1.
  void GgmlYarn() {
    const double ext_factor = p.ext_factor.value_or(1);
    const T freq_scale = T(1) / T(*p.factor), tenth = T(1) / T(10), thousandth = T(1) / T(1000);
    const T theta_scale = Pow(T(Theta()), T(-2) / T(Width()));
    T mscale(p.attn_factor.value_or(1)), theta(1), low(0), high(1);
    if (ext_factor != 0) {
      low = Floor(CorrectionDim<T>(p.beta_fast.value_or(32)));
      high = Ceil(CorrectionDim<T>(p.beta_slow.value_or(1)));
      if (low < T(0)) low = T(0);
      if (high > T(Width() - 1)) high = T(Width() - 1);
      mscale = mscale * (T(1) + tenth * Log(T(1) / freq_scale));
    }
    attention_scaling = P(mscale);
    for (int i = 0; i < d / 2; ++i) {
      const T theta_extrap = p.freq_factors.empty() ? theta : theta / T(p.freq_factors[i]);
      const T theta_interp = freq_scale * theta_extrap;
      T y = (T(i) - low) / (high - low > thousandth ? high - low : thousandth);
      if (y < T(0)) y = T(0);
      if (y > T(1)) y = T(1);
      const T ramp_mix = (T(1) - y) * T(ext_factor);
      inv_freq.push_back(ext_factor == 0 ? theta_interp : theta_interp * (T(1) - ramp_mix) + theta_extrap * ramp_mix);
      theta = theta * theta_scale;
    }
  }

  // _compute_proportional_rope_parameters
  void Proportional() {
    const int rope_angles = static_cast<int>(std::floor(p.partial_rotary_factor.value_or(1) * Width() / 2));
    for (int i = 0; i < d / 2; ++i) {
      inv_freq.push_back(i < rope_angles ? T(1) / Power(T(Theta()), i) / T(p.factor.value_or(1)) : T(0));
    }
  }

  // torch.linspace(1., max_freq / 2, dim // 2) * pi
  void Pixel() {
    const int count = d / 2;
    const T end(p.max_freq.value_or(10) / 2);
    for (int i = 0; i < count; ++i) {
      const T step = count > 1 ? (end - T(1)) / T(count - 1) : T(0);
      const bool up = count == 1 || i < count / 2;
      inv_freq.push_back((up ? T(1) + step * T(i) : end - step * T(count - 1 - i)) * T(P::Pi()));
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

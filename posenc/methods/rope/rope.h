// Rotary scalings: the fields, checks and formula of each. methods.h lists them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Inputs of a formula. `parameters` is complete: every default has been filled in.
struct RopeInput {
  const RopeParameters& parameters;
  int64_t pairs;                                  // number of frequencies
  double dim;                                     // d: 2 * pairs, or frequency_dim
  std::optional<double> max_position_embeddings;  // Lmax
  int64_t seq_len = 0;                            // L; read only if needs_seq_len
};

// Order of the scalars of every rotary formula (Values, Numbers). Positions are divided by kPositionDivisor.
enum RopeScalar { kAttentionScaling, kSoftmaxScaleFactor, kPositionDivisor, kRopeScalars };

struct RopeMethod {
  std::string_view rope_type;
  // Fields that the method reads, besides those that all methods read (rotary_plan.cc); they include
  // max_position_embeddings of the settings. A method that lists partial_rotary_factor uses it itself: the rotary width
  // does not change.
  std::vector<std::string_view> reads;
  // Fills in defaults; returns an error if the formula cannot take a value. Numbers are finite already
  // and rope_theta is > 0.
  absl::Status (*complete)(RopeParameters& parameters, const RopeInput& input);
  // True if the frequencies depend on the sequence length.
  bool (*needs_seq_len)(const RopeParameters& parameters) = [](const RopeParameters&) { return false; };
  // Returns the name of the branch that applies to input.seq_len; empty if the formula has only one.
  std::string_view (*branch)(const RopeInput& input) = [](const RopeInput&) { return std::string_view(); };
  // True if the frequencies also differ by length within the branch that applies to input.seq_len.
  bool (*branch_needs_seq_len)(const RopeInput& input) = [](const RopeInput&) { return false; };
  // Returns inv_freq [pairs] as the list, and the scalars in the order of RopeScalar.
  Numbers (*evaluate)(Frequencies arithmetic, const RopeInput& input);
  // True if frequencies are powers of theta, so that the method reads rope_theta and frequency_dim.
  bool has_theta = true;
  bool scales_theta = false;  // the formula is the default one with another theta
  bool blends = false;        // frequencies between kept and interpolated ones are a mixture of both
};

bool Reads(const RopeMethod& method, std::string_view field);

// Returns theta^(2(start + i)/dim) for i = 0 .. pairs-1.
template <class A>
std::vector<typename A::Element> ThetaPowers(typename A::Element theta, double dim, int64_t pairs, double start = 0) {
  using E = typename A::Element;
  std::vector<E> powers;
  for (int64_t i = 0; i < pairs; ++i) {
    powers.push_back(Pow(theta, E(2.0) * (E(start) + E(static_cast<double>(i))) / E(dim)));
  }
  return powers;
}

// Returns theta^(2i/rotary_dim) for 2i = 0, 2, ... below rotary_dim.
template <class A>
std::vector<typename A::Element> ThetaPowers(typename A::Element theta, int64_t rotary_dim) {
  return ThetaPowers<A>(theta, static_cast<double>(rotary_dim), (rotary_dim + 1) / 2);
}

// Returns Values with the given inverse frequencies and scalars, in the order of RopeScalar.
template <class A>
Values<A> RopeValues(std::vector<typename A::Element> inv_freq, typename A::Scalar attention_scaling = 1.0,
                     typename A::Scalar softmax_scale_factor = 1.0, typename A::Scalar position_divisor = 1.0) {
  return {std::move(inv_freq), {attention_scaling, softmax_scale_factor, position_divisor}};
}

// Return INVALID_ARGUMENT if the field is missing, or below `least`.
absl::Status Require(std::string_view name, const std::optional<double>& field, std::string_view rope_type);
absl::Status RequireAtLeast(std::string_view name, double value, double least);
// Returns INVALID_ARGUMENT that names both fields if the first is below the second.
absl::Status RequireAtLeast(std::string_view name, double value, std::string_view other_name, double other);
// Returns INVALID_ARGUMENT unless d > 2: the formula divides by d - 2.
absl::Status RequireAboveTwo(const RopeInput& input, std::string_view rope_type);
// Returns INVALID_ARGUMENT unless `factors` has one positive number per pair.
absl::Status RequireFactors(std::string_view name, const std::vector<double>& factors, int64_t pairs);

// Resonance RoPE (arXiv:2403.00071): returns 2 pi / n, rounded once, where n is the wavelength 2 pi / inv_freq rounded
// to the nearest whole number. Zeros and signs are kept. Returns nullopt if n is 0.
std::optional<double> ResonantFrequency(double inv_freq);

}  // namespace posenc

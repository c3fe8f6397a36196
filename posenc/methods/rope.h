// The rotary scalings: what each reads, refuses and computes. methods/methods.h lists them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "posenc/arithmetic.h"
#include "posenc/spec.h"

namespace posenc {

// What a formula may depend on. `parameters` is complete: every default has been filled in.
struct RopeInput {
  const RopeParameters& parameters;
  int64_t rotary_dim;                             // d, even
  std::optional<double> max_position_embeddings;  // Lmax
  int64_t seq_len = 0;                            // L; read only where NeedsSeqLen
};

// Order of Values::scalars that every rotary formula yields.
enum RopeScalar { kAttentionScaling, kSoftmaxScaleFactor, kRopeScalars };

struct RopeMethod {
  std::string_view rope_type;
  // Names of the fields it reads, beside rope_theta and partial_rotary_factor, which all read; max_position_embeddings
  // of the settings among them.
  std::vector<std::string_view> reads;
  // Fills in defaults and refuses what the formula cannot take. Numbers are finite already, rope_theta is > 0.
  absl::Status (*complete)(RopeParameters& parameters, const RopeInput& input);
  // Whether the frequencies depend on the sequence's length.
  bool (*needs_seq_len)(const RopeParameters& parameters);
  // Which branch of the formula holds for input.seq_len.
  std::string_view (*branch)(const RopeInput& input);
  // inv_freq [d/2] and the RopeScalars.
  Numbers (*evaluate)(Frequencies arithmetic, const RopeInput& input);
};

// rope_theta^(2i/d) for i = 0 .. d/2-1.
template <class A>
std::vector<typename A::Element> ThetaPowers(typename A::Element theta, int64_t rotary_dim) {
  using E = typename A::Element;
  std::vector<E> powers;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    powers.push_back(Pow(theta, E(static_cast<double>(i)) / E(static_cast<double>(rotary_dim))));
  }
  return powers;
}

// Values with a list of inverse frequencies and the given scalars, in the order of RopeScalar.
template <class A>
Values<A> RopeValues(std::vector<typename A::Element> inv_freq, typename A::Scalar attention_scaling = 1.0,
                     typename A::Scalar softmax_scale_factor = 1.0) {
  return {std::move(inv_freq), {attention_scaling, softmax_scale_factor}};
}

inline bool NeverNeedsSeqLen(const RopeParameters&) { return false; }
inline std::string_view NoBranch(const RopeInput&) { return ""; }

// Refuse a missing field, or one below the limit.
absl::Status Require(std::string_view name, const std::optional<double>& field, std::string_view rope_type);
absl::Status RequireAtLeast(std::string_view name, double value, double least);
absl::Status RequirePositive(std::string_view name, double value);

}  // namespace posenc

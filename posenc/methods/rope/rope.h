// The rotary scalings: what each reads, refuses and computes. methods/methods.h lists them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/settings/settings.h"

namespace posenc {

// What a formula may depend on. `parameters` is complete: every default has been filled in.
struct RopeInput {
  const RopeParameters& parameters;
  int64_t pairs;                                  // how many frequencies are wanted
  double dim;                                     // d: twice that, or frequency_dim
  std::optional<double> max_position_embeddings;  // Lmax
  int64_t seq_len = 0;                            // L; read only where NeedsSeqLen
};

// Order of Values::scalars that every rotary formula yields. Positions are divided by the last of them.
enum RopeScalar { kAttentionScaling, kSoftmaxScaleFactor, kPositionDivisor, kRopeScalars };

struct RopeMethod {
  std::string_view rope_type;
  // Names of the fields it reads, beside those that all read (rotary_plan.cc); max_position_embeddings of the settings
  // among them. One that names partial_rotary_factor has a use of its own for it: the width stays as it is.
  std::vector<std::string_view> reads;
  // Fills in defaults and refuses what the formula cannot take. Numbers are finite already, rope_theta is > 0.
  absl::Status (*complete)(RopeParameters& parameters, const RopeInput& input);
  // Whether the frequencies depend on the sequence's length.
  bool (*needs_seq_len)(const RopeParameters& parameters) = [](const RopeParameters&) { return false; };
  // Which branch of the formula holds for input.seq_len.
  std::string_view (*branch)(const RopeInput& input) = [](const RopeInput&) { return std::string_view(); };
  // inv_freq [pairs] and the RopeScalars.
  Numbers (*evaluate)(Frequencies arithmetic, const RopeInput& input);
  // Whether it is made of powers of theta, and so reads rope_theta and frequency_dim.
  bool has_theta = true;
};

bool Reads(const RopeMethod& method, std::string_view field);

// theta^(2(start + i)/dim) for i = 0 .. pairs-1.
template <class A>
std::vector<typename A::Element> ThetaPowers(typename A::Element theta, double dim, int64_t pairs, double start = 0) {
  using E = typename A::Element;
  std::vector<E> powers;
  for (int64_t i = 0; i < pairs; ++i) {
    powers.push_back(Pow(theta, E(2.0) * (E(start) + E(static_cast<double>(i))) / E(dim)));
  }
  return powers;
}

// The same for 2i = 0, 2, .. below rotary_dim.
template <class A>
std::vector<typename A::Element> ThetaPowers(typename A::Element theta, int64_t rotary_dim) {
  return ThetaPowers<A>(theta, static_cast<double>(rotary_dim), (rotary_dim + 1) / 2);
}

// Values with a list of inverse frequencies and the given scalars, in the order of RopeScalar.
template <class A>
Values<A> RopeValues(std::vector<typename A::Element> inv_freq, typename A::Scalar attention_scaling = 1.0,
                     typename A::Scalar softmax_scale_factor = 1.0, typename A::Scalar position_divisor = 1.0) {
  return {std::move(inv_freq), {attention_scaling, softmax_scale_factor, position_divisor}};
}

// Refuse a missing field, or one below the limit.
absl::Status Require(std::string_view name, const std::optional<double>& field, std::string_view rope_type);
absl::Status RequireAtLeast(std::string_view name, double value, double least);
// Refuses d = 2, which d - 2 divides by.
absl::Status RequireAboveTwo(const RopeInput& input, std::string_view rope_type);
// Refuses a list that has not one positive number a pair.
absl::Status RequireFactors(std::string_view name, const std::vector<double>& factors, int64_t pairs);

// The scalings, a file rope_NAME.cc each; methods.cc lists them.
RopeMethod DefaultRope();
RopeMethod LinearRope();
RopeMethod LinearPositionsRope();
RopeMethod DynamicRope();
RopeMethod NtkAlphaRope();
RopeMethod NtkRope();
RopeMethod YarnRope();
RopeMethod DeepseekYarnRope();
RopeMethod GgmlYarnRope();
RopeMethod LongropeRope();
RopeMethod Llama3Rope();
RopeMethod ProportionalRope();
RopeMethod PixelRope();
RopeMethod ConstantRope();

}  // namespace posenc

// NTK-aware scalings: a larger base, by a fixed factor, by a fixed alpha, or by the sequence length, also in steps.
#include <algorithm>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/methods/rope/rope.h"

namespace posenc {
namespace {

// NTK-aware scaling by a fixed factor s, as in vLLM:
//
//   f_i = (theta*s)^(-2i/d) / s^(2/d)      with mixed_b = b: f_i = theta^(-2i/d) / exp(A (i+1)^b),  A = ln s / (d/2)^b
//
// In vLLM ln s is a 0-dimensional tensor, and the power of d/2 is computed in Python.
template <class A>
Values<A> NtkFormula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const RopeParameters& p = input.parameters;
  const S theta(*p.rope_theta), s(*p.factor), d(input.dim);
  std::vector<E> inv_freq = ThetaPowers<A>(E(p.mixed_b ? theta : theta * s), input.dim, input.pairs);
  if (!p.mixed_b) {
    const E divisor(Pow(s, S(2.0) / d));
    for (E& f : inv_freq) f = E(1.0) / f / divisor;
  } else {
    const E a = Log(E(s)) / E(Pow(d / S(2.0), S(*p.mixed_b)));
    for (size_t i = 0; i < inv_freq.size(); ++i) {
      const E power = Pow(E(static_cast<double>(i + 1)), E(S(*p.mixed_b)));
      inv_freq[i] = E(1.0) / inv_freq[i] / Exp(a * power);
    }
  }
  return RopeValues<A>(std::move(inv_freq));
}

absl::Status CompleteNtk(RopeParameters& p, const RopeInput&) {
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "ntk"));
  return RequireAtLeast("factor", *p.factor, 1);
}

}  // namespace

RopeMethod NtkRope() {
  return {
      .rope_type = "ntk",
      .reads = {"factor", "mixed_b"},
      .complete = CompleteNtk,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return NtkFormula<decltype(a)>(input); });
          },
      .scales_theta = true,
  };
}

namespace {

// NTK-aware scaling by a fixed alpha (Hunyuan; lucidrains' theta_rescale_factor): f_i = theta'^(-2i/d) with
//
//   theta' = theta * alpha^(d/(d-2))
//
// independent of the sequence length.
template <class A>
Values<A> NtkAlphaFormula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const S d(input.dim);
  const S theta = S(*input.parameters.rope_theta) * Pow(S(*input.parameters.alpha), d / (d - S(2.0)));
  std::vector<E> inv_freq = ThetaPowers<A>(E(theta), input.dim, input.pairs);
  for (E& f : inv_freq) f = E(1.0) / f;
  return RopeValues<A>(std::move(inv_freq));
}

absl::Status CompleteNtkAlpha(RopeParameters& p, const RopeInput& input) {
  POSENC_RETURN_IF_ERROR(Require("alpha", p.alpha, "ntk_alpha"));
  POSENC_RETURN_IF_ERROR(CheckPositive("alpha", *p.alpha));
  return RequireAboveTwo(input, "ntk_alpha");
}

}  // namespace

RopeMethod NtkAlphaRope() {
  return {
      .rope_type = "ntk_alpha",
      .reads = {"alpha"},
      .complete = CompleteNtkAlpha,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return NtkAlphaFormula<decltype(a)>(input); });
          },
      .scales_theta = true,
  };
}

namespace {

// Dynamic NTK: the base grows with the sequence length,
//
//   theta' = theta * (s*L/Lmax - (s-1))^(d/(d-2)),   L = max(seq_len, Lmax),   f_i = theta'^(-2i/d).
//
// Up to Lmax the bracket is 1. transformers keeps an enlarged base until a shorter sequence arrives; this code has no
// state, only seq_len decides. Above Lmax transformers' seq_len is a tensor: theta' is computed in the tensors' type,
// except that torch computes the power of a 0-dimensional tensor in float64 and rounds it.
bool DynamicScaled(const RopeInput& input) {
  return static_cast<double>(input.seq_len) > *input.max_position_embeddings;
}

template <class A>
Values<A> DynamicFormula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  E theta(*input.parameters.rope_theta);
  if (DynamicScaled(input)) {
    const S factor(*input.parameters.factor);
    const S d(input.dim);
    const E stretched = E(factor) * E(static_cast<double>(input.seq_len)) / E(*input.max_position_embeddings);
    const E bracket = stretched - E(factor - S(1.0));
    theta = theta * E(Pow(S(bracket), d / (d - S(2.0))));
  }
  std::vector<E> inv_freq = ThetaPowers<A>(theta, input.dim, input.pairs);
  for (E& f : inv_freq) f = E(1.0) / f;
  return RopeValues<A>(std::move(inv_freq));
}

absl::Status CompleteDynamic(RopeParameters& p, const RopeInput& input) {
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "dynamic"));
  POSENC_RETURN_IF_ERROR(CheckPositive("factor", *p.factor));
  POSENC_RETURN_IF_ERROR(Require("max_position_embeddings", input.max_position_embeddings, "dynamic"));
  return RequireAboveTwo(input, "dynamic");
}

}  // namespace

RopeMethod DynamicRope() {
  return {
      .rope_type = "dynamic",
      .reads = {"factor", "max_position_embeddings"},
      .complete = CompleteDynamic,
      .needs_seq_len = [](const RopeParameters&) { return true; },
      .branch = [](const RopeInput& input) -> std::string_view { return DynamicScaled(input) ? "scaled" : "unscaled"; },
      .branch_needs_seq_len = DynamicScaled,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return DynamicFormula<decltype(a)>(input); });
          },
      .scales_theta = true,
  };
}

namespace {

// Qwen 1 and TeleChat: alpha in steps, of the next power of two above L / L0,
//
//   theta' = theta * alpha^(d/(d-2)),   alpha = max(2^(ceil(log2(L / L0)) + 1) - 1, 1)
//
// L0 = original_max_position_embeddings (seq_length, base_seqlen). Qwen: L = seq_len. TeleChat: L = max(seq_len, Lmax)
// with Lmax = training_seqlen, and cos and sin are multiplied by 0.1 ln(L / Lmax) + 1.
double StepsLength(const RopeInput& input) {
  return std::max(static_cast<double>(input.seq_len), input.max_position_embeddings.value_or(0));
}

double StepsAlpha(const RopeInput& input) {
  const double original = *input.parameters.original_max_position_embeddings, length = StepsLength(input);
  double power = 1;  // of two, at least length / original
  while (power * original < length) power *= 2;
  return 2 * power - 1;
}

bool StepsScaled(const RopeInput& input) {
  return StepsAlpha(input) > 1 ||
         (input.max_position_embeddings && StepsLength(input) > *input.max_position_embeddings);
}

template <class A>
Values<A> StepsFormula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const S d(input.dim);
  const S theta = S(*input.parameters.rope_theta) * Pow(S(StepsAlpha(input)), d / (d - S(2.0)));
  std::vector<E> inv_freq = ThetaPowers<A>(E(theta), input.dim, input.pairs);
  for (E& f : inv_freq) f = E(1.0) / f;
  const auto longest = input.max_position_embeddings;
  if (!longest || StepsLength(input) <= *longest) return RopeValues<A>(std::move(inv_freq));
  const S magnitude = S(1.0) / S(10.0) * Log(S(StepsLength(input)) / S(*longest)) + S(1.0);
  return RopeValues<A>(std::move(inv_freq), magnitude);
}

RopeMethod Steps(std::string_view rope_type) {
  return {
      .rope_type = rope_type,
      .needs_seq_len = [](const RopeParameters&) { return true; },
      .branch = [](const RopeInput& input) -> std::string_view { return StepsScaled(input) ? "scaled" : "unscaled"; },
      .branch_needs_seq_len = StepsScaled,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return StepsFormula<decltype(a)>(input); });
          },
      .scales_theta = true,
  };
}

constexpr std::string_view kOriginalLength = "original_max_position_embeddings";

}  // namespace

RopeMethod QwenNtkRope() {
  RopeMethod method = Steps("qwen_ntk");
  method.reads = {kOriginalLength};
  method.complete = [](RopeParameters& p, const RopeInput& input) -> absl::Status {
    POSENC_RETURN_IF_ERROR(Require(kOriginalLength, p.original_max_position_embeddings, "qwen_ntk"));
    POSENC_RETURN_IF_ERROR(RequireAtLeast(kOriginalLength, *p.original_max_position_embeddings, 1));
    return RequireAboveTwo(input, "qwen_ntk");
  };
  return method;
}

RopeMethod TelechatNtkRope() {
  RopeMethod method = Steps("telechat_ntk");
  method.reads = {kOriginalLength, "max_position_embeddings"};
  method.complete = [](RopeParameters& p, const RopeInput& input) -> absl::Status {
    POSENC_RETURN_IF_ERROR(Require(kOriginalLength, p.original_max_position_embeddings, "telechat_ntk"));
    POSENC_RETURN_IF_ERROR(RequireAtLeast(kOriginalLength, *p.original_max_position_embeddings, 1));
    POSENC_RETURN_IF_ERROR(Require("max_position_embeddings", input.max_position_embeddings, "telechat_ntk"));
    return RequireAboveTwo(input, "telechat_ntk");
  };
  return method;
}

}  // namespace posenc

// Rotary scalings without one, by a constant factor of the frequencies or of the positions, and constant frequencies.
#include <type_traits>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/methods/rope/rope.h"

namespace posenc {
namespace {

// Rotary embedding as in RoFormer (arXiv:2104.09864): f_i = theta^(-2i/d).
template <class A>
Values<A> DefaultFormula(const RopeInput& input) {
  using E = typename A::Element;
  std::vector<E> inv_freq = ThetaPowers<A>(E(*input.parameters.rope_theta), input.dim, input.pairs);
  for (E& f : inv_freq) f = E(1.0) / f;
  return RopeValues<A>(std::move(inv_freq));
}

}  // namespace

RopeMethod DefaultRope() {
  return {
      .rope_type = "default",
      .reads = {},
      .complete = [](RopeParameters&, const RopeInput&) { return absl::OkStatus(); },
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return DefaultFormula<decltype(a)>(input); });
          },
  };
}

namespace {

// Position interpolation (arXiv:2306.15595) as transformers does it: every frequency divided by s = factor.
// Dividing the positions instead is the same over the real numbers, but not in float32 (docs/accuracy.md).
template <class A>
Values<A> LinearFormula(const RopeInput& input) {
  using E = typename A::Element;
  const E factor(*input.parameters.factor);
  std::vector<E> inv_freq = ThetaPowers<A>(E(*input.parameters.rope_theta), input.dim, input.pairs);
  for (E& f : inv_freq) f = E(1.0) / f / factor;
  return RopeValues<A>(std::move(inv_freq));
}

absl::Status CompleteLinear(RopeParameters& p, const RopeInput&) {
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "linear"));
  return CheckPositive("factor", *p.factor);
}

}  // namespace

RopeMethod LinearRope() {
  return {
      .rope_type = "linear",
      .reads = {"factor"},
      .complete = CompleteLinear,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return LinearFormula<decltype(a)>(input); });
          },
  };
}

namespace {

// Position interpolation (arXiv:2306.15595) as older transformers, vLLM and lucidrains do it: every position divided by
// s = factor. Over the real numbers that equals "linear", so kExact divides the frequencies. Other arithmetics divide
// the positions, in their own type.
template <class A>
Values<A> LinearPositionsFormula(const RopeInput& input) {
  using E = typename A::Element;
  constexpr bool kExact = std::is_same_v<A, ExactArithmetic>;
  const E factor(*input.parameters.factor);
  std::vector<E> inv_freq = ThetaPowers<A>(E(*input.parameters.rope_theta), input.dim, input.pairs);
  for (E& f : inv_freq) f = kExact ? E(1.0) / f / factor : E(1.0) / f;
  return RopeValues<A>(std::move(inv_freq), 1.0, 1.0, kExact ? 1.0 : *input.parameters.factor);
}

absl::Status CompleteLinearPositions(RopeParameters& p, const RopeInput&) {
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "linear_positions"));
  return CheckPositive("factor", *p.factor);
}

}  // namespace

RopeMethod LinearPositionsRope() {
  return {
      .rope_type = "linear_positions",
      .reads = {"factor"},
      .complete = CompleteLinearPositions,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return LinearPositionsFormula<decltype(a)>(input); });
          },
  };
}

namespace {

// lucidrains' constant frequencies: all 1, so that the position is the angle.
template <class A>
Values<A> ConstantFormula(const RopeInput& input) {
  return RopeValues<A>(std::vector<typename A::Element>(input.pairs, 1.0));
}

}  // namespace

RopeMethod ConstantRope() {
  return {
      .rope_type = "constant",
      .reads = {},
      .complete = [](RopeParameters&, const RopeInput&) { return absl::OkStatus(); },
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return ConstantFormula<decltype(a)>(input); });
          },
      .has_theta = false,
  };
}

}  // namespace posenc

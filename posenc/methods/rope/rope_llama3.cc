// Llama 3.1's scaling by wavelength lambda = 2 pi / f, with lo = low_freq_factor, hi = high_freq_factor:
//
//   lambda < L0/hi: f      lambda > L0/lo: f/s      else (1-t)*f/s + t*f,  t = (L0/lambda - lo) / (hi - lo)
//
// The mixed branch is computed only where it applies, so hi == lo never divides by zero. A number divided by a tensor
// is computed as the tensor's reciprocal times the number, as torch does it.
#include "posenc/methods/rope/rope.h"

#include "posenc/base/checks.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

template <class A>
Values<A> Formula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const RopeParameters& p = input.parameters;
  const S lo(*p.low_freq_factor), hi(*p.high_freq_factor), length(*p.original_max_position_embeddings);
  const E factor{S(*p.factor)};
  const E longest(length / lo), shortest(length / hi);

  std::vector<E> inv_freq = ThetaPowers<A>(E(*p.rope_theta), input.dim, input.pairs);
  for (E& f : inv_freq) {
    f = E(1.0) / f;
    const E wavelength = E(1.0) / f * E(S(2.0) * S::Pi());
    if (wavelength > longest) {
      f = f / factor;
    } else if (!(wavelength < shortest) && lo < hi) {
      const E t = (E(1.0) / wavelength * E(length) - E(lo)) / E(hi - lo);
      f = (E(1.0) - t) * f / factor + t * f;
    }
  }
  return RopeValues<A>(std::move(inv_freq));
}

absl::Status Complete(RopeParameters& p, const RopeInput&) {
  const struct {
    std::string_view name;
    const std::optional<double>& field;
  } required[] = {{"factor", p.factor},
                  {"original_max_position_embeddings", p.original_max_position_embeddings},
                  {"low_freq_factor", p.low_freq_factor},
                  {"high_freq_factor", p.high_freq_factor}};
  for (const auto& [name, field] : required) {
    POSENC_RETURN_IF_ERROR(Require(name, field, "llama3"));
    POSENC_RETURN_IF_ERROR(CheckPositive(name, *field));
  }
  return RequireAtLeast("high_freq_factor", *p.high_freq_factor, "low_freq_factor", *p.low_freq_factor);
}

}  // namespace

RopeMethod Llama3Rope() {
  return {
      .rope_type = "llama3",
      .reads = {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"},
      .complete = Complete,
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
      .blends = true,
  };
}

}  // namespace posenc

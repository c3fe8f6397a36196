// Dynamic NTK: the base grows with the sequence length,
//
//   theta' = theta * (s*L/Lmax - (s-1))^(d/(d-2)),   L = max(seq_len, Lmax),   f_i = theta'^(-2i/d).
//
// Up to Lmax the bracket is 1. transformers keeps an enlarged base until a shorter sequence arrives; this code has no
// state, only seq_len decides. Above Lmax transformers' seq_len is a tensor: theta' is computed in the tensors' type,
// except that torch computes the power of a 0-dimensional tensor in float64 and rounds it.
#include "posenc/methods/rope/rope.h"

#include <algorithm>

#include "posenc/base/status.h"

namespace posenc {
namespace {

bool Scaled(const RopeInput& input) { return static_cast<double>(input.seq_len) > *input.max_position_embeddings; }

template <class A>
Values<A> Formula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  E theta(*input.parameters.rope_theta);
  if (Scaled(input)) {
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

absl::Status Complete(RopeParameters& p, const RopeInput& input) {
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "dynamic"));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("factor", *p.factor, 1));
  POSENC_RETURN_IF_ERROR(Require("max_position_embeddings", input.max_position_embeddings, "dynamic"));
  return RequireAboveTwo(input, "dynamic");
}

}  // namespace

RopeMethod DynamicRope() {
  return {
      .rope_type = "dynamic",
      .reads = {"factor", "max_position_embeddings"},
      .complete = Complete,
      .needs_seq_len = [](const RopeParameters&) { return true; },
      .branch = [](const RopeInput& input) -> std::string_view { return Scaled(input) ? "scaled" : "unscaled"; },
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc
